// StableHLO's elementwise semantics where MSL's operators differ or are undefined.

// Integer division truncates; by zero it gives all ones, and the lowest value divided by -1 is itself.
template <typename T, typename U>
inline T pjrt_div(T a, T b) {
  const bool by_minus_one = b == T(-1) && T(-1) < T(0);
  const T divisor = (b == T(0) || by_minus_one) ? T(1) : b;
  const T quotient = by_minus_one ? T(U(0) - U(a)) : T(a / divisor);
  return b == T(0) ? T(-1) : quotient;
}

// The remainder has the dividend's sign; by zero it is the dividend.
template <typename T>
inline T pjrt_rem(T a, T b) {
  const bool by_minus_one = b == T(-1) && T(-1) < T(0);
  const T divisor = (b == T(0) || by_minus_one) ? T(1) : b;
  return b == T(0) ? a : T(a % divisor);
}

// Shifts by the width or more (or by a negative amount) leave zeros, or copies of the sign.
template <typename U>
inline U pjrt_shl(U a, U b, U bits) {
  return b < bits ? U(a << (b & (bits - U(1)))) : U(0);
}
template <typename U>
inline U pjrt_shr(U a, U b, U bits) {
  return b < bits ? U(a >> (b & (bits - U(1)))) : U(0);
}
template <typename T, typename U>
inline T pjrt_sar(T a, U b, U bits) {
  return T(a >> (b < bits ? b : U(bits - U(1))));
}

// Apple lists min, max, clz and popcount for at most 32 bits.
template <typename T>
inline T pjrt_larger(T a, T b) {
  return a > b ? a : b;
}
template <typename T>
inline T pjrt_smaller(T a, T b) {
  return a < b ? a : b;
}
inline uint pjrt_clz(uint a) { return clz(a); }
inline uint pjrt_clz(ulong a) {
  const uint high = uint(a >> 32), low = uint(a);
  return high != 0u ? clz(high) : 32u + clz(low);
}
inline uint pjrt_popcount(uint a) { return popcount(a); }
inline uint pjrt_popcount(ulong a) { return popcount(uint(a)) + popcount(uint(a >> 32)); }

// NaN if either is, and -0 below 0; unlike Metal's fmax and fmin.
template <typename T>
inline T pjrt_max(T a, T b) {
  const bool take_b = (b > a) | (b != b) | ((b == a) & !signbit(float(b)));
  return a != a ? a : (take_b ? b : a);
}
template <typename T>
inline T pjrt_min(T a, T b) {
  const bool take_b = (b < a) | (b != b) | ((b == a) & bool(signbit(float(b))));
  return a != a ? a : (take_b ? b : a);
}

// Keeps zeros and NaNs as they are; a denormal that compares as zero is zero.
template <typename T>
inline T pjrt_sign(T a) {
  return a > T(0) ? T(1) : (a < T(0) ? T(-1) : T(a * T(0)));
}

// Wraps around; a negative power of anything but 1 and -1 is 0.
template <typename T, typename U>
inline T pjrt_ipow(T base, T exponent) {
  const bool negative = exponent < T(0);
  U result = U(1);
  U square = U(base);
  U left = negative ? U(0) : U(exponent);
  while (left != U(0)) {
    result = (left & U(1)) ? U(result * square) : result;
    square = U(square * square);
    left = U(left >> U(1));
  }
  const T odd_or_one = (base == T(1) || !(exponent & T(1))) ? T(1) : base;
  const bool unit = base == T(1) || base == T(-1);
  return negative ? (unit ? odd_or_one : T(0)) : T(result);
}

// A float as an integer: truncated, clamped to [low, high] (both exact as F), 0 for NaN.
template <typename T, typename F>
inline T pjrt_to_integer(F x, F low, F high, T lowest, T highest) {
  const F inside = x > low && x < high ? x : F(0);
  const T value = T(inside);
  return x >= high ? highest : (x <= low ? lowest : value);
}

// An order of all floats: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
template <typename I, typename F>
inline I pjrt_total_order(F x) {
  const I bits = as_type<I>(x);
  const I magnitude = I(~(I(1) << I(sizeof(I) * 8 - 1)));
  return bits < I(0) ? I(bits ^ magnitude) : bits;
}

// f32 rounded to nearest even in a format of fewer exponent and mantissa bits, still held as f32.
inline float pjrt_reduce_precision(float x, int exponent_bits, int mantissa_bits) {
  uint bits = as_type<uint>(x);
  const uint sign = bits & 0x80000000u;
  if (x != x) return x;
  if (mantissa_bits < 23) {
    const uint last = 1u << (23 - mantissa_bits);
    const uint bias = (last >> 1) - 1u + ((bits >> (23 - mantissa_bits)) & 1u);
    bits = (bits + bias) & ~(last - 1u);
  }
  if (exponent_bits < 8) {
    const uint bias = (1u << (exponent_bits - 1)) - 1u;
    const uint exponent = (bits >> 23) & 0xffu;
    // Above the largest exponent is infinity, below the smallest normal one is zero.
    bits = exponent > 127u + bias ? (sign | 0x7f800000u) : bits;
    bits = exponent <= 127u - bias ? sign : bits;
  }
  return as_type<float>(bits);
}
