// What precedes every kernel: the library, and what host compilers want to know of a loop and Metal does not.
#include <metal_stdlib>
using namespace metal;

#ifdef PJRT_SOFTWARE
// Iterations of the loop that follows do not depend on one another through memory.
#define PJRT_INDEPENDENT _Pragma("GCC ivdep")
// The loop that follows may keep vectors of partial results for the scalars its clauses name.
#define PJRT_PRAGMA(text) _Pragma(#text)
#define PJRT_SIMD(clauses) PJRT_PRAGMA(omp simd clauses)
#else
#define PJRT_INDEPENDENT
#define PJRT_SIMD(clauses)
// A product and a sum fuse only where the text says fma, so that a value which two kernels compute is the same in both
// (host compilers: -ffp-contract=off). A compiler that does not know the line passes over it.
#pragma METAL fp contract(off)
#endif
