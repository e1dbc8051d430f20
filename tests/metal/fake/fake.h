// What a test asks of the fake Metal beside Metal's own interface.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Breaches of Metal's protocol so far, a line each.
const char* FakeViolations(void);
void FakeClear(void);
// Objects that are not released.
long FakeLive(void);
// Makes one thing fail until the next call: "allocate", "pipeline", "run", "family", "width",
// "reorder" (completions swapped in pairs) or "".
void FakeFail(const char* what);
void FakeMacos(int major);

#ifdef __cplusplus
}
#endif
