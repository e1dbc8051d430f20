// The device: what the rest is made by.
#include "tests/metal/fake/internal.h"

#include <unistd.h>

@implementation MTLDevice
- (id)name {
  return Autorelease(MakeString(Fails("virtual") ? "Apple Paravirtual device" : "Apple Fake"));
}
- (BOOL)supportsFamily:(int64_t)family {
  return !Fails("family") && family <= 1008;
}
- (BOOL)hasUnifiedMemory {
  return YES;
}
- (uint64_t)recommendedMaxWorkingSetSize {
  return 1ull << 33;
}
- (uint64_t)maxBufferLength {
  return 1ull << 32;
}
- (uint64_t)maxThreadgroupMemoryLength {
  return 32768;
}
- (MTLSize)maxThreadsPerThreadgroup {
  return (MTLSize){1024, 1024, 1024};
}
- (id)newCommandQueue {
  return [MTLCommandQueue alloc];
}
- (id)newBufferWithLength:(uint64_t)length options:(uint64_t)options {
  CHECK(options == 0 && length > 0 && length <= 1ull << 32, "buffer of %lu bytes", length);
  if (Fails("allocate")) return nil;
  MTLBuffer *buffer = [MTLBuffer alloc];
  buffer->bytes = aligned_alloc(16384, (length + 16383) / 16384 * 16384);
  buffer->length = length;
  buffer->owned = true;
  return buffer;
}
- (id)newBufferWithBytes:(const void *)bytes length:(uint64_t)length options:(uint64_t)options {
  MTLBuffer *buffer = [self newBufferWithLength:length options:options];
  memcpy(buffer->bytes, bytes, length);
  return buffer;
}
- (id)newBufferWithBytesNoCopy:(void *)bytes
                        length:(uint64_t)length
                       options:(uint64_t)options
                   deallocator:(Block *)deallocator {
  const uint64_t page = (uint64_t)getpagesize();
  CHECK((uint64_t)bytes % page == 0 && length % page == 0 && deallocator == NULL && options == 0, "no-copy buffer");
  MTLBuffer *buffer = [MTLBuffer alloc];
  buffer->bytes = bytes;
  buffer->length = length;
  return buffer;
}
- (id)newLibraryWithSource:(NSString *)source options:(MTLCompileOptions *)options error:(id *)error {
  CHECK(options->safe && options->precise, "fast math");
  CHECK(options->language == (MacosMajor() >= 14 ? 0x30001 : 0x30000), "language version");
  if (strstr(source->text, "#error") != NULL) {
    *error = MakeError("FakeDomain", 3, "program_source:1:2: error: planted");
    return nil;
  }
  *error = MakeError("FakeDomain", 4, "program_source:1:1: warning: only a warning");
  MTLLibrary *library = [MTLLibrary alloc];
  library->source = source->text;  // strings' text is never freed here
  return library;
}
- (id)newComputePipelineStateWithFunction:(MTLFunction *)function error:(id *)error {
  if (Fails("pipeline")) {
    *error = MakeError("FakeDomain", 2, "too much threadgroup memory");
    return nil;
  }
  MTLComputePipelineState *state = [MTLComputePipelineState alloc];
  state->kernel = function->kernel;
  return state;
}
@end

id MTLCopyAllDevices(void) {
  NSArray *devices = [NSArray alloc];
  devices->only = [MTLDevice alloc];
  return devices;
}
