// What a test asks of the fake Metal beside Metal's own interface.
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// Breaches of Metal's protocol so far, a line each.
const char* FakeViolations(void);
void FakeClear(void);
// Objects that are not released.
long FakeLive(void);
// Makes one thing fail until the next call: "allocate", "pipeline", "run", "family", "width",
// "reorder" (completions swapped in pairs) or ""; "heap", "residency" (sets), "archive", "disk" (while an archive is
// written), "virtual" (the GPU is a virtual machine's), "capture", "destination" (of captures).
void FakeFail(const char* what);
void FakeMacos(int major);

// Memory on heaps; and what the process is said to use beside it.
long FakeInHeaps(void);
void FakeUseElsewhere(long bytes);
// Allocations in the residency set, and how often it was committed.
int FakeResident(void);
int FakeResidencyCommits(void);
// Pipelines that were not in an archive.
int FakePipelinesCompiled(void);
// Tells the process that memory is short, if it listens.
bool FakeMemoryPressure(void);

#ifdef __cplusplus
}
#endif
