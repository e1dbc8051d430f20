// simdgroup_matrix: 8 x 8 elements, two in every lane of a SIMD group.
#pragma once

#include "strict_threads.h"

namespace software {

// Row and first column of a lane's two elements. MSL leaves the layout open; this is how Apple's
// GPUs have it: 2 x 2 blocks of 4 x 4 elements, of which a lane holds two neighbours in a row.
inline uint matrix_row(uint lane) { return (lane >> 2 & 4u) + (lane >> 1 & 3u); }
inline uint matrix_column(uint lane) { return (lane >> 1 & 4u) + (lane & 1u) * 2u; }
// The lane that holds the element, and which of its two it is.
inline uint matrix_lane(uint row, uint column) {
  return (row & 4u) << 2 | (column & 4u) << 1 | (row & 3u) << 1 | (column >> 1 & 1u);
}

// All lanes must take part in whatever is done with a matrix.
template <class T>
inline void check_whole(const Lanes<T>& lanes) {
  if (lanes.active != ~0u) strict_fail(lanes.function, "needs all 32 lanes of the SIMD group", lanes.line);
}
inline uint whole_simdgroup(const char* function, int line) {
  const Lanes<bool> lanes(function, true, line);
  check_whole(lanes);
  return lanes.lane;
}

template <class T>
constexpr bool is_matrix_element = is_same<T, float> || is_same<T, half> || is_same<T, bfloat>;

}  // namespace software

namespace metal {

template <class T, int Columns, int Rows>
struct simdgroup_matrix {
  static_assert(Columns == 8 && Rows == 8 && software::is_matrix_element<T>, "8 x 8 of float, half or bfloat");
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal, SOFTWARE_LINE) {
    const uint lane = software::whole_simdgroup("simdgroup_matrix", line);
    for (uint i = 0; i < 2; ++i) {
      const bool on = software::matrix_row(lane) == software::matrix_column(lane) + i;
      elements_[int(i)] = on ? diagonal : T(0.0f);
    }
  }
  vec<T, 2>& thread_elements() { return elements_; }
  const vec<T, 2>& thread_elements() const { return elements_; }

 private:
  vec<T, 2> elements_;
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Columns, int Rows>
inline simdgroup_matrix<T, Columns, Rows> make_filled_simdgroup_matrix(T value, SOFTWARE_LINE) {
  software::whole_simdgroup("make_filled_simdgroup_matrix", line);
  simdgroup_matrix<T, Columns, Rows> m;
  m.thread_elements() = vec<T, 2>(value);
  return m;
}
template <class T, int Columns, int Rows>
inline simdgroup_matrix<T, Columns, Rows> make_diagonal_simdgroup_matrix(T value, SOFTWARE_LINE) {
  return simdgroup_matrix<T, Columns, Rows>(value, line);
}

}  // namespace metal

namespace software {

// The offset of a lane's element i in memory, whose rows begin every `stride` elements.
inline ulong matrix_offset(uint lane, uint i, ulong stride, metal::vec<ulong, 2> origin, bool transpose) {
  const ulong row = matrix_row(lane), column = matrix_column(lane) + i;
  return (origin.y + (transpose ? column : row)) * stride + origin.x + (transpose ? row : column);
}

}  // namespace software

namespace metal {

template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* source, ulong elements_per_row = 8,
                           ulong2 origin = ulong2(0ul), bool transpose = false, SOFTWARE_LINE) {
  const uint lane = software::whole_simdgroup("simdgroup_load", line);
  for (uint i = 0; i < 2; ++i) {
    m.thread_elements()[int(i)] = source[software::matrix_offset(lane, i, elements_per_row, origin, transpose)];
  }
}
template <class T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* destination, ulong elements_per_row = 8,
                            ulong2 origin = ulong2(0ul), bool transpose = false, SOFTWARE_LINE) {
  const uint lane = software::whole_simdgroup("simdgroup_store", line);
  for (uint i = 0; i < 2; ++i) {
    destination[software::matrix_offset(lane, i, elements_per_row, origin, transpose)] = m.thread_elements()[int(i)];
  }
}

// d = a b + c, accumulated in float and rounded to d's type.
template <class T, class A, class B>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<T, 8, 8>& c,
                                          SOFTWARE_LINE) {
  struct Operands {
    vec<A, 2> a;
    vec<B, 2> b;
  };
  const Operands mine = {a.thread_elements(), b.thread_elements()};
  const software::Lanes<Operands> lanes("simdgroup_multiply_accumulate", mine, line);
  software::check_whole(lanes);
  for (uint i = 0; i < 2; ++i) {
    const uint row = software::matrix_row(lanes.lane), column = software::matrix_column(lanes.lane) + i;
    float sum = float(c.thread_elements()[int(i)]);
    for (uint k = 0; k < 8; ++k) {
      const Operands& left = lanes.values[software::matrix_lane(row, k)];
      const Operands& right = lanes.values[software::matrix_lane(k, column)];
      sum = __builtin_fmaf(float(left.a[int(k & 1u)]), float(right.b[int(column & 1u)]), sum);
    }
    d.thread_elements()[int(i)] = T(sum);
  }
}
template <class T, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, SOFTWARE_LINE) {
  simdgroup_matrix<T, 8, 8> zero;
  zero.thread_elements() = vec<T, 2>(T(0.0f));
  simdgroup_multiply_accumulate(d, a, b, zero, line);
}

}  // namespace metal
