// float2, uint3, ... and packed_ vectors: MSL's sizes and alignments, elementwise operators.
#pragma once

namespace metal {

template <class T, int N>
struct vec;

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  constexpr vec(T v) : x(v), y(v) {}
  constexpr vec(T a, T b) : x(a), y(b) {}
  template <class U>
  explicit constexpr vec(vec<U, 2> v) : x(T(v.x)), y(T(v.y)) {}
  T& operator[](int i) { return (&x)[i]; }
  const T& operator[](int i) const { return (&x)[i]; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  constexpr vec(T v) : x(v), y(v), z(v) {}
  constexpr vec(T a, T b, T c) : x(a), y(b), z(c) {}
  constexpr vec(vec<T, 2> ab, T c) : x(ab.x), y(ab.y), z(c) {}
  template <class U>
  explicit constexpr vec(vec<U, 3> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)) {}
  T& operator[](int i) { return (&x)[i]; }
  const T& operator[](int i) const { return (&x)[i]; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  constexpr vec(T v) : x(v), y(v), z(v), w(v) {}
  constexpr vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  constexpr vec(vec<T, 2> ab, vec<T, 2> cd) : x(ab.x), y(ab.y), z(cd.x), w(cd.y) {}
  constexpr vec(vec<T, 3> abc, T d) : x(abc.x), y(abc.y), z(abc.z), w(d) {}
  template <class U>
  explicit constexpr vec(vec<U, 4> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
  T& operator[](int i) { return (&x)[i]; }
  const T& operator[](int i) const { return (&x)[i]; }
};

// A vector without padding or alignment beyond its element's.
template <class T, int N>
struct packed_vec {
  T elements[N];
  packed_vec() = default;
  packed_vec(vec<T, N> v) {
    for (int i = 0; i < N; ++i) elements[i] = v[i];
  }
  operator vec<T, N>() const {
    vec<T, N> v;
    for (int i = 0; i < N; ++i) v[i] = elements[i];
    return v;
  }
  T& operator[](int i) { return elements[i]; }
  const T& operator[](int i) const { return elements[i]; }
};

}  // namespace metal

namespace software {
// A scalar operand's type without deducing from it, so that it converts: float2 * 2.
template <class T>
struct same {
  using type = T;
};
template <class T>
using same_t = typename same<T>::type;
}  // namespace software

namespace metal {

#define SOFTWARE_BINARY(op, R)                                       \
  template <class T, int N>                                          \
  inline vec<R, N> operator op(vec<T, N> a, vec<T, N> b) {           \
    vec<R, N> r;                                                     \
    for (int i = 0; i < N; ++i) r[i] = R(a[i] op b[i]);              \
    return r;                                                        \
  }                                                                  \
  template <class T, int N>                                          \
  inline vec<R, N> operator op(vec<T, N> a, software::same_t<T> b) { \
    return a op vec<T, N>(b);                                        \
  }                                                                  \
  template <class T, int N>                                          \
  inline vec<R, N> operator op(software::same_t<T> a, vec<T, N> b) { \
    return vec<T, N>(a) op b;                                        \
  }
#define SOFTWARE_ARITHMETIC(op)                         \
  SOFTWARE_BINARY(op, T)                                \
  template <class T, int N, class B>                    \
  inline vec<T, N>& operator op##=(vec<T, N>& a, B b) { \
    return a = a op b;                                  \
  }
SOFTWARE_ARITHMETIC(+)
SOFTWARE_ARITHMETIC(-)
SOFTWARE_ARITHMETIC(*)
SOFTWARE_ARITHMETIC(/)
SOFTWARE_ARITHMETIC(%)
SOFTWARE_ARITHMETIC(&)
SOFTWARE_ARITHMETIC(|)
SOFTWARE_ARITHMETIC(^)
SOFTWARE_ARITHMETIC(<<)
SOFTWARE_ARITHMETIC(>>)
SOFTWARE_BINARY(==, bool)
SOFTWARE_BINARY(!=, bool)
SOFTWARE_BINARY(<, bool)
SOFTWARE_BINARY(>, bool)
SOFTWARE_BINARY(<=, bool)
SOFTWARE_BINARY(>=, bool)
SOFTWARE_BINARY(&&, bool)
SOFTWARE_BINARY(||, bool)
#undef SOFTWARE_ARITHMETIC
#undef SOFTWARE_BINARY

#define SOFTWARE_UNARY(op)                         \
  template <class T, int N>                        \
  inline vec<T, N> operator op(vec<T, N> a) {      \
    for (int i = 0; i < N; ++i) a[i] = T(op a[i]); \
    return a;                                      \
  }
SOFTWARE_UNARY(+)
SOFTWARE_UNARY(-)
SOFTWARE_UNARY(~)
SOFTWARE_UNARY(!)
#undef SOFTWARE_UNARY

}  // namespace metal

#define SOFTWARE_VECTORS(T)                      \
  using T##2 = metal::vec<T, 2>;                 \
  using T##3 = metal::vec<T, 3>;                 \
  using T##4 = metal::vec<T, 4>;                 \
  using packed_##T##2 = metal::packed_vec<T, 2>; \
  using packed_##T##3 = metal::packed_vec<T, 3>; \
  using packed_##T##4 = metal::packed_vec<T, 4>;
SOFTWARE_VECTORS(bool)
SOFTWARE_VECTORS(char)
SOFTWARE_VECTORS(uchar)
SOFTWARE_VECTORS(short)
SOFTWARE_VECTORS(ushort)
SOFTWARE_VECTORS(int)
SOFTWARE_VECTORS(uint)
SOFTWARE_VECTORS(long)
SOFTWARE_VECTORS(ulong)
SOFTWARE_VECTORS(half)
SOFTWARE_VECTORS(bfloat)
SOFTWARE_VECTORS(float)
#undef SOFTWARE_VECTORS
