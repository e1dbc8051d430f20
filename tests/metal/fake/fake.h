// What a test asks of the fake Metal beside Metal's own interface. In C, so that Python's ctypes can call it.
//
// Environment: FAKE_METAL_FAIL, as FakeFail from the start; FAKE_METAL_INHERIT, processes that this one starts have the
// fake too; FAKE_METAL_FAMILY=7|8|9, the GPU's Apple family (8); FAKE_METAL_MACOS, the major version (15);
// PJRT_METAL_STRICT_ORDERS, in how many orders of threads each dispatch is run and compared (3).
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// Breaches of Metal's protocol and of MSL's rules so far, a line each.
const char* FakeViolations(void);
void FakeClear(void);
// Objects that are not released; and how many of which class ("MTLBuffer 2, NSString 1").
long FakeLive(void);
const char* FakeLiveNames(void);
// Makes one thing go wrong until the next call; "" ends it:
//   allocate   buffers               pipeline   pipelines
//   compile    libraries             threads    pipelines allow 512 threads a threadgroup, not 1024
//   sandbox    MTLCopyAllDevices gives nothing before the default device was asked for
//   headless   there is no default device         closed     there are no devices at all
//   family     no Apple GPU          width      64 threads a SIMD group
//   run        command buffers, for lack of memory; run:2, with that MTLCommandBufferError
//   graph      MPSGraph makes no executables
//   assert     MPSGraph ends the process; kill: somebody kills it while MPSGraph encodes
//   continue   MPSGraph commits the command buffer and goes on in another
//   lose       as continue, and the committed one fails; loseOwn: one that MPSGraph made and committed itself
//   reorder    completions come swapped in pairs
//   commandBuffer, encoder   nil instead of one
//   residency  residency sets
//   archive    pipelines' archives   disk       archives, while they are written
//   capture    recordings            destination  recordings into documents are not known
//   virtual    the GPU is a virtual machine's
void FakeFail(const char* what);
// Buffers fail from the `from`-th on (1 is the next; 0: none does), or that one alone. Returns how many were asked for
// since the last call.
long FakeFailAllocation(long from, int once);
void FakeMacos(int major);
// Whether the device was told to compile on as many threads as there are.
int FakeConcurrentCompilation(void);
// How many kernels have been dispatched and run.
long FakeDispatches(void);
// How many threads those had, and how many encoders were opened.
long FakeThreads(void);
long FakeEncoders(void);
// The GPU starts no command buffer while it is paused.
void FakePause(int paused);
// How often a thread had to wait for one of a queue's places.
long FakePlaceWaits(void);
// Command buffers that were committed, and barriers encoded, so far.
long FakeCommitted(void);
long FakeBarriers(void);
// How many executables MPSGraph has encoded.
long FakeGraphCalls(void);

// Bytes of the device's buffers; and what the process is said to use beside them.
long FakeAllocated(void);
// And of memory that it was lent.
long FakeWrapped(void);
void FakeUseElsewhere(long bytes);
// Allocations in the residency set, and how often it was committed.
int FakeResident(void);
int FakeResidencyCommits(void);
// How often residency was asked for.
int FakeResidencyRequests(void);
// Pipelines that were not in an archive; and those made for a number of threads in a threadgroup.
int FakePipelinesCompiled(void);
int FakePipelinesLimited(void);
// Tells the process that memory is short, if it listens.
bool FakeMemoryPressure(void);

#ifdef __cplusplus
}
#endif
