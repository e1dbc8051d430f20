// The same functions for double (host kernels: Metal has no double). Accuracy first: the host's
// libm.
#pragma once

using double2 = metal::vec<double, 2>;

namespace metal {

#define SOFTWARE_DOUBLE(name) \
  SOFTWARE_INLINE double name(double x) { return __builtin_##name(x); }
SOFTWARE_DOUBLE(fabs)
SOFTWARE_DOUBLE(floor)
SOFTWARE_DOUBLE(ceil)
SOFTWARE_DOUBLE(trunc)
SOFTWARE_DOUBLE(rint)
SOFTWARE_DOUBLE(round)
SOFTWARE_DOUBLE(sqrt)
SOFTWARE_DOUBLE(exp)
SOFTWARE_DOUBLE(exp2)
SOFTWARE_DOUBLE(log)
SOFTWARE_DOUBLE(log2)
SOFTWARE_DOUBLE(log10)
SOFTWARE_DOUBLE(sin)
SOFTWARE_DOUBLE(cos)
SOFTWARE_DOUBLE(tan)
SOFTWARE_DOUBLE(asin)
SOFTWARE_DOUBLE(acos)
SOFTWARE_DOUBLE(atan)
SOFTWARE_DOUBLE(sinh)
SOFTWARE_DOUBLE(cosh)
SOFTWARE_DOUBLE(tanh)
SOFTWARE_DOUBLE(asinh)
SOFTWARE_DOUBLE(acosh)
SOFTWARE_DOUBLE(atanh)
#undef SOFTWARE_DOUBLE

SOFTWARE_INLINE double abs(double x) { return __builtin_fabs(x); }
SOFTWARE_INLINE double exp10(double x) { return __builtin_pow(10.0, x); }
SOFTWARE_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
SOFTWARE_INLINE double copysign(double x, double y) { return __builtin_copysign(x, y); }
SOFTWARE_INLINE double pow(double x, double y) { return __builtin_pow(x, y); }
SOFTWARE_INLINE double atan2(double y, double x) { return __builtin_atan2(y, x); }
SOFTWARE_INLINE double fmod(double x, double y) { return __builtin_fmod(x, y); }
SOFTWARE_INLINE double nextafter(double x, double y) { return __builtin_nextafter(x, y); }
SOFTWARE_INLINE double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
SOFTWARE_INLINE double frexp(double x, int& n) {
  n = 0;
  return __builtin_frexp(x, &n);
}
SOFTWARE_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
SOFTWARE_INLINE bool isnan(double x) { return x != x; }
SOFTWARE_INLINE bool isinf(double x) { return fabs(x) == __builtin_inf(); }
SOFTWARE_INLINE bool isfinite(double x) { return fabs(x) < __builtin_inf(); }
SOFTWARE_INLINE bool isnormal(double x) {
  const double a = fabs(x);
  return (a >= 0x1p-1022) & (a < __builtin_inf());
}
SOFTWARE_INLINE bool signbit(double x) { return software::bits_of(x) >> 63; }
SOFTWARE_INLINE double fmin(double a, double b) {
  const double least = a < b ? a : b;
  return b != b ? a : least;
}
SOFTWARE_INLINE double fmax(double a, double b) {
  const double greatest = a > b ? a : b;
  return b != b ? a : greatest;
}
SOFTWARE_INLINE double min(double a, double b) { return fmin(a, b); }
SOFTWARE_INLINE double max(double a, double b) { return fmax(a, b); }
SOFTWARE_INLINE double clamp(double x, double lo, double hi) { return fmin(fmax(x, lo), hi); }
SOFTWARE_INLINE double saturate(double x) { return clamp(x, 0.0, 1.0); }
SOFTWARE_INLINE double fract(double x) {
  const double f = x - floor(x);
  return f >= 1.0 ? 0x1.fffffffffffffp-1 : f;
}
SOFTWARE_INLINE double fdim(double a, double b) {
  const double d = a - b;
  return a <= b ? 0.0 : d;
}
SOFTWARE_INLINE double powr(double x, double y) { return x < 0.0 ? __builtin_nan("") : __builtin_pow(x, y); }
SOFTWARE_INLINE double sign(double x) {
  const double s = x < 0.0 ? -1.0 : x;
  const double t = x > 0.0 ? 1.0 : s;
  return x != x ? 0.0 : t;
}
SOFTWARE_INLINE double mix(double a, double b, double t) { return a + (b - a) * t; }
SOFTWARE_INLINE double step(double edge, double x) { return x < edge ? 0.0 : 1.0; }

}  // namespace metal
