// What the compiler needs beyond MSL's own functions: erf, erfc, expm1, log1p, cbrt (branch-free), fmod,
// and the same text on Metal and on the software device; double exists on the latter only. The
// coefficients come from tests/software/fit_math.py, the errors are asserted by test_math.py.

#define PJRT_INLINE inline __attribute__((__always_inline__))

// x = n ln 2 + r with |r| <= ln(2) / 2, n integral; returns exp(r) - 1 = r + r^2 p(r).
PJRT_INLINE float pjrt_expm1_reduced(float n, float x) {
  float r = fma(n, -0x1.62e400p-1f, x);
  r = fma(n, -0x1.7f7d1cp-20f, r);
  float p = 0.0001991430137f;
  p = fma(p, r, 0.001394110249f);
  p = fma(p, r, 0.008333272841f);
  p = fma(p, r, 0.04166635353f);
  p = fma(p, r, 0.1666666682f);
  p = fma(p, r, 0.5000000047f);
  return fma(r * r, p, r);
}

// 2^n for integral n in [-126, 127].
PJRT_INLINE float pjrt_power_of_two(int n) { return as_type<float>((n + 127) << 23); }

PJRT_INLINE float pjrt_expm1(float x) {
  // Beyond these the result is infinite or -1.
  float y = select(x, 89.0f, x > 89.0f);
  y = select(y, -20.0f, y < -20.0f);
  const float n = rint(y * 1.44269504f);
  const float p = pjrt_expm1_reduced(n, y);
  // Half the power, then doubled: 2^128 is not a float, but 2^128 times a p below zero can be.
  const float half_power = pjrt_power_of_two(int(n) - 1);
  const float result = fma(half_power, p, half_power - 0.5f) * 2.0f;
  return select(result, x, x == 0.0f);
}

PJRT_INLINE float pjrt_log1p(float x) {
  // 1 + x = m * 2^k with m in [sqrt(1/2), sqrt(2)); f = m - 1 from x itself, not from the rounded
  // sum.
  const float u = 1.0f + x;
  const int k = ((as_type<int>(u) + 0x4afb0d) >> 23) - 127;
  const float scale = pjrt_power_of_two(-select(k, 100, k > 100));
  const float exact = fma(x, scale, scale - 1.0f);
  const float f = select(exact, u * 0x1p-100f * pjrt_power_of_two(100 - k) - 1.0f, k > 100);
  float p = 0.06915545301f;
  p = fma(p, f, -0.1178983887f);
  p = fma(p, f, 0.1187290847f);
  p = fma(p, f, -0.1238433846f);
  p = fma(p, f, 0.142186669f);
  p = fma(p, f, -0.1666925174f);
  p = fma(p, f, 0.2000222615f);
  p = fma(p, f, -0.2499998658f);
  p = fma(p, f, 0.3333331045f);
  const float square = f * f;
  const float low = fma(float(k), 0x1.7f7d1cp-20f, f * square * p);
  float result = fma(float(k), 0x1.62e400p-1f, fma(square, -0.5f, low) + f);
  result = select(result, x, (x == 0.0f) | (x == INFINITY));
  result = select(result, -INFINITY, x == -1.0f);
  return select(NAN, result, x >= -1.0f);
}

// erf for |x| <= 1.
PJRT_INLINE float pjrt_erf_near(float x) {
  const float z = x * x;
  float p = 7.889119072e-05f;
  p = fma(p, z, -0.0008020841518f);
  p = fma(p, z, 0.005189535425f);
  p = fma(p, z, -0.02685444468f);
  p = fma(p, z, 0.1128360018f);
  p = fma(p, z, -0.3761262714f);
  // 2 / sqrt(pi) less 1: x enters unrounded.
  p = fma(p, z, 0.1283791659f);
  return fma(p, x, x);
}

PJRT_INLINE float pjrt_erf(float x) {
  // Beyond 1: 1 - exp(-p(|x|)); from 3.925 on erf rounds to 1.
  const float magnitude = fabs(x);
  const float a = select(magnitude, 3.925f, magnitude > 3.925f);
  float p = -0.0001855743119f;
  p = fma(p, a, 0.002939610862f);
  p = fma(p, a, -0.02180533443f);
  p = fma(p, a, 0.1030374054f);
  p = fma(p, a, 0.6382256322f);
  p = fma(p, a, 1.127040064f);
  p = fma(p, a, 0.0003537122435f);
  const float n = rint(p * -1.44269504f);
  const float scale = pjrt_power_of_two(int(n));
  const float far = fma(-scale, pjrt_expm1_reduced(n, -p), 1.0f - scale);
  return select(pjrt_erf_near(x), copysign(far, x), magnitude > 1.0f);
}

// exp(-x^2) * g(x), where (1 + 2x) g(x) is a polynomial of (x - 3) / (x + 3); mirrored for x < 0.
PJRT_INLINE float pjrt_erfc(float x) {
  const float magnitude = fabs(x);
  // erfc(10.1) underflows.
  const float a = select(magnitude, 10.5f, magnitude > 10.5f);
  const float t = (a - 3.0f) / (a + 3.0f);
  float p = -0.0002597478663f;
  p = fma(p, t, -0.000756297287f);
  p = fma(p, t, 0.002014068128f);
  p = fma(p, t, 0.002559135309f);
  p = fma(p, t, -0.02380629143f);
  p = fma(p, t, 0.0682960477f);
  p = fma(p, t, -0.119269307f);
  p = fma(p, t, 0.1296465395f);
  p = fma(p, t, -0.04756249979f);
  p = fma(p, t, -0.1356211457f);
  // The constant term in two parts: its rounding would show.
  p = fma(p, t, 0.00300806008f) + 1.25f;
  const float g = p / fma(2.0f, a, 1.0f);
  // exp(-(square + error)), the square's rounding error kept.
  const float square = a * a;
  const float error = fma(a, a, -square);
  const float n = rint(square * -1.44269504f);
  const float e = pjrt_expm1_reduced(n, -square);
  const float scaled = fma(fma(e, -error, e) - error, g, g);
  // 2^n in two steps: it may be below the least normal float.
  const int half_n = int(n) / 2;
  const float positive = scaled * pjrt_power_of_two(half_n) * pjrt_power_of_two(int(n) - half_n);
  const float far = select(positive, 2.0f - positive, x < 0.0f);
  return select(far, 1.0f - pjrt_erf_near(x), magnitude < 0.75f);
}

// Halley's iteration for a^(-1/3).
PJRT_INLINE float pjrt_rcbrt_step(float a, float y) {
  const float e = fma(-(a * y) * y, y, 1.0f);
  return fma(y * e, fma(e, 0.222222222f, 0.3333333333f), y);
}

PJRT_INLINE float pjrt_cbrt(float x) {
  // Denormals are scaled by 2^24, whose root is 2^8.
  const float magnitude = fabs(x);
  const bool tiny = magnitude < 0x1p-126f;
  const float a = select(magnitude, magnitude * 0x1p24f, tiny);
  // An estimate of a^(-1/3) from a third of the bits, then twice Halley's iteration.
  const int third = int(float(as_type<int>(a)) * 0.3333333333f);
  float y = as_type<float>(0x54a21d2a - third);
  y = pjrt_rcbrt_step(a, y);
  y = pjrt_rcbrt_step(a, y);
  // The root, and one step of Newton's for what rounding lost.
  const float root = a * y * y;
  const float residual = fma(root * root, -root, a);
  float result = fma(residual * y, y * 0.3333333333f, root);
  result = select(result, result * 0x1p-8f, tiny);
  return select(copysign(result, x), x, (x == 0.0f) | !(magnitude < INFINITY));
}

// The exact remainder, with the dividend's sign: Metal's fmod is x - y * trunc(x / y), rounded three times. Mantissas are
// divided as integers, 8 bits of the quotient at a time; no denormal is ever an operand of float arithmetic.
PJRT_INLINE float pjrt_fmod(float a, float b) {
  const uint sign = as_type<uint>(a) & 0x80000000u, x = as_type<uint>(a) ^ sign;
  const uint y = as_type<uint>(b) & 0x7fffffffu;
  if (x >= 0x7f800000u || y > 0x7f800000u || y == 0u) return NAN;
  if (x < y) return a;
  // A number is its mantissa times two to its exponent less 150.
  const int exponent = y < 0x800000u ? 1 : int(y >> 23);
  const uint divisor = y < 0x800000u ? y : (y & 0x7fffffu) | 0x800000u;
  uint rest = (x < 0x800000u ? x : (x & 0x7fffffu) | 0x800000u) % divisor;
  for (int left = (x < 0x800000u ? 1 : int(x >> 23)) - exponent; left > 0; left -= 8) {
    rest = (rest << uint(left < 8 ? left : 8)) % divisor;
  }
  if (rest == 0u) return as_type<float>(sign);
  const int shift = int(clz(rest)) - 8;
  const uint normal = ((rest << uint(shift)) & 0x7fffffu) | (uint(exponent - shift) << 23);
  return as_type<float>(sign | (shift < exponent ? normal : rest << uint(exponent - 1)));
}

#ifdef PJRT_SOFTWARE
PJRT_INLINE double pjrt_fmod(double a, double b) { return __builtin_fmod(a, b); }
PJRT_INLINE double pjrt_erf(double x) { return __builtin_erf(x); }
PJRT_INLINE double pjrt_erfc(double x) { return __builtin_erfc(x); }
PJRT_INLINE double pjrt_expm1(double x) { return __builtin_expm1(x); }
PJRT_INLINE double pjrt_log1p(double x) { return __builtin_log1p(x); }
PJRT_INLINE double pjrt_cbrt(double x) { return __builtin_cbrt(x); }
#endif

#undef PJRT_INLINE
