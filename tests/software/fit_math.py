"""Derives the coefficients of software_math.h and msl/math.metal (needs mpmath; run by hand).

Each function is a minimax polynomial by Remez exchange in mpmath. The errors printed are those of
the polynomials alone, relative to the function computed with them; those of the finished functions,
in ulp, are asserted by test_math.py.
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf

mp.dps = 160  # the parts of 2^53 / (2 pi) begin 53 bits in; Remez exchange needs some 40 digits
Function = Callable[[mpf], mpf]


def remez(f: Function, weight: Function, degree: int, lo: float, hi: float) -> tuple[list[mpf], mpf]:
    """The polynomial (lowest first) of least max |p(x) - f(x)| * weight(x), and that maximum."""
    a, b = mpf(lo), mpf(hi)
    n = degree + 2
    nodes = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / (n - 1)) for i in range(n)]
    coefficients: list[mpf] = []
    worst = mpf(0)
    for _ in range(12):
        matrix = mp.matrix(n, n)
        right = mp.matrix(n, 1)
        for row, x in enumerate(nodes):
            for power in range(degree + 1):
                matrix[row, power] = x**power
            matrix[row, n - 1] = (-1) ** row / weight(x)
            right[row] = f(x)
        solution = mp.lu_solve(matrix, right)
        coefficients = [solution[i] for i in range(degree + 1)]
        level = abs(solution[n - 1])

        count = 60 * n
        grid = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / count) for i in range(count + 1)]
        values = [(mp.polyval(coefficients[::-1], x) - f(x)) * weight(x) for x in grid]
        extrema: list[tuple[mpf, mpf]] = []
        for x, value in zip(grid, values, strict=True):
            if extrema and (extrema[-1][1] > 0) == (value > 0):
                if abs(value) > abs(extrema[-1][1]):
                    extrema[-1] = (x, value)
            else:
                extrema.append((x, value))
        worst = max(abs(v) for _, v in extrema)
        if len(extrema) < n or worst < level * mpf("1.001"):
            break
        while len(extrema) > n:
            extrema.pop(0 if abs(extrema[0][1]) < abs(extrema[-1][1]) else -1)
        nodes = [x for x, _ in extrema]
    return coefficients, worst


def fit(name: str, f: Function, limit: mpf, weight: Function, degree: int, lo: float, hi: float) -> None:
    """Prints the polynomial for f, which is `limit` where its formula would divide by zero."""

    def safe(x: mpf) -> mpf:
        return limit if abs(x) < mpf(10) ** -15 else f(x)

    coefficients, worst = remez(safe, weight, degree, lo, hi)
    print(f"{name}: error 2^{mp.nstr(mp.log(worst, 2), 4)}")
    for c in coefficients:
        print(f"    {mp.nstr(c, 19)}")


def odd(name: str, f: Function, limit: mpf, degree: int, reach: float) -> None:
    """f(x) = x + x^3 p(x^2) for |x| <= reach."""

    def tail(z: mpf) -> mpf:
        x = mp.sqrt(z)
        return (f(x) / x - 1) / z

    about = f"{name}: f(x) = x + x z p(z), z = x^2, |x| <= {reach:.4f}"
    fit(about, tail, limit, lambda z: z + mpf(10) ** -6, degree, 0, reach**2)


def turns() -> None:
    """1 / (2 pi) and 2^53 / (2 pi), modulo 1: three parts of at most 29 bits each, and a tail."""
    for power in (0, 53):
        rest = mpf(2) ** power / (2 * mp.pi)
        rest -= mp.floor(rest)
        parts = []
        for end in (29, 58, 87):
            unit = mpf(2) ** -end
            parts.append(mp.floor(rest / unit) * unit)
            rest -= parts[-1]
        print(f"2^{power} / (2 pi) mod 1:", *[float(p).hex() for p in (*parts, rest)])


def main() -> None:
    one = mpf(1)
    ln2 = mp.log(2)
    # A reduced argument may exceed its interval by rounding.
    h = float(ln2 / 2) * 1.002
    fit(
        "2^r - 1 = r p(r), |r| <= 1/2, in double",
        lambda r: (2**r - 1) / r,
        ln2,
        lambda r: 1 / ln2,
        8,
        -0.5005,
        0.5005,
    )
    fit(
        "exp(r) = 1 + r + r^2 p(r), |r| <= ln(2) / 2",
        lambda r: (mp.exp(r) - 1 - r) / r**2,
        one / 2,
        lambda r: r * r / mp.exp(r) + mpf(10) ** -4,
        4,
        -h,
        h,
    )
    fit(
        "expm1(r) = r + r^2 p(r), |r| <= ln(2) / 2",
        lambda r: (mp.expm1(r) - r) / r**2,
        one / 2,
        lambda r: max(abs(r), mpf(10) ** -9),
        5,
        -h * 0.999,
        h * 0.999,
    )
    fit(
        "log1p(f) = f - f^2 / 2 + f^3 p(f), 1 + f within sqrt(1/2) and sqrt(2)",
        lambda f: (mp.log1p(f) - f + f * f / 2) / f**3,
        one / 3,
        lambda f: f * f + mpf(10) ** -6,
        8,
        float(mp.sqrt(2) / 2 - 1),
        float(mp.sqrt(2) - 1),
    )
    odd(
        "atanh, in double",
        mp.atanh,
        one / 3,
        5,
        float((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) * 1.0005,
    )
    odd("sin, in double", mp.sin, -one / 6, 3, float(mp.pi / 4) * 1.001)
    fit(
        "cos(x) = 1 - z / 2 + z^2 p(z), z = x^2, |x| <= pi / 4, in double",
        lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2,
        one / 24,
        lambda z: z**2 + mpf(10) ** -8,
        3,
        0,
        float(mp.pi / 4) ** 2 * 1.002,
    )
    odd("atan, in double", mp.atan, -one / 3, 8, 1)
    odd("asin, in double", mp.asin, one / 6, 5, 0.5005)
    odd("tanh", mp.tanh, -one / 3, 4, 0.6)
    fit(
        "erf(x) = x p(z), z = x^2, |x| <= 1",
        lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z),
        2 / mp.sqrt(mp.pi),
        lambda z: 1 / mp.erf(1),
        6,
        0,
        1,
    )
    fit(
        "-ln(erfc(x)) = p(x), 1 <= x <= 3.925, where erf is 1 - exp(-p(x))",
        lambda x: -mp.log(mp.erfc(x)),
        mpf(0),
        mp.erfc,
        6,
        1,
        3.925,
    )

    def scaled_erfc(t: mpf) -> mpf:
        x = 3 * (1 + t) / (1 - t)
        return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)

    fit(
        "exp(x^2) erfc(x) (1 + 2x) = p(t), t = (x - 3) / (x + 3), 0 <= x <= 11",
        scaled_erfc,
        scaled_erfc(mpf(0)),
        lambda t: 1 / scaled_erfc(t),
        10,
        -1,
        8 / 14,
    )
    turns()


if __name__ == "__main__":
    main()
