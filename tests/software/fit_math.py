"""Derives the coefficients of csrc/software/include/software_math.h (needs mpmath; run by hand, not by tests).

Each function is a minimax polynomial by Remez exchange on relative or absolute error, in mpmath at 60 digits; what
is printed is rounded to the precision the header computes in. The errors printed are the polynomial's alone; the
errors in ulp of the finished functions are measured by test_math.py.
"""

from __future__ import annotations

from collections.abc import Callable

from mpmath import mp, mpf

mp.dps = 60
Function = Callable[[mpf], mpf]


def remez(
    f: Function, weight: Function, degree: int, lo: float, hi: float
) -> tuple[list[mpf], mpf]:
    """Coefficients (lowest first) of the polynomial p minimizing max |p(x) - f(x)| * weight(x), and that maximum."""
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

        def error(x: mpf) -> mpf:
            return (mp.polyval(coefficients[::-1], x) - f(x)) * weight(x)

        count = 60 * n
        grid = [(a + b) / 2 - (b - a) / 2 * mp.cos(mp.pi * i / count) for i in range(count + 1)]
        values = [error(x) for x in grid]
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


def show(name: str, result: tuple[list[mpf], mpf]) -> None:
    coefficients, worst = result
    print(f"{name}: error 2^{mp.nstr(mp.log(worst, 2), 4)}")
    for c in coefficients:
        print(f"    {mp.nstr(c, 19)}")


def series(x: mpf, term: Function, limit: Function) -> mpf:
    """`term(x)`, or its limit where the formula would divide by zero."""
    return limit(x) if abs(x) < mpf(10) ** -15 else term(x)


def main() -> None:
    ln2 = mp.log(2)
    h = float(ln2 / 2) * 1.001
    # exp(r) = 1 + r + r^2 * p(r): error relative to exp (r^2 weight).
    show(
        "expm1 tail, |r| <= ln2/2, p(r) with expm1(r) = r + r^2 p(r)",
        remez(
            lambda r: series(r, lambda r: (mp.expm1(r) - r) / r**2, lambda r: mpf(1) / 2 + r / 6),
            lambda r: abs(r) if abs(r) > 1e-9 else mpf(1e-9),
            5,
            -h,
            h,
        ),
    )
    show(
        "exp2(r), |r| <= 1/2, double use",
        remez(lambda r: mpf(2) ** r, lambda r: 1 / mpf(2) ** r, 8, -0.5005, 0.5005),
    )
    lo, hi = float(mp.sqrt(2) / 2 - 1), float(mp.sqrt(2) - 1)
    show(
        "log1p tail, log1p(f) = f - f^2/2 + f^3 p(f)",
        remez(
            lambda f: series(
                f, lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: mpf(1) / 3 - f / 4
            ),
            lambda f: f * f + mpf(1e-6),
            8,
            lo,
            hi,
        ),
    )
    s2 = float((mp.sqrt(2) - 1) ** 2 / (mp.sqrt(2) + 1) ** 2) * 1.001
    show(
        "atanh, atanh(s) = s + s^3 p(s^2), |s| <= 0.1716 (double)",
        remez(
            lambda z: series(
                z,
                lambda z: (mp.atanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
                lambda z: mpf(1) / 3 + z / 5,
            ),
            lambda z: z + mpf(1e-6),
            5,
            0,
            s2,
        ),
    )
    q2 = float((mp.pi / 4) ** 2) * 1.002
    show(
        "sin, sin(r) = r + r^3 p(r^2), |r| <= pi/4",
        remez(
            lambda z: series(
                z, lambda z: (mp.sin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: -mpf(1) / 6
            ),
            lambda z: z + mpf(1e-6),
            3,
            0,
            q2,
        ),
    )
    show(
        "cos, cos(r) = 1 - r^2/2 + r^4 p(r^2), |r| <= pi/4",
        remez(
            lambda z: series(
                z, lambda z: (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2, lambda z: mpf(1) / 24
            ),
            lambda z: z**2 + mpf(1e-8),
            3,
            0,
            q2,
        ),
    )
    show(
        "atan, atan(t) = t + t^3 p(t^2), |t| <= 1",
        remez(
            lambda z: series(
                z,
                lambda z: (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
                lambda z: -mpf(1) / 3 + z / 5,
            ),
            lambda z: z + mpf(1e-6),
            8,
            0,
            1,
        ),
    )
    show(
        "asin, asin(t) = t + t^3 p(t^2), |t| <= 1/2",
        remez(
            lambda z: series(
                z,
                lambda z: (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z,
                lambda z: mpf(1) / 6 + z * 3 / 40,
            ),
            lambda z: z + mpf(1e-6),
            5,
            0,
            0.2505,
        ),
    )
    show(
        "tan, tan(r) = r + r^3 p(r^2), |r| <= pi/4 (double)",
        remez(
            lambda z: series(
                z, lambda z: (mp.tan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z, lambda z: mpf(1) / 3
            ),
            lambda z: z + mpf(1e-6),
            9,
            0,
            q2,
        ),
    )
    print("quadrants: 2^e * 2/pi mod 4 as a head of 28 bits and a tail, for x = m * 2^e, 24-bit m")
    mp.prec = 400
    for e in range(-25, 105):
        v = mpf(2) ** e * 2 / mp.pi
        v -= 4 * mp.floor(v / 4)
        scale = mpf(2) ** (27 - int(mp.floor(mp.log(v, 2))))
        head = mp.floor(v * scale) / scale
        print(f"    {{{float(head).hex()}, {float(v - head).hex()}}},")


if __name__ == "__main__":
    main()
