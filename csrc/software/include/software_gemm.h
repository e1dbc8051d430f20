// The register-blocked core of matrix products on the CPU, in GCC's and clang's vector types.
#pragma once

namespace software {

template <class T, int Bytes>
struct gemm_vector {
  typedef T type __attribute__((vector_size(Bytes)));
  typedef T unaligned __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

// c[r][j] = (accumulate ? c[r][j] : 0) + sum over k of a[r][k] * b[k][j] for Rows rows and Vectors
// vectors of Bytes bytes. a[r][k] is at a[r * row_step + k * k_step]; rows of b start every
// `b_step` elements, those of c every `c_step`. All Rows * Vectors sums stay in registers: 12 x 2
// leaves 8 of AVX-512's 32 for b and a.
template <class T, int Bytes, int Rows, int Vectors>
inline __attribute__((always_inline)) void gemm_tile(const T* __restrict a, int row_step, int k_step,
                                                     const T* __restrict b, int b_step, T* __restrict c, int c_step,
                                                     int count, bool accumulate) {
  using V = typename gemm_vector<T, Bytes>::type;
  using U = typename gemm_vector<T, Bytes>::unaligned;
  constexpr int lanes = Bytes / int(sizeof(T));
  V sum[Rows][Vectors];
  if (accumulate) {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] = *reinterpret_cast<const U*>(c + r * c_step + v * lanes);
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] = V{};
  }
#pragma GCC unroll 1
  for (int k = 0; k < count; ++k) {
    V row[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) row[v] = *reinterpret_cast<const U*>(b + long(k) * b_step + v * lanes);
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] += a[r * row_step + k * k_step] * row[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<U*>(c + r * c_step + v * lanes) = sum[r][v];
}

}  // namespace software
