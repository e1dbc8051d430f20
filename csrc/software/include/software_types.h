// Scalar types, as_type and the traits the other headers need.
#pragma once

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
static_assert(sizeof(long) == 8, "MSL's long has 64 bits");
using size_t = decltype(sizeof(0));
using ptrdiff_t = long;
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = uchar;
using uint16_t = ushort;
using uint32_t = uint;
using uint64_t = ulong;

#define INFINITY __builtin_inff()
#define HUGE_VALF __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.40282346638528859812e38f
#define FLT_MAX 3.40282346638528859812e38f
#define FLT_MIN 1.17549435082228750797e-38f
#define FLT_EPSILON 1.19209289550781250e-7f
#define HALF_MAX half(65504.0f)
#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.434294481903251827651f
#define M_LN2_F 0.693147180559945309417f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.785398163397448309616f
#define M_1_PI_F 0.318309886183790671538f
#define M_2_PI_F 0.636619772367581343076f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.707106781186547524401f

// The bits of `x` as a T of the same size.
template <class T, class U>
inline T as_type(U x) {
  static_assert(sizeof(T) == sizeof(U), "as_type: sizes differ");
  return __builtin_bit_cast(T, x);
}

namespace software {

template <bool B, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool B, class T = void>
using enable_if_t = typename enable_if<B, T>::type;

template <class T>
struct remove_cvref {
  using type = T;
};
template <class T>
struct remove_cvref<T&> : remove_cvref<T> {};
template <class T>
struct remove_cvref<const T> : remove_cvref<T> {};

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

template <class T>
constexpr bool is_integer =
    is_same<T, bool> || is_same<T, char> || is_same<T, int8_t> || is_same<T, uchar> || is_same<T, short> ||
    is_same<T, ushort> || is_same<T, int> || is_same<T, uint> || is_same<T, long> || is_same<T, ulong> ||
    is_same<T, long long> || is_same<T, unsigned long long>;

template <class T>
struct make_unsigned {
  using type = T;
};
template <>
struct make_unsigned<char> {
  using type = uchar;
};
template <>
struct make_unsigned<int8_t> {
  using type = uchar;
};
template <>
struct make_unsigned<short> {
  using type = ushort;
};
template <>
struct make_unsigned<int> {
  using type = uint;
};
template <>
struct make_unsigned<long> {
  using type = ulong;
};

}  // namespace software
