// Integer functions, for every integer type: arithmetic on whole words, without instructions or
// branches that would keep a loop from becoming vector code.
#pragma once

namespace software {

template <class T>
using unsigned_t = typename make_unsigned<T>::type;
template <class T>
constexpr bool is_signed = T(-1) < T(0);
template <class T>
constexpr int bit_count = 8 * sizeof(T);
template <class T>
using if_integer = enable_if_t<is_integer<T> && !is_same<T, bool>, T>;
// The type whose product holds T's whole product.
template <int bytes, bool negative>
struct wide_type {
  using type = long;
};
template <>
struct wide_type<8, false> {
  using type = unsigned __int128;
};
template <>
struct wide_type<8, true> {
  using type = __int128;
};
template <>
struct wide_type<4, false> {
  using type = ulong;
};
template <class T>
using wide_t = typename wide_type<sizeof(T), is_signed<T>>::type;

}  // namespace software

namespace metal {

template <class T>
SOFTWARE_INLINE software::if_integer<T> min(T a, T b) {
  return a < b ? a : b;
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> clamp(T x, T lo, T hi) {
  return min(max(x, lo), hi);
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> abs(T x) {
  return x < T(0) ? T(-x) : x;
}
template <class T>
SOFTWARE_INLINE software::enable_if_t<software::is_integer<T>, software::unsigned_t<T>> absdiff(T a, T b) {
  using U = software::unsigned_t<T>;
  return a > b ? U(U(a) - U(b)) : U(U(b) - U(a));
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> addsat(T a, T b) {
  using U = software::unsigned_t<T>;
  const T sum = T(U(a) + U(b));
  if constexpr (software::is_signed<T>) {
    // The greatest value, or the least where `a` is negative.
    const T limit = T((U(~U(0)) >> 1) + U(a < 0));
    return T((a ^ sum) & (b ^ sum)) < 0 ? limit : sum;
  } else {
    return sum < a ? T(~T(0)) : sum;
  }
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> subsat(T a, T b) {
  using U = software::unsigned_t<T>;
  const T difference = T(U(a) - U(b));
  if constexpr (software::is_signed<T>) {
    const T limit = T((U(~U(0)) >> 1) + U(a < 0));
    return T((a ^ b) & (a ^ difference)) < 0 ? limit : difference;
  } else {
    return a < b ? T(0) : difference;
  }
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> mulhi(T a, T b) {
  using W = software::wide_t<T>;
  return T((W(a) * W(b)) >> software::bit_count<T>);
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> mad24(T a, T b, T c) {
  return T(a * b + c);
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> mul24(T a, T b) {
  return T(a * b);
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> rotate(T x, T n) {
  using U = software::unsigned_t<T>;
  constexpr U mask = software::bit_count<T> - 1;
  return T(U(U(x) << (U(n) & mask)) | U(U(x) >> (U(-U(n)) & mask)));
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> popcount(T x) {
  using U = software::unsigned_t<T>;
  constexpr U ones = U(~U(0));
  U n = U(x);
  n = U(n - (n >> 1 & U(ones / 3)));
  n = U((n & U(ones / 5)) + (n >> 2 & U(ones / 5)));
  n = U((n + (n >> 4)) & U(ones / 17));
  // The sum of the bytes, by shifts: 64-bit multiplications are slow in vectors.
  if constexpr (sizeof(T) > 1) n = U(n + (n >> 8));
  if constexpr (sizeof(T) > 2) n = U(n + (n >> 16));
  if constexpr (sizeof(T) > 4) n = U(n + (n >> 32));
  return T(n & U(0x7f));
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> clz(T x) {
  using U = software::unsigned_t<T>;
  U n = U(x);
  n |= U(n >> 1);
  n |= U(n >> 2);
  n |= U(n >> 4);
  if constexpr (sizeof(T) > 1) n |= U(n >> 8);
  if constexpr (sizeof(T) > 2) n |= U(n >> 16);
  if constexpr (sizeof(T) > 4) n |= U(n >> 32);
  return T(popcount(U(~n)));
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> ctz(T x) {
  using U = software::unsigned_t<T>;
  return T(popcount(U(U(~U(x)) & U(U(x) - 1))));
}
template <class T>
SOFTWARE_INLINE software::if_integer<T> reverse_bits(T x) {
  using U = software::unsigned_t<T>;
  constexpr U ones = U(~U(0));
  U n = U(x);
  n = U((n >> 1 & U(ones / 3)) | U(n & U(ones / 3)) << 1);
  n = U((n >> 2 & U(ones / 5)) | U(n & U(ones / 5)) << 2);
  n = U((n >> 4 & U(ones / 17)) | U(n & U(ones / 17)) << 4);
  if constexpr (sizeof(T) > 1) n = U((n >> 8 & U(ones / 257)) | U(n & U(ones / 257)) << 8);
  if constexpr (sizeof(T) > 2) n = U((n >> 16 & U(ones / 65537)) | U(n & U(ones / 65537)) << 16);
  if constexpr (sizeof(T) > 4) n = U(n >> 32 | n << 32);
  return T(n);
}

}  // namespace metal
