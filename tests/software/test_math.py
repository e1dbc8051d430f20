"""The stand-in for <metal_stdlib> and msl/math.metal: errors, special values, vector code.

One library is compiled, with a loop `out[i] = f(x[i])` for every function and type. A new function
is a row of a table: ROUNDED, with its bound in ulp; EXACT; INTEGER.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
# Those of the software device.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp-simd",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
]
FLAGS += ["-fno-trapping-math", "-ffp-contract=off", "-mprefer-vector-width=512"]
# glibc's documented errors reach 4 ulp (cbrt).
DOUBLE_ULP = 4.0
# numpy's name, MSL's.
TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float16": "half",
    "bfloat16": "bfloat",
}
INTEGER_TYPES = [name for name in TYPES if "int" in name]


@dataclass(frozen=True)
class Function:
    """A function of one or two operands called x and y, and what it should be."""

    name: str
    truth: Callable[..., np.ndarray]
    operands: int = 1
    ulp: float = 0
    expression: str = ""  # of x and y, where it is not name(x, y)

    @property
    def text(self) -> str:
        return self.expression or f"{self.name}({', '.join('xy'[: self.operands])})"


def each(f: Callable[[float], float]) -> Callable[[np.ndarray], np.ndarray]:
    return np.vectorize(f, otypes=[np.float64])


# Truth is computed in float64 for float and in long double for double.
ROUNDED = [
    Function("exp", np.exp, ulp=1.1),
    Function("exp2", np.exp2, ulp=1.1),
    Function("exp10", lambda x: np.power(x.dtype.type(10), x), ulp=0.6),
    Function("log", np.log, ulp=1.0),
    Function("log2", np.log2, ulp=0.6),
    Function("log10", np.log10, ulp=0.6),
    Function("sin", np.sin, ulp=0.6),
    Function("cos", np.cos, ulp=0.6),
    Function("tan", np.tan, ulp=0.6),
    Function("asin", np.arcsin, ulp=0.6),
    Function("acos", np.arccos, ulp=0.6),
    Function("atan", np.arctan, ulp=0.6),
    Function("atan2", np.arctan2, 2, ulp=0.6),
    Function("sinh", np.sinh, ulp=0.6),
    Function("cosh", np.cosh, ulp=0.6),
    Function("tanh", np.tanh, ulp=1.5),
    Function("asinh", np.arcsinh, ulp=0.6),
    Function("acosh", np.arccosh, ulp=0.6),
    Function("atanh", np.arctanh, ulp=0.6),
    Function("pow", np.power, 2, ulp=0.6),
    Function("sqrt", np.sqrt, ulp=0.5),
    Function("rsqrt", lambda x: 1 / np.sqrt(x), ulp=1.5),
    Function("pjrt_erf", each(math.erf), ulp=1.2),
    Function("pjrt_erfc", each(math.erfc), ulp=4.0),
    Function("pjrt_expm1", np.expm1, ulp=1.5),
    Function("pjrt_log1p", np.log1p, ulp=1.5),
    Function("pjrt_cbrt", np.cbrt, ulp=1.0),
]


def round_away(x: np.ndarray) -> np.ndarray:
    whole = np.trunc(x)
    return np.copysign(whole + (abs(x - whole) >= 0.5) * np.sign(x), x)


def fract(x: np.ndarray) -> np.ndarray:
    return np.minimum(x - np.floor(x), np.nextafter(x.dtype.type(1), x.dtype.type(0)))


def sign(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), x.dtype.type(0), np.where(x == 0, x, np.sign(x)))


def isnormal(x: np.ndarray) -> np.ndarray:
    return np.isfinite(x) & (abs(x) >= np.finfo(x.dtype).tiny)


def scaled(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.ldexp(x, np.clip(np.nan_to_num(y), -400, 400).astype(np.int32))


def predicate(name: str, truth: Callable[[np.ndarray], np.ndarray]) -> Function:
    # g++ 12 does not turn a bool's conversion to float into vector code; a select it does.
    return Function(name, truth, expression=f"{name}(x) ? decltype(x)(1) : decltype(x)(0)")


# Truth is computed in the function's own type. Adding 0 makes a zero's sign +, where it is free.
EXACT = [
    Function("fabs", np.abs),
    Function("abs", np.abs),
    Function("floor", np.floor),
    Function("ceil", np.ceil),
    Function("trunc", np.trunc),
    Function("rint", np.rint),
    Function("round", round_away),
    Function("sign", sign),
    Function("fmod", np.fmod, 2),
    Function("copysign", np.copysign, 2),
    Function("nextafter", np.nextafter, 2),
    Function("fmin", lambda x, y: np.fmin(x, y) + 0, 2, expression="fmin(x, y) + 0"),
    Function("fmax", lambda x, y: np.fmax(x, y) + 0, 2, expression="fmax(x, y) + 0"),
    Function("min", lambda x, y: np.fmin(x, y) + 0, 2, expression="min(x, y) + 0"),
    Function("max", lambda x, y: np.fmax(x, y) + 0, 2, expression="max(x, y) + 0"),
    Function(
        "clamp",
        lambda x: np.fmin(np.fmax(x, -2), 3),
        expression="clamp(x, decltype(x)(-2), decltype(x)(3))",
    ),
    Function("fract", fract),
    Function("saturate", lambda x: np.fmin(np.fmax(x, 0), 1) + 0, expression="saturate(x) + 0"),
    Function("fdim", lambda x, y: np.where(x <= y, 0, x - y), 2),
    Function("step", lambda x, y: np.where(y < x, 0, 1), 2),
    Function("mix", lambda x: 3 + 2 * x, expression="mix(decltype(x)(3), decltype(x)(5), x)"),
    Function("select", lambda x, y: np.where(x > y, y, x), 2, expression="select(x, y, x > y)"),
    Function("fma", lambda x, y: x * y, 2, expression="fma(x, y, decltype(x)(-0.0))"),
    predicate("isnan", np.isnan),
    predicate("isinf", np.isinf),
    predicate("isfinite", np.isfinite),
    predicate("isnormal", isnormal),
    predicate("signbit", np.signbit),
    Function("ldexp", scaled, 2, expression="ldexp(x, clamped_int(y))"),
    Function("mantissa", lambda x: np.frexp(x)[0]),
    Function("exponent", lambda x: np.frexp(x)[1]),
]

HELPERS = """
template <class T>
SOFTWARE_INLINE int clamped_int(T y) {
  y = y == y ? y : T(0);
  return int(clamp(y, T(-400), T(400)));
}
template <class T>
SOFTWARE_INLINE T mantissa(T x) {
  int exponent;
  return frexp(x, exponent);
}
template <class T>
SOFTWARE_INLINE T exponent(T x) {
  int exponent;
  frexp(x, exponent);
  return T(exponent);
}
"""


def unsigned(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def saturated(x: int, bits: int, signed: bool) -> int:
    low = -(1 << (bits - 1)) if signed else 0
    return min(max(x, low), low + (1 << bits) - 1)


def rotated(x: int, n: int, bits: int) -> int:
    x, n = unsigned(x, bits), n % bits
    return x << n | x >> (bits - n)


# Operands, and the truth over Python's integers (x, y, bits, signed), then taken modulo 2^bits.
INTEGER: dict[str, tuple[int, Callable[[int, int, int, bool], int]]] = {
    "popcount": (1, lambda x, y, bits, signed: unsigned(x, bits).bit_count()),
    "clz": (1, lambda x, y, bits, signed: bits - unsigned(x, bits).bit_length()),
    "ctz": (1, lambda x, y, bits, signed: (x & -x).bit_length() - 1 if x else bits),
    "reverse_bits": (
        1,
        lambda x, y, bits, signed: int(format(unsigned(x, bits), f"0{bits}b")[::-1], 2),
    ),
    "abs": (1, lambda x, y, bits, signed: abs(x)),
    "absdiff": (2, lambda x, y, bits, signed: abs(x - y)),
    "addsat": (2, lambda x, y, bits, signed: saturated(x + y, bits, signed)),
    "subsat": (2, lambda x, y, bits, signed: saturated(x - y, bits, signed)),
    "mulhi": (2, lambda x, y, bits, signed: x * y >> bits),
    "rotate": (2, lambda x, y, bits, signed: rotated(x, y, bits)),
    "min": (2, lambda x, y, bits, signed: min(x, y)),
    "max": (2, lambda x, y, bits, signed: max(x, y)),
}

OTHER = """
// Vectors, precisions, SIMD groups of one lane and atomics; 1 for each that is right.
extern "C" void check_other(float* out) {
  const float4 v(1.0f, 2.0f, 3.0f, 4.0f);
  const float4 e = exp(v);
  *out++ = e.x == exp(1.0f) && e.w == exp(4.0f);
  *out++ = precise::exp(1.0f) == exp(1.0f) && metal::fast::sin(2.0f) == sin(2.0f);
  *out++ = all(select(v, -v, v > 2.0f) == float4(1.0f, 2.0f, -3.0f, -4.0f));
  *out++ = any(v == 3.0f) && !any(v == 5.0f);
  *out++ = dot(v, v) == 30.0f;
  *out++ = all(clamp(v, float4(2.0f), float4(3.0f)) == float4(2.0f, 2.0f, 3.0f, 3.0f));
  *out++ = all(popcount(int2(7, 8)) == int2(3, 1));
  *out++ = simd_sum(3.0f) == 3.0f && simd_shuffle_down(2, 1) == 2;
  *out++ = simd_prefix_exclusive_sum(3.0f) == 0.0f && simd_all(true) && !simd_any(false);
  threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);
  atomic_float f{1.5f};
  *out++ = atomic_fetch_add_explicit(&f, 2, memory_order_relaxed) == 1.5f &&
           atomic_load_explicit(&f, memory_order_relaxed) == 3.5f;
  atomic_int i{6};
  atomic_fetch_and_explicit(&i, 3, memory_order_relaxed);
  atomic_fetch_max_explicit(&i, 9, memory_order_relaxed);
  *out++ = atomic_exchange_explicit(&i, 0, memory_order_relaxed) == 9;
}
"""
OTHER_COUNT = OTHER.count("*out++")


def loop(symbol: str, kind: str, operands: int, expression: str) -> str:
    """A function whose second line is the loop: there Built looks for vector code."""
    parameters = "".join(f"const {kind}* __restrict {v}s, " for v in "xy"[:operands])
    values = " ".join(f"{kind} {v} = {v}s[i];" for v in "xy"[:operands])
    return (
        f'extern "C" void {symbol}({parameters}{kind}* __restrict out, long n) {{\n'
        f"  for (long i = 0; i < n; ++i) {{ {values} out[i] = {kind}({expression}); }}\n"
        "}\n"
    )


def source() -> str:
    text = '#include <metal_stdlib>\nusing namespace metal;\n#include "math.metal"\n' + HELPERS
    for f in ROUNDED + EXACT:
        for kind in ("float32", "float64"):
            text += loop(f"{f.name}_{kind}", TYPES[kind], f.operands, f.text)
    for kind in ("float16", "bfloat16"):
        for f in ROUNDED:
            if not f.name.startswith("pjrt_"):
                text += loop(f"{f.name}_{kind}", TYPES[kind], f.operands, f.text)
    for name, (operands, _) in INTEGER.items():
        expression = f"{name}({', '.join('xy'[:operands])})"
        for kind in INTEGER_TYPES:
            text += loop(f"{name}_{kind}", TYPES[kind], operands, expression)
    return text + OTHER


def compiler() -> str:
    names = [os.environ.get("PJRT_METAL_CXX", ""), "g++", "clang++", "c++"]
    found = [path for name in names if name and (path := shutil.which(name))]
    if not found:
        pytest.skip("needs a C++ compiler: $PJRT_METAL_CXX, g++, clang++ or c++ on PATH")
    return found[0]


@dataclass(frozen=True)
class Built:
    library: ctypes.CDLL
    text: list[str]
    vectorized: set[int] | None  # lines (from 1) of loops that became vector code; gcc tells

    def call(self, symbol: str, *operands: np.ndarray) -> np.ndarray:
        out = np.empty_like(operands[0])
        arrays = [np.ascontiguousarray(a) for a in operands]
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, out)]
        getattr(self.library, symbol)(*pointers, ctypes.c_long(out.size))
        return out

    def became_vector_code(self, symbol: str) -> bool:
        assert self.vectorized is not None
        line = next(i for i, s in enumerate(self.text, 1) if f" {symbol}(" in s)
        return line + 1 in self.vectorized


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("math")
    path = folder / "math.cc"
    path.write_text(source())
    command = [compiler(), *FLAGS, "-Wall", "-Wextra", "-Wno-literal-suffix"]
    command += [f"-I{ROOT}/csrc/software/include", f"-I{ROOT}/mlir_lowering/msl"]
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True)
    gcc = "Free Software Foundation" in version.stdout
    if gcc:
        # Functions of equal code (abs, fabs) would otherwise be one, with one loop.
        command += ["-fopt-info-vec-optimized", "-fno-ipa-icf"]
    command += [str(path), "-o", str(folder / "math.so")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    lines = re.findall(r"math\.cc:(\d+):\d+: optimized: +loop vectorized", run.stderr)
    vectorized = {int(line) for line in lines} if gcc else None
    library = ctypes.CDLL(str(folder / "math.so"))
    return Built(library, path.read_text().splitlines(), vectorized)


SPECIAL = [0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 0.1, 8388609.5, 16777216, 16777217, 1e10, 1e30]
SPECIAL += [math.inf, math.nan, 1e-45, 5e-324, 1.17549435e-38, 2.2250738585072014e-308]
SPECIAL += [3.4028235e38, 1.7976931348623157e308, 88.7, 89, 103, 104, 127.99999, 128, 149.5, 709.8]
SPECIAL += [0.99999994, 1.0000001, 0.49999997, 0.70710678, 1.41421356, 1.5707964, 3.1415927, 300]


def operands(count: int, dtype: str) -> list[np.ndarray]:
    """Random bit patterns, random values of moderate size, and all pairs of special values."""
    random = np.random.default_rng(7)
    size = np.dtype(dtype).itemsize
    n = 100_000
    bits = [random.integers(0, 256, n * size, dtype=np.uint8).view(dtype) for _ in range(count)]
    moderate = [random.standard_normal(n) * 10 ** random.uniform(-3, 2, n) for _ in range(count)]
    near = [random.uniform(-2, 2, n) for _ in range(count)]
    if count == 2:
        # Powers of negative numbers are rarely numbers.
        moderate[0][: n * 3 // 4] = abs(moderate[0][: n * 3 // 4])
        near[1] = np.rint(near[1] * 4)
    special = np.array(SPECIAL + [-x for x in SPECIAL])
    pairs = [special] if count == 1 else [m.ravel() for m in np.meshgrid(special, special)]
    with np.errstate(over="ignore"):
        parts = zip(bits, moderate, near, pairs, strict=True)
        return [np.concatenate([p.astype(dtype) for p in ps]) for ps in parts]


def check(f: Function, got: np.ndarray, wanted: np.ndarray, inputs: list[np.ndarray], ulp: float) -> None:
    """`wanted` in higher precision: equal where its rounding is 0, infinite or NaN, else near."""
    rounded = wanted.astype(got.dtype)
    exact = ~np.isfinite(rounded) | (rounded == 0)
    same = (rounded == got) & (np.signbit(rounded) == np.signbit(got))
    same |= np.isnan(rounded) & np.isnan(got)
    unit = np.spacing(np.where(exact, 1, abs(rounded)).astype(got.dtype)).astype(wanted.dtype)
    with np.errstate(all="ignore"):
        error = abs(got.astype(wanted.dtype) - wanted) / unit
    wrong = np.where(exact, ~same, ~(error <= ulp))
    if wrong.any():
        at = np.flatnonzero(wrong)
        i = at[np.argmax(np.nan_to_num(np.where(exact[at], np.inf, error[at])))]
        raise AssertionError(
            f"{f.name}({', '.join(str(x[i]) for x in inputs)}) is {got[i]}, not {wanted[i]} "
            f"({error[i]} ulp; {at.size} of {got.size} are wrong)"
        )


@pytest.mark.parametrize("f", ROUNDED, ids=lambda f: f.name)
def test_float(built: Built, f: Function) -> None:
    inputs = operands(f.operands, "float32")
    with np.errstate(all="ignore"):
        wanted = f.truth(*[x.astype(np.float64) for x in inputs])
        check(f, built.call(f"{f.name}_float32", *inputs), wanted, inputs, f.ulp)


@pytest.mark.parametrize("f", ROUNDED, ids=lambda f: f.name)
def test_double(built: Built, f: Function) -> None:
    inputs = operands(f.operands, "float64")
    with np.errstate(all="ignore"):
        wanted = f.truth(*[x.astype(np.longdouble) for x in inputs])
        check(f, built.call(f"{f.name}_float64", *inputs), wanted, inputs, DOUBLE_ULP)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", EXACT, ids=lambda f: f.name)
def test_exact(built: Built, f: Function, dtype: str) -> None:
    inputs = operands(f.operands, dtype)
    with np.errstate(all="ignore"):
        wanted = f.truth(*inputs).astype(dtype)
        check(f, built.call(f"{f.name}_{dtype}", *inputs), wanted, inputs, 0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("f", [f for f in ROUNDED if "pjrt" not in f.name], ids=lambda f: f.name)
def test_small_floats(built: Built, f: Function, dtype: str) -> None:
    """The float function's result, rounded: every 16-bit pattern, the second operand shuffled."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    inputs = [patterns.view(kind), np.random.default_rng(7).permutation(patterns).view(kind)]
    inputs = inputs[: f.operands]
    got = built.call(f"{f.name}_{dtype}", *inputs)
    wide = built.call(f"{f.name}_float32", *[x.astype(np.float32) for x in inputs])
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = wide.astype(kind)
    same = (got.view(np.uint16) == wanted.view(np.uint16)) | (np.isnan(got) & np.isnan(wanted))
    assert same.all(), f"{f.name}({[x[~same][0] for x in inputs]})"


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
@pytest.mark.parametrize("name", INTEGER)
def test_integer(built: Built, name: str, dtype: str) -> None:
    count, truth = INTEGER[name]
    info = np.iinfo(dtype)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7]
    random = np.random.default_rng(7)
    size = np.dtype(dtype).itemsize
    inputs = []
    for grid in np.meshgrid(np.array(edges, dtype), np.array(edges, dtype)):
        noise = random.integers(0, 256, 1000 * size, dtype=np.uint8).view(dtype)
        inputs.append(np.concatenate([grid.ravel(), noise]))
    got = built.call(f"{name}_{dtype}", *inputs[:count])
    signed = info.min < 0
    for x, y, value in zip(*[a.tolist() for a in (*inputs, got)], strict=True):
        wanted = truth(x, y, info.bits, signed)
        assert unsigned(value, info.bits) == unsigned(wanted, info.bits), (name, x, y)


def test_other(built: Built) -> None:
    out = np.zeros(OTHER_COUNT, np.float32)
    built.library.check_other(ctypes.c_void_p(out.ctypes.data))
    assert out.tolist() == [1.0] * OTHER_COUNT


def test_vector_code(built: Built) -> None:
    if built.vectorized is None:
        pytest.skip("only gcc lists the loops it turned into vector code")
    symbols = [f"{f.name}_float32" for f in ROUNDED + EXACT]
    # The absolute value of an unsigned integer is a copy: memcpy.
    symbols += [f"{name}_{kind}" for name in INTEGER for kind in ("int32", "uint32")]
    symbols.remove("abs_uint32")
    assert [s for s in symbols if not built.became_vector_code(s)] == []
