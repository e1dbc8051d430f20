// The register-blocked core of matrix products on the CPU, in GCC's and clang's vector types.
#pragma once

namespace software {

template <class T, int Bytes>
struct gemm_vector {
  typedef T type __attribute__((vector_size(Bytes)));
  typedef T unaligned __attribute__((vector_size(Bytes), aligned(alignof(T)), may_alias));
};

// a * b + c by element, with one rounding where the CPU has that for T: twice the speed of two instructions.
template <class T, int Bytes>
SOFTWARE_INLINE typename gemm_vector<T, Bytes>::type multiply_add(typename gemm_vector<T, Bytes>::type a,
                                                                  typename gemm_vector<T, Bytes>::type b,
                                                                  typename gemm_vector<T, Bytes>::type c) {
#if defined(__clang__)
#pragma clang fp contract(fast)
  return a * b + c;
#else
#if defined(__FMA__)
#if defined(__AVX512F__)
  if constexpr (is_same<T, float> && Bytes == 64) return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
  if constexpr (is_same<T, double> && Bytes == 64) return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4);
#endif
  if constexpr (is_same<T, float> && Bytes == 32) return __builtin_ia32_vfmaddps256(a, b, c);
  if constexpr (is_same<T, double> && Bytes == 32) return __builtin_ia32_vfmaddpd256(a, b, c);
  if constexpr (is_same<T, float> && Bytes == 16) return __builtin_ia32_vfmaddps(a, b, c);
  if constexpr (is_same<T, double> && Bytes == 16) return __builtin_ia32_vfmaddpd(a, b, c);
#elif defined(__aarch64__)
  // The compiler makes one instruction of the lanes.
  if constexpr (is_same<T, float> || is_same<T, double>) {
#pragma GCC unroll 16
    for (int i = 0; i < Bytes / int(sizeof(T)); ++i) c[i] = madd(a[i], b[i], c[i]);
    return c;
  }
#endif
  return a * b + c;
#endif
}

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
      for (int v = 0; v < Vectors; ++v) {
        // Less zero: the same number in every lane.
        sum[r][v] = multiply_add<T, Bytes>(a[r * row_step + k * k_step] - V{}, row[v], sum[r][v]);
      }
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) *reinterpret_cast<U*>(c + r * c_step + v * lanes) = sum[r][v];
}

}  // namespace software
