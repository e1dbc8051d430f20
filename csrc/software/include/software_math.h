// Floating-point functions for float: branch-free, without libm, so that a loop over them becomes
// vector code. Most compute in double, where the float's range and accuracy cost no care, and round
// once; the coefficients come from tests/software/fit_math.py and the errors are asserted by
// test_math.py.
#pragma once

#define SOFTWARE_INLINE inline __attribute__((always_inline))
// A function out of line: each copy of a long one costs the compiler some 25 ms, a call next to nothing. Loops over it
// are vector code all the same, since the compiler makes a clone for its vectors; clang makes none.
#if defined(__clang__) || defined(SOFTWARE_STRICT)
#define SOFTWARE_FUNCTION SOFTWARE_INLINE
#else
#define SOFTWARE_FUNCTION static __attribute__((noinline, const, simd("notinbranch")))
#endif

namespace software {

SOFTWARE_INLINE ulong bits_of(double x) { return __builtin_bit_cast(ulong, x); }
SOFTWARE_INLINE uint bits_of(float x) { return __builtin_bit_cast(uint, x); }
SOFTWARE_INLINE double double_of(ulong x) { return __builtin_bit_cast(double, x); }
SOFTWARE_INLINE float float_of(uint x) { return __builtin_bit_cast(float, x); }

// a * b + c where one rounding or two both serve: one where that is a single instruction. Compilers contract nothing by
// themselves (compiler.cc), so that a function's value does not depend on what it is inlined into.
#if defined(__FMA__) || defined(__aarch64__)
SOFTWARE_INLINE float madd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SOFTWARE_INLINE double madd(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
SOFTWARE_INLINE float madd(float a, float b, float c) { return a * b + c; }
SOFTWARE_INLINE double madd(double a, double b, double c) { return a * b + c; }
#endif

// 2^n for integral n in [-1022, 1023], given as double(n) + 0x1.8p52: n is in the sum's low bits.
SOFTWARE_INLINE double power_of_two(double shifted) { return double_of((bits_of(shifted) << 52) + (1023ul << 52)); }

// 2^z as scale + scale * tail, where |z| <= 1000; tail is in [-0.3, 0.42] and exact to 2^-43
// relative.
struct exp2_parts {
  double scale, tail;
};
SOFTWARE_INLINE exp2_parts split_exp2(double z) {
  const double shifted = z + 0x1.8p52;
  const double r = z - (shifted - 0x1.8p52);
  double p = 1.020875215996963156e-7;
  p = madd(p, r, 1.325530652186495162e-6);
  p = madd(p, r, 0.00001525265869813068296);
  p = madd(p, r, 0.0001540345554472542793);
  p = madd(p, r, 0.001333355822301265378);
  p = madd(p, r, 0.009618129159725268813);
  p = madd(p, r, 0.05550410866454063962);
  p = madd(p, r, 0.2402265069581217372);
  p = madd(p, r, 0.6931471805599470259);
  return {power_of_two(shifted), p * r};
}
// Limits that still overflow or underflow a float. A NaN stays.
SOFTWARE_INLINE double clamp_exponent(double z) {
  z = z > 400.0 ? 400.0 : z;
  return z < -400.0 ? -400.0 : z;
}
SOFTWARE_INLINE double exp2_wide(double z) {
  const exp2_parts e = split_exp2(clamp_exponent(z));
  return madd(e.scale, e.tail, e.scale);
}
SOFTWARE_INLINE double expm1_wide(double x) {
  const exp2_parts e = split_exp2(clamp_exponent(x * 1.4426950408889634));
  return madd(e.scale, e.tail, e.scale - 1.0);
}

// exp in float: exp(x) = 2^n (1 + tail), tail in [-0.3, 0.42], for |x| < 2^21.
struct exp_parts {
  int n;
  float tail;
};
SOFTWARE_INLINE float exp_tail(float r) {
  float p = 0.001381459648f;
  p = madd(p, r, 0.008368844003f);
  p = madd(p, r, 0.04166839547f);
  p = madd(p, r, 0.166665196f);
  p = madd(p, r, 0.499999934f);
  return madd(r * r, p, r);
}
SOFTWARE_INLINE exp_parts split_exp(float x) {
  const float shifted = madd(x, 1.44269504f, 0x1.8p23f);
  const float n = shifted - 0x1.8p23f;
  // ln(2) in two parts, the first short enough that n times it is exact.
  const float r = madd(n, -0x1.7f7d1cp-20f, madd(n, -0x1.62e400p-1f, x));
  return {int(bits_of(shifted)) - 0x4b400000, exp_tail(r)};
}
// (1 + tail) * 2^n for n in [-252, 254]: in two steps, for the least and the greatest n.
SOFTWARE_INLINE float scale_exp(exp_parts e) {
  const int half = e.n >> 1;
  const float first = float_of(uint(half + 127) << 23);
  const float second = float_of(uint(e.n - half + 127) << 23);
  return madd(e.tail, first, first) * second;
}

// atanh(s) for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1).
SOFTWARE_INLINE double atanh_core(double s) {
  const double z = s * s;
  double p = 0.08410653380238385746;
  p = madd(p, z, 0.09061762389385134325);
  p = madd(p, z, 0.1111168756291543927);
  p = madd(p, z, 0.1428570854234288661);
  p = madd(p, z, 0.2000000002626357319);
  p = madd(p, z, 0.333333333332933799);
  return madd(s * z, p, s);
}
// x = m * 2^e with m in [sqrt(1/2), sqrt(2)), for normal positive x.
struct log_parts {
  double m, e;
};
SOFTWARE_INLINE log_parts split_log(double x) {
  // Adding the distance from sqrt(1/2) to 1 moves the exponent where the mantissa reaches sqrt(2).
  const ulong shifted = bits_of(x) + (0x3ff0000000000000ul - 0x3fe6a09e667f3bcdul);
  const double m = double_of((shifted & 0x000ffffffffffffful) + 0x3fe6a09e667f3bcdul);
  // The biased exponent as a double: into the mantissa of 2^52.
  const double e = double_of((shifted >> 52) | 0x4330000000000000ul) - (0x1p52 + 1023.0);
  return {m, e};
}
// ln(x) without its special cases.
SOFTWARE_INLINE double log_wide(double x) {
  const log_parts p = split_log(x);
  return madd(p.e, 0.69314718055994531, 2.0 * atanh_core((p.m - 1.0) / (p.m + 1.0)));
}
// ln(1 + x) without special cases: x itself, not the rounded 1 + x, enters where it matters.
SOFTWARE_INLINE double log1p_wide(double x) {
  const log_parts p = split_log(1.0 + x);
  const double f = p.e == 0.0 ? x : p.m - 1.0;
  return madd(p.e, 0.69314718055994531, 2.0 * atanh_core(f / (2.0 + f)));
}
// `value`, the logarithm of x computed without special cases, with them.
SOFTWARE_INLINE float finish_log(float x, float value) {
  value = x == __builtin_inff() ? x : value;
  value = x == 0.0f ? -__builtin_inff() : value;
  return x >= 0.0f ? value : __builtin_nanf("");
}

// sin and cos of |x| less `quadrant` quarter turns; only the quadrant's low two bits mean anything.
struct angle {
  double sin, cos;
  ulong quadrant;
};
SOFTWARE_INLINE angle reduce_angle(float x) {
  // Turns: |x| / (2 pi) mod 1. 1 / (2 pi) is split into parts of at most 29 bits, whose product
  // with a float is exact, and a tail. From 2^76 on, |x| * 2^-53 is an integer, and the parts are
  // those of 2^53 / (2 pi) mod 1.
  const double positive = __builtin_fabsf(x);
  const bool big = positive >= 0x1p76;
  const double a = positive * (big ? 0x1p-53 : 1.0);
  const double t0 = a * (big ? 0x1.529fc27p-1 : 0x1.45f306cp-3);
  const double t1 = a * (big ? 0x1.5f47d4cp-31 : 0x1.c9c882ap-31);
  const double t2 = a * (big ? 0x1.377036dp-59 : 0x1.4fe13a8p-61);
  const double t3 = a * (big ? 0x1.14acc9e21c821p-88 : 0x1.f47d4d377036ep-88);
  const double f0 = t0 - __builtin_rint(t0);
  const double f1 = t1 - __builtin_rint(t1);
  // 4 turns' quadrant, rounded to nearest; subtracted from the first part, where that is exact.
  const double shifted = madd(f0 + f1 + t2, 4.0, 0x1.8p52);
  const double turns = ((madd(shifted - 0x1.8p52, -0.25, f0) + f1) + t2) + t3;
  const double r = turns * 6.283185307179586477;
  const double z = r * r;
  double s = 2.718237271937293795e-6;
  s = madd(s, z, -0.0001983932713955635936);
  s = madd(s, z, 0.008333329362312031082);
  s = madd(s, z, -0.1666666664142726562);
  double c = -2.720955225384616185e-7;
  c = madd(c, z, 0.00002479951182064754336);
  c = madd(c, z, -0.001388888372284204501);
  c = madd(c, z, 0.04166666662247951969);
  return {madd(r * z, s, r), madd(z * z, c, madd(z, -0.5, 1.0)), bits_of(shifted)};
}

// asin(t) for |t| <= 1/2.
SOFTWARE_INLINE double asin_core(double t) {
  const double z = t * t;
  double p = 0.03762997952826579454;
  p = madd(p, z, 0.0143585778175748126);
  p = madd(p, z, 0.03182866221348427957);
  p = madd(p, z, 0.04451447231390692834);
  p = madd(p, z, 0.075005170015904825);
  p = madd(p, z, 0.1666665977690044771);
  return madd(t * z, p, t);
}
// atan(t) for 0 <= t <= 1.
SOFTWARE_INLINE double atan_core(double t) {
  const double z = t * t;
  double p = -0.001827210194474278216;
  p = madd(p, z, 0.01106443293374650816);
  p = madd(p, z, -0.03145569776848428233);
  p = madd(p, z, 0.05823456223893833124);
  p = madd(p, z, -0.08419461186743403844);
  p = madd(p, z, 0.1095757761226053887);
  p = madd(p, z, -0.1426524586134026313);
  p = madd(p, z, 0.1999863869510076061);
  p = madd(p, z, -0.3333330187062108751);
  return madd(t * z, p, t);
}

}  // namespace software

namespace metal {

SOFTWARE_INLINE float fabs(float x) { return __builtin_fabsf(x); }
SOFTWARE_INLINE float abs(float x) { return __builtin_fabsf(x); }
SOFTWARE_INLINE float copysign(float x, float y) { return __builtin_copysignf(x, y); }
SOFTWARE_INLINE float floor(float x) { return __builtin_floorf(x); }
SOFTWARE_INLINE float ceil(float x) { return __builtin_ceilf(x); }
SOFTWARE_INLINE float trunc(float x) { return __builtin_truncf(x); }
SOFTWARE_INLINE float rint(float x) { return __builtin_rintf(x); }
SOFTWARE_INLINE float round(float x) {
  const float t = trunc(x);
  return copysign(t + (fabs(x - t) >= 0.5f ? copysign(1.0f, x) : 0.0f), x);
}
SOFTWARE_INLINE float fract(float x) {
  const float f = x - floor(x);
  return f >= 1.0f ? 0x1.fffffep-1f : f;
}
SOFTWARE_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SOFTWARE_INLINE float sqrt(float x) { return __builtin_sqrtf(x); }
SOFTWARE_INLINE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }

SOFTWARE_INLINE bool isnan(float x) { return x != x; }
SOFTWARE_INLINE bool isinf(float x) { return fabs(x) == __builtin_inff(); }
SOFTWARE_INLINE bool isfinite(float x) { return fabs(x) < __builtin_inff(); }
SOFTWARE_INLINE bool isnormal(float x) {
  const float a = fabs(x);
  return (a >= FLT_MIN) & (a < __builtin_inff());
}
SOFTWARE_INLINE bool signbit(float x) { return software::bits_of(x) >> 31; }

SOFTWARE_INLINE float fmin(float a, float b) {
  const float least = a < b ? a : b;
  return b != b ? a : least;
}
SOFTWARE_INLINE float fmax(float a, float b) {
  const float greatest = a > b ? a : b;
  return b != b ? a : greatest;
}
SOFTWARE_INLINE float min(float a, float b) { return fmin(a, b); }
SOFTWARE_INLINE float max(float a, float b) { return fmax(a, b); }
SOFTWARE_INLINE float clamp(float x, float lo, float hi) { return fmin(fmax(x, lo), hi); }
SOFTWARE_INLINE float saturate(float x) { return clamp(x, 0.0f, 1.0f); }
SOFTWARE_INLINE float fdim(float a, float b) {
  const float d = a - b;
  return a <= b ? 0.0f : d;
}
SOFTWARE_INLINE float sign(float x) {
  const float s = x < 0.0f ? -1.0f : x;
  const float t = x > 0.0f ? 1.0f : s;
  return x != x ? 0.0f : t;
}
SOFTWARE_INLINE float mix(float a, float b, float t) { return a + (b - a) * t; }
SOFTWARE_INLINE float step(float edge, float x) { return x < edge ? 0.0f : 1.0f; }

// Exact for every quotient: six divisions of at most 50 bits each reach float's 277.
SOFTWARE_INLINE float fmod(float x, float y) {
  const double b = fabs(y);
  double r = fabs(x);
  double unit = b * 0x1p250;
#pragma GCC unroll 6
  for (int i = 0; i < 6; ++i) {
    r = __builtin_fma(-__builtin_trunc(r / unit), unit, r);
    // The rounded quotient may be one too large, never too small.
    r = r < 0.0 ? r + unit : r;
    unit *= 0x1p-50;
  }
  float result = copysign(float(r), x);
  result = isinf(y) ? x : result;
  const bool defined = isfinite(x) && !isnan(y) && y != 0.0f;
  return defined ? result : __builtin_nanf("");
}

// One rounding at the end: the product is exact in double.
SOFTWARE_INLINE float ldexp(float x, int n) {
  n = n > 300 ? 300 : n;
  n = n < -300 ? -300 : n;
  return float(double(x) * software::double_of(ulong(n + 1023) << 52));
}
SOFTWARE_INLINE float frexp(float x, int& exponent) {
  const double wide = x;
  const ulong bits = software::bits_of(wide);
  const bool special = (x == 0.0f) | !isfinite(x);
  exponent = special ? 0 : int(bits >> 52 & 0x7ff) - 1022;
  const double mantissa = software::double_of((bits & 0x800ffffffffffffful) | 0x3fe0000000000000ul);
  return special ? x : float(mantissa);
}
SOFTWARE_INLINE float nextafter(float x, float y) {
  const uint bits = software::bits_of(x);
  // Away from zero is one bit pattern up.
  const bool away = (x < y) == (x > 0.0f);
  const float moved = software::float_of(away ? bits + 1u : bits - 1u);
  const float from_zero = software::float_of((software::bits_of(y) & 0x80000000u) | 1u);
  float result = x == 0.0f ? from_zero : moved;
  result = x == y ? y : result;
  const bool ordered = !isnan(x) && !isnan(y);
  return ordered ? result : x + y;
}
SOFTWARE_INLINE float modf(float x, float& whole) {
  whole = trunc(x);
  return copysign(isinf(x) ? 0.0f : x - whole, x);
}

SOFTWARE_INLINE float exp(float x) {
  // Limits that still overflow and underflow. A NaN stays.
  float y = x > 90.0f ? 90.0f : x;
  y = y < -110.0f ? -110.0f : y;
  return software::scale_exp(software::split_exp(y));
}
SOFTWARE_INLINE float exp2(float x) {
  float y = x > 130.0f ? 130.0f : x;
  y = y < -160.0f ? -160.0f : y;
  const float n = rint(y);
  return software::scale_exp({int(n), software::exp_tail((y - n) * 0.6931471806f)});
}
SOFTWARE_FUNCTION float exp10(float x) { return float(software::exp2_wide(x * 3.3219280948873623)); }

SOFTWARE_INLINE float log(float x) {
  // x = m * 2^k with m in [sqrt(1/2), sqrt(2)); denormals are made normal.
  const bool tiny = x < FLT_MIN;
  const uint bits = software::bits_of(tiny ? x * 0x1p24f : x);
  const int k = (int(bits + 0x4afb0du) >> 23) - 127;
  const float f = software::float_of(bits - (uint(k) << 23)) - 1.0f;
  const float e = float(tiny ? k - 24 : k);
  float p = 0.06915545301f;
  p = software::madd(p, f, -0.1178983887f);
  p = software::madd(p, f, 0.1187290847f);
  p = software::madd(p, f, -0.1238433846f);
  p = software::madd(p, f, 0.142186669f);
  p = software::madd(p, f, -0.1666925174f);
  p = software::madd(p, f, 0.2000222615f);
  p = software::madd(p, f, -0.2499998658f);
  p = software::madd(p, f, 0.3333331045f);
  const float square = f * f;
  const float low = software::madd(e, 0x1.7f7d1cp-20f, f * square * p);
  return software::finish_log(x, software::madd(e, 0x1.62e400p-1f, software::madd(square, -0.5f, low) + f));
}
SOFTWARE_FUNCTION float log2(float x) {
  return software::finish_log(x, float(software::log_wide(x) * 1.4426950408889634));
}
SOFTWARE_FUNCTION float log10(float x) {
  return software::finish_log(x, float(software::log_wide(x) * 0.43429448190325183));
}

SOFTWARE_FUNCTION float sin(float x) {
  const software::angle a = software::reduce_angle(x);
  const float value = float(a.quadrant & 1 ? a.cos : a.sin);
  const uint flip = uint(a.quadrant & 2) << 30;
  const float sine = software::float_of(software::bits_of(value) ^ flip ^ (software::bits_of(x) & 0x80000000u));
  return isfinite(x) ? sine : __builtin_nanf("");
}
SOFTWARE_FUNCTION float cos(float x) {
  const software::angle a = software::reduce_angle(x);
  const float value = float(a.quadrant & 1 ? a.sin : a.cos);
  const uint flip = uint((a.quadrant + 1) & 2) << 30;
  const float cosine = software::float_of(software::bits_of(value) ^ flip);
  return isfinite(x) ? cosine : __builtin_nanf("");
}
SOFTWARE_INLINE float sincos(float x, float& cosine) {
  cosine = cos(x);
  return sin(x);
}
SOFTWARE_FUNCTION float tan(float x) {
  const software::angle a = software::reduce_angle(x);
  const bool odd = a.quadrant & 1;
  const double ratio = (odd ? -a.cos : a.sin) / (odd ? a.sin : a.cos);
  const float tangent = software::float_of(software::bits_of(float(ratio)) ^ (software::bits_of(x) & 0x80000000u));
  return isfinite(x) ? tangent : __builtin_nanf("");
}
SOFTWARE_FUNCTION float asin(float x) {
  const double a = fabs(x);
  const bool outer = a > 0.5;
  const double t = outer ? __builtin_sqrt(software::madd(a, -0.5, 0.5)) : a;
  const double inner = software::asin_core(t);
  return copysign(float(outer ? software::madd(inner, -2.0, 1.5707963267948966) : inner), x);
}
SOFTWARE_FUNCTION float acos(float x) {
  const double a = fabs(x);
  const bool outer = a > 0.5;
  const double t = outer ? __builtin_sqrt(software::madd(a, -0.5, 0.5)) : a;
  const double inner = software::asin_core(t);
  const double high = outer ? 2.0 * inner : 1.5707963267948966 - inner;
  return float(x < 0.0f ? 3.1415926535897932 - high : high);
}
SOFTWARE_FUNCTION float atan(float x) {
  const double a = fabs(x);
  const bool outer = a > 1.0;
  const double inner = software::atan_core(outer ? 1.0 / a : a);
  return copysign(float(outer ? 1.5707963267948966 - inner : inner), x);
}
SOFTWARE_FUNCTION float atan2(float y, float x) {
  const double a = fabs(x);
  const double b = fabs(y);
  const bool steep = b > a;
  const double large = steep ? b : a;
  const double small = steep ? a : b;
  double t = small / large;
  t = large == 0.0 ? 0.0 : t;
  t = small == __builtin_inf() ? 1.0 : t;
  double r = software::atan_core(t);
  r = steep ? 1.5707963267948966 - r : r;
  r = signbit(x) ? 3.1415926535897932 - r : r;
  const bool ordered = !isnan(x) && !isnan(y);
  return ordered ? copysign(float(r), y) : x + y;
}

SOFTWARE_FUNCTION float sinh(float x) {
  const double e = software::expm1_wide(fabs(x));
  return copysign(float(0.5 * (e + e / (e + 1.0))), x);
}
SOFTWARE_FUNCTION float cosh(float x) {
  const double e = software::exp2_wide(fabs(x) * 1.4426950408889634);
  return float(0.5 * (e + 1.0 / e));
}
SOFTWARE_INLINE float tanh(float x) {
  // Small: an odd polynomial. Large: 1 - 2 / (exp(2x) + 1), which is 1 from 9.1 on.
  const float a = fabs(x);
  const float z = a * a;
  float p = -0.005905845807f;
  p = software::madd(p, z, 0.02080536475f);
  p = software::madd(p, z, -0.05378667756f);
  p = software::madd(p, z, 0.1333195817f);
  p = software::madd(p, z, -0.3333329927f);
  const float near = software::madd(a * z, p, a);
  const float bounded = a > 9.1f ? 9.1f : a;
  const float far = 1.0f - 2.0f / (software::scale_exp(software::split_exp(2.0f * bounded)) + 1.0f);
  return copysign(a < 0.6f ? near : far, x);
}
SOFTWARE_FUNCTION float asinh(float x) {
  const double a = fabs(x);
  const double value = software::log1p_wide(a + a * a / (1.0 + __builtin_sqrt(software::madd(a, a, 1.0))));
  return isfinite(x) ? copysign(float(value), x) : x;
}
SOFTWARE_FUNCTION float acosh(float x) {
  const double t = double(x) - 1.0;
  const float value = float(software::log1p_wide(t + __builtin_sqrt(t * (t + 2.0))));
  return x >= 1.0f ? (isinf(x) ? x : value) : __builtin_nanf("");
}
SOFTWARE_FUNCTION float atanh(float x) {
  const double a = fabs(x);
  const float value = float(0.5 * software::log1p_wide(2.0 * a / (1.0 - a)));
  const float bounded = a == 1.0 ? __builtin_inff() : value;
  return a <= 1.0 ? copysign(bounded, x) : __builtin_nanf("");
}

SOFTWARE_FUNCTION float pow(float x, float y) {
  const float a = fabs(x);
  double l = software::log_wide(a) * 1.4426950408889634;
  l = a == 0.0f ? -__builtin_inf() : l;
  l = a < __builtin_inff() ? l : double(a);
  const float magnitude = float(software::exp2_wide(l * y));
  const bool integral = rint(y) == y;
  const bool odd = integral & (rint(y * 0.5f) != y * 0.5f);
  float result = odd ? copysign(magnitude, x) : magnitude;
  const bool undefined = x < 0.0f && !integral && isfinite(x);
  result = undefined ? __builtin_nanf("") : result;
  const bool one = (y == 0.0f) | (x == 1.0f) | ((x == -1.0f) & isinf(y));
  return one ? 1.0f : result;
}
SOFTWARE_INLINE float powr(float x, float y) { return x < 0.0f ? __builtin_nanf("") : pow(x, y); }

}  // namespace metal
