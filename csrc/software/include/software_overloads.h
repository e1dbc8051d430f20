// half, bfloat and vector overloads of the functions, and the namespaces fast and precise.
#pragma once

namespace metal {

// `on` ? b : a, whole or by element.
template <class T>
SOFTWARE_INLINE T select(T a, T b, bool on) {
  return on ? b : a;
}
template <class T, int N>
SOFTWARE_INLINE vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> on) {
  for (int i = 0; i < N; ++i) a[i] = on[i] ? b[i] : a[i];
  return a;
}
template <int N>
SOFTWARE_INLINE bool all(vec<bool, N> v) {
  bool r = true;
  for (int i = 0; i < N; ++i) r &= v[i];
  return r;
}
template <int N>
SOFTWARE_INLINE bool any(vec<bool, N> v) {
  bool r = false;
  for (int i = 0; i < N; ++i) r |= v[i];
  return r;
}
template <class T, int N>
SOFTWARE_INLINE T dot(vec<T, N> a, vec<T, N> b) {
  T r = a[0] * b[0];
  for (int i = 1; i < N; ++i) r = r + a[i] * b[i];
  return r;
}

#define SOFTWARE_SMALL_1(name)                                       \
  SOFTWARE_INLINE half name(half x) { return half(name(float(x))); } \
  SOFTWARE_INLINE bfloat name(bfloat x) { return bfloat(name(float(x))); }
#define SOFTWARE_VECTOR_1(name)                    \
  template <class T, int N>                        \
  SOFTWARE_INLINE vec<T, N> name(vec<T, N> x) {    \
    for (int i = 0; i < N; ++i) x[i] = name(x[i]); \
    return x;                                      \
  }
#define SOFTWARE_1(name) SOFTWARE_SMALL_1(name) SOFTWARE_VECTOR_1(name)
SOFTWARE_1(abs)
SOFTWARE_1(fabs)
SOFTWARE_1(floor)
SOFTWARE_1(ceil)
SOFTWARE_1(trunc)
SOFTWARE_1(rint)
SOFTWARE_1(round)
SOFTWARE_1(fract)
SOFTWARE_1(saturate)
SOFTWARE_1(sign)
SOFTWARE_1(sqrt)
SOFTWARE_1(rsqrt)
SOFTWARE_1(exp)
SOFTWARE_1(exp2)
SOFTWARE_1(exp10)
SOFTWARE_1(log)
SOFTWARE_1(log2)
SOFTWARE_1(log10)
SOFTWARE_1(sin)
SOFTWARE_1(cos)
SOFTWARE_1(tan)
SOFTWARE_1(asin)
SOFTWARE_1(acos)
SOFTWARE_1(atan)
SOFTWARE_1(sinh)
SOFTWARE_1(cosh)
SOFTWARE_1(tanh)
SOFTWARE_1(asinh)
SOFTWARE_1(acosh)
SOFTWARE_1(atanh)
SOFTWARE_VECTOR_1(popcount)
SOFTWARE_VECTOR_1(clz)
SOFTWARE_VECTOR_1(ctz)
SOFTWARE_VECTOR_1(reverse_bits)

#define SOFTWARE_2(name)                                                                       \
  SOFTWARE_INLINE half name(half x, half y) { return half(name(float(x), float(y))); }         \
  SOFTWARE_INLINE bfloat name(bfloat x, bfloat y) { return bfloat(name(float(x), float(y))); } \
  SOFTWARE_VECTOR_2(name)
#define SOFTWARE_VECTOR_2(name)                              \
  template <class T, int N>                                  \
  SOFTWARE_INLINE vec<T, N> name(vec<T, N> x, vec<T, N> y) { \
    for (int i = 0; i < N; ++i) x[i] = name(x[i], y[i]);     \
    return x;                                                \
  }
SOFTWARE_2(fmin)
SOFTWARE_2(fmax)
SOFTWARE_2(min)
SOFTWARE_2(max)
SOFTWARE_2(fmod)
SOFTWARE_2(fdim)
SOFTWARE_2(copysign)
SOFTWARE_2(pow)
SOFTWARE_2(powr)
SOFTWARE_2(atan2)
SOFTWARE_2(step)
SOFTWARE_VECTOR_2(addsat)
SOFTWARE_VECTOR_2(subsat)
SOFTWARE_VECTOR_2(mulhi)
SOFTWARE_VECTOR_2(rotate)
SOFTWARE_VECTOR_2(nextafter)
template <class T, int N>
SOFTWARE_INLINE vec<software::unsigned_t<T>, N> absdiff(vec<T, N> x, vec<T, N> y) {
  vec<software::unsigned_t<T>, N> r;
  for (int i = 0; i < N; ++i) r[i] = absdiff(x[i], y[i]);
  return r;
}

// The next 16-bit pattern towards y.
template <class T>
SOFTWARE_INLINE software::enable_if_t<software::is_small_float<T>, T> nextafter(T x, T y) {
  const float a = x;
  const float b = y;
  T result = x;
  result.bits = ushort((a < b) == (a > 0.0f) ? x.bits + 1 : x.bits - 1);
  result.bits = a == 0.0f ? ushort((y.bits & 0x8000) | 1) : result.bits;
  result.bits = a == b ? y.bits : result.bits;
  result.bits = a != a ? x.bits : result.bits;
  result.bits = b != b ? y.bits : result.bits;
  return result;
}

#define SOFTWARE_3(name)                                                                                           \
  SOFTWARE_INLINE half name(half x, half y, half z) { return half(name(float(x), float(y), float(z))); }           \
  SOFTWARE_INLINE bfloat name(bfloat x, bfloat y, bfloat z) { return bfloat(name(float(x), float(y), float(z))); } \
  template <class T, int N>                                                                                        \
  SOFTWARE_INLINE vec<T, N> name(vec<T, N> x, vec<T, N> y, vec<T, N> z) {                                          \
    for (int i = 0; i < N; ++i) x[i] = name(x[i], y[i], z[i]);                                                     \
    return x;                                                                                                      \
  }
SOFTWARE_3(fma)
SOFTWARE_3(clamp)
SOFTWARE_3(mix)

#define SOFTWARE_TEST(name)                                      \
  SOFTWARE_INLINE bool name(half x) { return name(float(x)); }   \
  SOFTWARE_INLINE bool name(bfloat x) { return name(float(x)); } \
  template <class T, int N>                                      \
  SOFTWARE_INLINE vec<bool, N> name(vec<T, N> x) {               \
    vec<bool, N> r;                                              \
    for (int i = 0; i < N; ++i) r[i] = name(x[i]);               \
    return r;                                                    \
  }
SOFTWARE_TEST(isnan)
SOFTWARE_TEST(isinf)
SOFTWARE_TEST(isfinite)
SOFTWARE_TEST(signbit)
// Not through float, where a half's denormals are normal.
SOFTWARE_INLINE bool isnormal(half x) { return (x.bits & 0x7fffu) - 0x400u < 0x7800u; }
SOFTWARE_INLINE bool isnormal(bfloat x) { return isnormal(float(x)); }

SOFTWARE_INLINE half ldexp(half x, int n) { return half(ldexp(float(x), n)); }
SOFTWARE_INLINE bfloat ldexp(bfloat x, int n) { return bfloat(ldexp(float(x), n)); }
SOFTWARE_INLINE half frexp(half x, int& n) { return half(frexp(float(x), n)); }
SOFTWARE_INLINE bfloat frexp(bfloat x, int& n) { return bfloat(frexp(float(x), n)); }

#undef SOFTWARE_1
#undef SOFTWARE_2
#undef SOFTWARE_3
#undef SOFTWARE_SMALL_1
#undef SOFTWARE_TEST
#undef SOFTWARE_VECTOR_1
#undef SOFTWARE_VECTOR_2

// Metal's two precisions of the same functions: one here.
namespace fast = metal;
namespace precise = metal;

}  // namespace metal
