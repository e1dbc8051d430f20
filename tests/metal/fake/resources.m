// Buffers, libraries, pipelines.
#include "tests/metal/fake/internal.h"
@implementation MTLBuffer
- (void *)contents {
  return bytes;
}
- (void)dealloc {
  if (owned) free(bytes);
  [super dealloc];
}
@end

@implementation MTLFunction
@end
@implementation MTLComputePipelineState
- (uint64_t)maxTotalThreadsPerThreadgroup {
  return limit > 0 ? limit : 512;
}
- (uint64_t)threadExecutionWidth {
  return Fails("width") ? 64 : 32;
}
@end

@implementation MTLLibrary
- (id)newFunctionWithName:(NSString *)name {
  CHECK(Alive(name), "function name used after release");
  if (strstr(source, name->text) == NULL) return nil;
  MTLFunction *function = [MTLFunction alloc];
  function->kernel = strcmp(name->text, "k_add") == 0 ? 0 : 1;
  return function;
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
