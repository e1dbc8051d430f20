// What the fake MPSGraph computes with: plain loops over doubles.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { kFakeMaxRank = 16 };
// MPSDataType's values.
enum { kFakeFloat32 = 0x10000020u, kFakeFloat16 = 0x10000010u, kFakeBfloat16 = 0x90000010u };

typedef struct {
  int rank;
  int64_t dims[kFakeMaxRank];
} FakeShape;
int64_t FakeCount(const FakeShape *shape);

typedef struct {
  uint64_t stride[2], dilation[2], low[2], high[2], groups;  // of height and width
  bool nhwc, hwio;
} FakeWindow;
typedef enum { kFakeForward, kFakeDataGradient, kFakeWeightsGradient } FakeConvolution;

int FakeElementBytes(uint32_t type);  // 0: unknown
void FakeDecode(const void *from, uint32_t type, int64_t count, double *to);
void FakeEncode(const double *from, uint32_t type, int64_t count, void *to);
void FakeTranspose(const double *from, const FakeShape *shape, const int64_t *permutation, double *to);
void FakeMatmul(const double *a, const double *b, const FakeShape *shape_a, const FakeShape *shape_b, double *to);
// Whether arrays of these shapes belong to one convolution.
bool FakeFits(const FakeWindow *window, const FakeShape *source, const FakeShape *weights, const FakeShape *result);
// Adds up the array that `which` names from the two others.
void FakeConvolve(FakeConvolution which, const FakeWindow *window, double *source, const FakeShape *source_shape,
                  double *weights, const FakeShape *weights_shape, double *result, const FakeShape *result_shape);
