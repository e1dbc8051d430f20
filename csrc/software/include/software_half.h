// half and bfloat: 16-bit storage, arithmetic in float, rounded to nearest even after every operation.
// Conversions are branch-free integer arithmetic, so that loops over them become vector code.
#pragma once

namespace software {

// clang turns _Float16 conversions into vector instructions; g++ (12) leaves such loops scalar.
#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
inline float half_to_float(ushort bits) { return float(__builtin_bit_cast(_Float16, bits)); }
inline ushort float_to_half(float x) { return __builtin_bit_cast(ushort, _Float16(x)); }
#else
inline float half_to_float(ushort bits) {
  // The exponent moves by 112; denormals are integers times 2^-24, for kernels run with a float's denormals taken for
  // zero; infinities and NaNs get the exponent they miss.
  const uint magnitude = uint(bits & 0x7fff) << 13;
  const uint small = __builtin_bit_cast(uint, float(int(magnitude)) * 0x1p-37f);
  uint result = magnitude < 0x00800000u ? small : magnitude + (112u << 23);
  result = magnitude >= 0x0f800000u ? 0x7f800000u | magnitude | (magnitude > 0x0f800000u ? 0x400000u : 0u) : result;
  return __builtin_bit_cast(float, result | uint(bits & 0x8000) << 16);
}
inline ushort float_to_half(float x) {
  const uint bits = __builtin_bit_cast(uint, x);
  const uint magnitude = bits & 0x7fffffffu;
  // Normal results: add just under half of the last place (all of it if odd), then drop 13 bits.
  const uint normal = (magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13;
  // Below 2^-14: an addition that puts the result's last place at the sum's last place.
  const float aligned = __builtin_bit_cast(float, magnitude) + 0.5f;
  const uint denormal = __builtin_bit_cast(uint, aligned) - 0x3f000000u;
  const uint large = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : 0x7c00u;
  uint result = magnitude < 0x38800000u ? denormal : normal;
  result = magnitude >= 0x477ff000u ? large : result;
  return ushort(result | (bits >> 16 & 0x8000u));
}
#endif

inline float bfloat_to_float(ushort bits) { return __builtin_bit_cast(float, uint(bits) << 16); }
inline ushort float_to_bfloat(float x) {
  const uint bits = __builtin_bit_cast(uint, x);
  const uint rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  const uint quiet = bits >> 16 | 0x40u;
  return ushort(x != x ? quiet : rounded);
}

}  // namespace software

struct half {
  ushort bits;
  half() = default;
  half(float x) : bits(software::float_to_half(x)) {}
  half(double x) : half(float(x)) {}
  template <class T, class = software::enable_if_t<software::is_integer<T>>>
  half(T x) : half(float(x)) {}
  operator float() const { return software::half_to_float(bits); }
};

// As Metal's, it is not made of other types without being asked for.
struct bfloat {
  ushort bits;
  bfloat() = default;
  explicit bfloat(float x) : bits(software::float_to_bfloat(x)) {}
  explicit bfloat(double x) : bfloat(float(x)) {}
  explicit bfloat(half x) : bfloat(float(x)) {}
  template <class T, class = software::enable_if_t<software::is_integer<T>>>
  explicit bfloat(T x) : bfloat(float(x)) {}
  operator float() const { return software::bfloat_to_float(bits); }
};

namespace software {

template <class T>
constexpr bool is_small_float = is_same<T, half> || is_same<T, bfloat>;

// The result of half op half and half op integer: half. With float, the built-in operators give float.
template <class A, class B, bool a = is_small_float<A>, bool b = is_small_float<B>>
struct small_result {};
template <class A>
struct small_result<A, A, true, true> {
  using type = A;
};
template <class A, class B>
struct small_result<A, B, true, false> : enable_if<is_integer<B>, A> {};
template <class A, class B>
struct small_result<A, B, false, true> : enable_if<is_integer<A>, B> {};

}  // namespace software

#define SOFTWARE_OPERATOR(op)                                                             \
  template <class A, class B, class R = typename software::small_result<A, B>::type>      \
  inline R operator op(A a, B b) {                                                        \
    return R(float(a) op float(b));                                                       \
  }                                                                                       \
  template <class A, class B, class = software::enable_if_t<software::is_small_float<A>>> \
  inline A& operator op##=(A & a, B b) {                                                  \
    return a = A(float(a) op float(b));                                                   \
  }
SOFTWARE_OPERATOR(+)
SOFTWARE_OPERATOR(-)
SOFTWARE_OPERATOR(*)
SOFTWARE_OPERATOR(/)
#undef SOFTWARE_OPERATOR

#define SOFTWARE_COMPARISON(op)                                                    \
  template <class A, class B, class = typename software::small_result<A, B>::type> \
  inline bool operator op(A a, B b) {                                              \
    return float(a) op float(b);                                                   \
  }
SOFTWARE_COMPARISON(==)
SOFTWARE_COMPARISON(!=)
SOFTWARE_COMPARISON(<)
SOFTWARE_COMPARISON(>)
SOFTWARE_COMPARISON(<=)
SOFTWARE_COMPARISON(>=)
#undef SOFTWARE_COMPARISON

template <class A, class = software::enable_if_t<software::is_small_float<A>>>
inline A operator-(A a) {
  a.bits ^= 0x8000;
  return a;
}
template <class A, class = software::enable_if_t<software::is_small_float<A>>>
inline A operator+(A a) {
  return a;
}

inline half operator""h(long double x) { return half(float(x)); }
inline half operator""h(unsigned long long x) { return half(float(x)); }
#ifndef __clang__  // which reads bf as part of the number
inline bfloat operator"" bf(long double x) { return bfloat(float(x)); }
#endif
