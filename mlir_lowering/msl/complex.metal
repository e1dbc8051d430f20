// Complex numbers as vectors (x + iy): StableHLO's complex<f32> is float2; complex<f64>, in host steps, double2. Sums and
// negation are the vectors' own. Functions of V take either; T is the type of a part. A product is the plain formula,
// without C99's recovery of infinities from NaNs.

template <typename V>
inline V pjrt_complex_multiply(V a, V b) {
  return V(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
template <typename V>
inline bool pjrt_complex_equal(V a, V b) {
  return a.x == b.x && a.y == b.y;
}

// sqrt(x^2 + y^2), through the ratio of the two so that no square overflows.
template <typename T>
inline T pjrt_hypot(T x, T y) {
  const T p = fabs(x), q = fabs(y);
  const T large = p > q ? p : q, small = p > q ? q : p;
  if (isinf(p) || isinf(q)) return T(INFINITY);
  if (p != p || q != q) return T(NAN);
  const T ratio = large == T(0) ? T(0) : small / large;
  return large * sqrt(T(1) + ratio * ratio);
}
// Smith's quotient (1962) divides by the larger part first, so that no square overflows; infinities as in C99's annex G.
template <typename T, typename V>
inline V pjrt_quotient(V a, V b) {
  const T zero = T(0), x = a.x, y = a.y, c = b.x, d = b.y;
  if (c == zero && d == zero) return V(x / fabs(c), y / fabs(c));
  if (isinf(c) || isinf(d)) return isfinite(x) && isfinite(y) ? V(zero, zero) : V(T(NAN), T(NAN));
  if ((isinf(x) || isinf(y)) && isfinite(c) && isfinite(d)) {
    const T p = copysign(isinf(x) ? T(1) : zero, x), q = copysign(isinf(y) ? T(1) : zero, y);
    // Quartered, so that the sums stay finite.
    const T r = c * T(0.25f), s = d * T(0.25f);
    return V(T(INFINITY) * (p * r + q * s), T(INFINITY) * (q * r - p * s));
  }
  if (fabs(c) >= fabs(d)) {
    const T ratio = d / c, scale = c + d * ratio;
    return V((x + y * ratio) / scale, (y - x * ratio) / scale);
  }
  const T ratio = c / d, scale = c * ratio + d;
  return V((x * ratio + y) / scale, (y * ratio - x) / scale);
}

template <typename V>
inline V pjrt_complex_exp(V z) {
  const auto size = exp(z.x);
  if (z.y == 0.0f) return V(size, z.y);
  if (isinf(size)) {  // its root does not overflow where the product is a number
    const auto root = exp(z.x * 0.5f);
    return V(root * cos(z.y) * root, root * sin(z.y) * root);
  }
  return V(size * cos(z.y), size * sin(z.y));
}

// exp(z) - 1; the real part is (exp(x) - 1) cos y - 2 sin^2(y / 2).
template <typename V>
inline V pjrt_complex_expm1(V z) {
  if (z.y == 0.0f) return V(pjrt_expm1(z.x), z.y);
  const auto half_sine = sin(z.y * 0.5f);
  return V(pjrt_expm1(z.x) * cos(z.y) - 2.0f * half_sine * half_sine, exp(z.x) * sin(z.y));
}

template <typename T>
inline T pjrt_log_hypot(T x, T y) {
  const T p = fabs(x), q = fabs(y);
  const T large = p > q ? p : q, small = p > q ? q : p;
  // Near the unit circle the logarithm is small: from x^2 + y^2 - 1.
  return large > T(0.5f) && large < T(2)
             ? pjrt_log1p((large - T(1)) * (large + T(1)) + small * small) * T(0.5f)
             : log(pjrt_hypot(x, y));
}
template <typename V>
inline V pjrt_complex_log(V z) {
  return V(pjrt_log_hypot(z.x, z.y), atan2(z.y, z.x));
}
template <typename V>
inline V pjrt_complex_log1p(V z) {
  const bool small = fabs(z.x) < 0.5f && fabs(z.y) < 0.5f;
  const auto size = small ? pjrt_log1p(z.x * (2.0f + z.x) + z.y * z.y) * 0.5f : pjrt_log_hypot(1.0f + z.x, z.y);
  return V(size, atan2(z.y, 1.0f + z.x));
}

// Of a quarter, doubled, where the magnitude might overflow.
template <typename V>
inline V pjrt_complex_sqrt(V z) {
  const bool large = fabs(z.x) > 0x1p125f || fabs(z.y) > 0x1p125f;
  const float scale = large ? 0.25f : 1.0f, back = large ? 2.0f : 1.0f;
  const V w = V(z.x * scale, z.y * scale);
  const auto root = sqrt(fabs(w.x) * 0.5f + pjrt_hypot(w.x, w.y) * 0.5f) * back;
  const auto other = z.y / (2.0f * root);
  if (root == 0.0f) return V(root, z.y);
  return z.x >= 0.0f ? V(root, other) : V(fabs(other), copysign(root, z.y));
}

// exp(b log a), but 1 where b is zero or a is one. Of zero only the positive real powers are numbers (zeros), of infinity
// only the real powers of the positive real one; all as XLA on the CPU has them.
template <typename V>
inline V pjrt_complex_pow(V a, V b) {
  const V one = V(1.0f, 0.0f);
  if (pjrt_complex_equal(b, V(0.0f, 0.0f)) || pjrt_complex_equal(a, one)) return one;
  const bool zero = pjrt_complex_equal(a, V(0.0f, 0.0f));
  if (zero || isinf(a.x) || isinf(a.y)) {
    const bool falls = zero ? b.x > 0.0f : b.x < 0.0f, grows = zero ? false : b.x > 0.0f;
    const bool is_number = b.y == 0.0f && (zero || (a.x > 0.0f && a.y == 0.0f)) && (falls || grows);
    return is_number ? V(falls ? 0.0f : INFINITY, 0.0f) : V(NAN, NAN);
  }
  const V log_a = pjrt_complex_log(a);
  // No imaginary part: that of a product with an infinite real part would be NaN.
  return pjrt_complex_exp(b.y == 0.0f ? V(b.x * log_a.x, b.x * log_a.y) : pjrt_complex_multiply(b, log_a));
}

// a cosh y + i b sinh y
template <typename V, typename T>
inline V pjrt_hyperbolic(T a, T b, T y) {
  if (fabs(y) < T(20)) return V(a * cosh(y), b * sinh(y));
  // There both are exp |y| / 2 to the last bit of a double, but for the sign; its root does not overflow where the
  // product is a number.
  const T root = exp(fabs(y) * T(0.5f)), scaled = root * T(0.5f);
  return V(a * root * scaled, b * root * copysign(scaled, y));
}
template <typename V>
inline V pjrt_complex_sin(V z) {
  return pjrt_hyperbolic<V>(sin(z.x), cos(z.x), z.y);
}
template <typename V>
inline V pjrt_complex_cos(V z) {
  return pjrt_hyperbolic<V>(cos(z.x), -sin(z.x), z.y);
}

// Kahan's form (1987): with t = tan y and s = sinh x, tanh z = ((1 + t^2) s cosh x + i t) / (1 + (1 + t^2) s^2).
template <typename V>
inline V pjrt_complex_tanh(V z) {
  if (z.y == 0.0f) return V(tanh(z.x), z.y);
  if (isinf(z.x)) return V(z.x > 0.0f ? 1.0f : -1.0f, 0.0f);
  if (!isfinite(z.y)) return V(z.y - z.y, z.y - z.y);
  // There tanh x is 1 to the last bit of a double, and the imaginary part 4 sin y cos y exp(-2 |x|).
  if (fabs(z.x) > 20.0f) {
    return V(z.x > 0.0f ? 1.0f : -1.0f, 4.0f * sin(z.y) * cos(z.y) * exp(-2.0f * fabs(z.x)));
  }
  const auto t = tan(z.y), s = sinh(z.x);
  const auto secant = 1.0f + t * t, size = 1.0f + secant * s * s;
  return V(secant * s * sqrt(1.0f + s * s) / size, t / size);
}
// -i tanh(iz)
template <typename V>
inline V pjrt_complex_tan(V z) {
  const V turned = pjrt_complex_tanh(V(-z.y, z.x));
  return V(turned.y, -turned.x);
}

// z / |z|, and zero for zero.
template <typename V>
inline V pjrt_complex_sign(V z) {
  const auto size = pjrt_hypot(z.x, z.y);
  return size == 0.0f ? V(z.x * 0.0f, z.y * 0.0f) : V(z.x / size, z.y / size);
}
