// Buffers, libraries, pipelines.
#include <sys/mman.h>
#include <unistd.h>

#include "tests/metal/fake/internal.h"

// MTLResourceOptions.
enum { kShared = 0, kPrivate = 2 << 4, kTracked = 2 << 8 };

static const uint64_t kPage = 16384;
static const uint64_t kAlignment = 256;

static long allocated;
static long wrapped;
long FakeWrapped(void) { return __atomic_load_n(&wrapped, __ATOMIC_SEQ_CST); }
void CountWrapped(long bytes) { __atomic_add_fetch(&wrapped, bytes, __ATOMIC_SEQ_CST); }
long FakeAllocated(void) { return __atomic_load_n(&allocated, __ATOMIC_SEQ_CST); }

// Page-aligned from a page on. Smaller ones are not, and end at a page that nobody may touch.
MTLBuffer *MakeBuffer(uint64_t length, uint64_t options) {
  CHECK((options & ~(uint64_t)(kPrivate | kTracked)) == 0, "resource options 0x%lx", options);
  CHECK(length > 0, "buffer of no bytes");
  MTLBuffer *buffer = [MTLBuffer alloc];
  const uint64_t used = (length + kPage - 1) / kPage * kPage;
  buffer->mapped = used + kPage;
  buffer->pages = mmap(NULL, buffer->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer->pages == MAP_FAILED) abort();
  mprotect(buffer->pages + used, kPage, PROT_NONE);
  const uint64_t rounded = (length + kAlignment - 1) / kAlignment * kAlignment;
  buffer->bytes = length < kPage ? buffer->pages + used - rounded : buffer->pages;
  buffer->length = length;
  __atomic_add_fetch(&allocated, (long)length, __ATOMIC_SEQ_CST);
  buffer->options = options;
  memset(buffer->bytes, 0xff, length);  // what nobody wrote is no number, and shows
  return buffer;
}

@implementation MTLBuffer
- (void *)contents {
  CHECK((options & kPrivate) == 0, "contents of a private buffer");
  return (options & kPrivate) == 0 ? bytes : NULL;
}
- (void)dealloc {
  if (pages != NULL) {
    munmap(pages, mapped);
    __atomic_sub_fetch(&allocated, (long)length, __ATOMIC_SEQ_CST);
  } else {
    CountWrapped(-(long)length);
  }
  bytes = NULL;
  [super dealloc];
}
@end

@implementation MTLFunction
@end

@implementation MTLComputePipelineState
- (uint64_t)maxTotalThreadsPerThreadgroup {
  if (limit > 0) return limit;
  return Fails("threads") ? 512 : 1024;
}
- (uint64_t)threadExecutionWidth {
  return Fails("width") ? 64 : 32;
}
@end

@implementation MTLLibrary
- (id)newFunctionWithName:(NSString *)name {
  CHECK(Alive(name), "function name used after release");
  if (!Alive(name)) return nil;
  for (const FakeKernel *kernel = kernels; kernel != NULL; kernel = FakeNextKernel(kernel)) {
    if (strcmp(FakeKernelName(kernel), [name UTF8String]) != 0) continue;
    MTLFunction *function = [MTLFunction alloc];
    function->kernel = kernel;
    return function;
  }
  return nil;
}
@end

@implementation MTLCompileOptions
- (void)setFastMathEnabled:(BOOL)fast {
  safe = precise = !fast;
}
- (void)setMathMode:(int64_t)mode {
  safe = mode == 0;
}
- (void)setMathFloatingPointFunctions:(int64_t)functions {
  precise = functions == 1;
}
- (void)setLanguageVersion:(uint64_t)version {
  language = version;
}
@end
