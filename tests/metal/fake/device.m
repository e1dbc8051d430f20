// The device: what the rest is made by.
#include <unistd.h>

#include "tests/metal/fake/collections.h"

static const uint64_t kMaxBufferLength = 1ull << 32;
static long elsewhere;  // allocated by others in this process
void FakeUseElsewhere(long bytes) { elsewhere = bytes; }
// MTLLanguageVersion: major << 16 | minor.
static const uint64_t kMetal31 = 0x30001;
static uint64_t Newest(void) {
  if (MacosMajor() >= 16) return 0x40000;
  return MacosMajor() == 15 ? 0x30002 : MacosMajor() == 14 ? kMetal31 : 0x30000;
}
static bool concurrent;
int FakeConcurrentCompilation(void) { return concurrent; }

@implementation MTLDevice
- (id)name {
  return Autorelease(MakeString(Fails("virtual") ? "Apple Paravirtual device" : "Apple Fake"));
}
- (BOOL)supportsFamily:(int64_t)wanted {
  return !Fails("family") && wanted <= 1000 + Family();
}
- (uint64_t)registryID {
  return 0x100000001;
}
- (void)setShouldMaximizeConcurrentCompilation:(BOOL)maximize {
  CHECK(MacosMajor() >= 14, "shouldMaximizeConcurrentCompilation is in macOS since 13.3");
  concurrent = maximize;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return 1ull << 33;
}
- (uint64_t)currentAllocatedSize {
  return (uint64_t)(FakeAllocated() + FakeWrapped() + elsewhere);
}
- (uint64_t)maxBufferLength {
  return kMaxBufferLength;
}
- (uint64_t)maxThreadgroupMemoryLength {
  return 32768;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return (MTLSize){1024, 1024, 1024};
}
- (id)newCommandQueueWithMaxCommandBufferCount:(uint64_t)count {
  MTLCommandQueue *queue = [MTLCommandQueue alloc];
  queue->places = (int)count;
  return queue;
}
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options {
  CHECK(length <= kMaxBufferLength, "buffer of %lu bytes", length);
  if (AllocationFails() || Fails("allocate") || length > kMaxBufferLength) return nil;
  return MakeBuffer(length, options);
}
- (id)newBufferWithBytesNoCopy:(void *)bytes
                        length:(uint64_t)length
                       options:(uint64_t)options
                   deallocator:(Block *)deallocator {
  const uint64_t page = (uint64_t)getpagesize();
  CHECK((uint64_t)bytes % page == 0 && length > 0 && length % page == 0, "no-copy buffer of parts of pages");
  CHECK(deallocator == NULL && options == 0, "no-copy buffer with a deallocator, or options 0x%lx", options);
  MTLBuffer *buffer = [MTLBuffer alloc];
  buffer->bytes = bytes;
  buffer->length = length;
  CountWrapped((long)length);
  return buffer;
}
- (id)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(id *)error {
  CHECK(options->safe && options->precise, "fast math");
  CHECK(options->language == Newest(), "language version 0x%lx", options->language);
  if (Fails("compile")) {
    *error = MakeError("MTLLibraryErrorDomain", 3, "program_source:1:2: error: planted");
    return nil;
  }
  char *text = NULL;
  const FakeKernel *kernels = FakeCompile([source UTF8String], options -> language >= kMetal31, &text);
  if (kernels == NULL) {
    *error = MakeError("MTLLibraryErrorDomain", 3, text);
    free(text);
    return nil;
  }
  *error = MakeError("MTLLibraryErrorDomain", 4, "program_source:1:1: warning: only a warning");
  MTLLibrary *library = [MTLLibrary alloc];
  library->kernels = kernels;
  return library;
}
- (id)newComputePipelineStateWithFunction:(MTLFunction *)function error:(id *)error {
  CHECK(Alive(function), "a pipeline of a released function");
  if (Fails("pipeline")) {
    *error = MakeError("AGXMetal13_3", 2, "Threadgroup memory size (40000) exceeds the maximum");
    return nil;
  }
  MTLComputePipelineState *state = [MTLComputePipelineState alloc];
  state->kernel = function->kernel;
  return state;
}
@end

static bool default_asked_for;
id MTLCreateSystemDefaultDevice(void) {
  default_asked_for = true;
  return Fails("headless") || Fails("closed") ? nil : [MTLDevice alloc];
}

id MTLCopyAllDevices(void) {
  if (Fails("closed") || (Fails("sandbox") && !default_asked_for)) return [NSMutableArray alloc];
  NSArray *devices = [NSArray alloc];
  devices->only = [MTLDevice alloc];
  return devices;
}
