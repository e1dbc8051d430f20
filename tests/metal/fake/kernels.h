// Kernels of the fake Metal: MSL compiled and run by the strict software device (csrc/software).
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kFakeMaxBuffers = 31 };

// Lives for ever, as compiled kernels do.
typedef struct FakeKernel FakeKernel;

typedef struct {
  char *bytes;  // NULL: nothing is bound
  size_t length;
} FakeSpan;

// Compiles the kernels of a text; the first of them through `next`, or NULL with `error` set to a text to
// free. `has_bfloat`: the language version has it.
const FakeKernel *FakeCompile(const char *source, int has_bfloat, char **error);
const FakeKernel *FakeNextKernel(const FakeKernel *kernel);
const char *FakeKernelName(const FakeKernel *kernel);
// What is wrong with a buffer at this address at [[buffer(index)]], or with none at all there; NULL or a text
// to free.
char *FakeCheckBuffer(const FakeKernel *kernel, uint32_t index, const FakeSpan *span, size_t offset);
// Runs a grid of threads; NULL, or a text to free that says which rule the kernel broke.
char *FakeRunKernel(const FakeKernel *kernel, const FakeSpan *buffers, const uint32_t *threads,
                    const uint32_t *per_threadgroup);

#ifdef __cplusplus
}
#endif
