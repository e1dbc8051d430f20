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
// "reorder" (completions swapped in pairs), "fault" (of a command buffer's last encoder),
// "removed" (the device), "commandBuffer", "encoder" (nil instead of one) or "".
void FakeFail(const char* what);
void FakeMacos(int major);
// The GPU starts no command buffer while it is paused.
void FakePause(int paused);
// So far.
long FakeCommitted(void);
long FakeBarriers(void);

#ifdef __cplusplus
}
#endif
