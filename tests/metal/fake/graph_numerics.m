#include "tests/metal/fake/graph_numerics.h"

#include <string.h>

int64_t FakeCount(const FakeShape *shape) {
  int64_t count = 1;
  for (int d = 0; d < shape->rank; ++d) count *= shape->dims[d];
  return count;
}

int FakeElementBytes(uint32_t type) {
  return type == kFakeFloat32 ? 4 : type == kFakeFloat16 || type == kFakeBfloat16 ? 2 : 0;
}

void FakeDecode(const void *from, uint32_t type, int64_t count, double *to) {
  for (int64_t i = 0; i < count; ++i) {
    if (type == kFakeFloat32) {
      to[i] = ((const float *)from)[i];
    } else if (type == kFakeFloat16) {
      to[i] = ((const _Float16 *)from)[i];
    } else {
      const uint32_t bits = (uint32_t)((const uint16_t *)from)[i] << 16;
      float value;
      memcpy(&value, &bits, sizeof value);
      to[i] = value;
    }
  }
}

// To nearest, ties to even.
static uint16_t Bfloat(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (value != value) return 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void FakeEncode(const double *from, uint32_t type, int64_t count, void *to) {
  for (int64_t i = 0; i < count; ++i) {
    if (type == kFakeFloat32) {
      ((float *)to)[i] = (float)from[i];
    } else if (type == kFakeFloat16) {
      ((_Float16 *)to)[i] = (_Float16)from[i];
    } else {
      ((uint16_t *)to)[i] = Bfloat((float)from[i]);
    }
  }
}

void FakeTranspose(const double *from, const FakeShape *shape, const int64_t *permutation, double *to) {
  int64_t steps[kFakeMaxRank], index[kFakeMaxRank] = {0};
  int64_t step = 1;
  for (int d = shape->rank - 1; d >= 0; --d) {
    steps[d] = step;
    step *= shape->dims[d];
  }
  for (int64_t i = 0; i < step; ++i) {
    int64_t at = 0;
    for (int d = 0; d < shape->rank; ++d) at += index[d] * steps[permutation[d]];
    to[i] = from[at];
    for (int d = shape->rank - 1; d >= 0 && ++index[d] == shape->dims[permutation[d]]; --d) index[d] = 0;
  }
}

void FakeMatmul(const double *a, const double *b, const FakeShape *shape_a, const FakeShape *shape_b, double *to) {
  const int64_t rows = shape_a->dims[1], folded = shape_a->dims[2], columns = shape_b->dims[2];
  for (int64_t batch = 0; batch < shape_a->dims[0]; ++batch) {
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < columns; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < folded; ++k) {
          sum += a[(batch * rows + m) * folded + k] * b[(batch * folded + k) * columns + n];
        }
        to[(batch * rows + m) * columns + n] = sum;
      }
    }
  }
}

// Dimensions by their meaning.
typedef struct {
  int64_t batch, feature, size[2];
  int64_t batch_step, feature_step, step[2];
} Axes;

static Axes DataAxes(const FakeShape *shape, bool nhwc) {
  const int64_t *d = shape->dims;
  if (nhwc) return (Axes){d[0], d[3], {d[1], d[2]}, d[1] * d[2] * d[3], 1, {d[2] * d[3], d[3]}};
  return (Axes){d[0], d[1], {d[2], d[3]}, d[1] * d[2] * d[3], d[2] * d[3], {d[3], 1}};
}
// `batch` stands for output features.
static Axes WeightsAxes(const FakeShape *shape, bool hwio) {
  const int64_t *d = shape->dims;
  if (hwio) return (Axes){d[3], d[2], {d[0], d[1]}, 1, d[3], {d[1] * d[2] * d[3], d[2] * d[3]}};
  return (Axes){d[0], d[1], {d[2], d[3]}, d[1] * d[2] * d[3], d[2] * d[3], {d[3], 1}};
}

bool FakeFits(const FakeWindow *window, const FakeShape *source, const FakeShape *weights, const FakeShape *result) {
  if (source->rank != 4 || weights->rank != 4 || result->rank != 4 || window->groups == 0) return false;
  const Axes s = DataAxes(source, window->nhwc), r = DataAxes(result, window->nhwc);
  const Axes w = WeightsAxes(weights, window->hwio);
  const int64_t groups = (int64_t)window->groups;
  if (s.batch != r.batch || s.feature != w.feature * groups || r.feature != w.batch || w.batch % groups != 0) {
    return false;
  }
  for (int i = 0; i < 2; ++i) {
    const int64_t reach = (w.size[i] - 1) * (int64_t)window->dilation[i] + 1;
    const int64_t left = s.size[i] + (int64_t)(window->low[i] + window->high[i]) - reach;
    if (left < 0 || left / (int64_t)window->stride[i] + 1 != r.size[i]) return false;
  }
  return true;
}

void FakeConvolve(FakeConvolution which, const FakeWindow *window, double *source, const FakeShape *source_shape,
                  double *weights, const FakeShape *weights_shape, double *result, const FakeShape *result_shape) {
  const Axes s = DataAxes(source_shape, window->nhwc), r = DataAxes(result_shape, window->nhwc);
  const Axes w = WeightsAxes(weights_shape, window->hwio);
  const int64_t outputs = w.batch / (int64_t)window->groups;
  for (int64_t n = 0; n < s.batch; ++n) {
    for (int64_t o = 0; o < w.batch; ++o) {
      for (int64_t i = 0; i < w.feature; ++i) {
        const int64_t feature = o / outputs * w.feature + i;
        for (int64_t y = 0; y < r.size[0]; ++y) {
          for (int64_t x = 0; x < r.size[1]; ++x) {
            for (int64_t ky = 0; ky < w.size[0]; ++ky) {
              for (int64_t kx = 0; kx < w.size[1]; ++kx) {
                const int64_t v =
                    y * (int64_t)window->stride[0] + ky * (int64_t)window->dilation[0] - (int64_t)window->low[0];
                const int64_t u =
                    x * (int64_t)window->stride[1] + kx * (int64_t)window->dilation[1] - (int64_t)window->low[1];
                if (v < 0 || v >= s.size[0] || u < 0 || u >= s.size[1]) continue;
                double *at_s = source + n * s.batch_step + feature * s.feature_step + v * s.step[0] + u * s.step[1];
                double *at_w = weights + o * w.batch_step + i * w.feature_step + ky * w.step[0] + kx * w.step[1];
                double *at_r = result + n * r.batch_step + o * r.feature_step + y * r.step[0] + x * r.step[1];
                if (which == kFakeForward) *at_r += *at_s * *at_w;
                if (which == kFakeDataGradient) *at_s += *at_r * *at_w;
                if (which == kFakeWeightsGradient) *at_w += *at_s * *at_r;
              }
            }
          }
        }
      }
    }
  }
}
