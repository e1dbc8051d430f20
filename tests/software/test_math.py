"""The stand-in for <metal_stdlib>: errors in ulp against float64, special values, and that loops become vector code."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = (
    "-std=c++17 -O3 -march=native -fopenmp-simd -fno-math-errno -fno-trapping-math -fwrapv "
    "-ffp-contract=fast -mprefer-vector-width=512 -fPIC -shared"
).split()
Array = np.ndarray


def elementwise(f: Callable[..., float]) -> Callable[..., Array]:
    """A float64 function of the standard library, over arrays; NaN where it raises."""
    return np.vectorize(f, otypes=[np.float64])


def erf(x: Array) -> Array:
    import math

    return elementwise(math.erf)(x)


def erfc(x: Array) -> Array:
    import math

    return elementwise(math.erfc)(x)


def round_away(x: Array) -> Array:
    return np.copysign(np.trunc(np.abs(x) + 0.5), x)


@dataclass(frozen=True)
class Function:
    """One function: how many operands, the bound in ulp (0: exact), the float64 truth."""

    name: str
    ulp: float
    truth: Callable[..., Array]
    operands: int = 1


FUNCTIONS = [
    Function("exp", 1.5, np.exp),
    Function("exp2", 1.5, np.exp2),
    Function("exp10", 2, lambda x: np.power(10.0, x)),
    Function("log", 1.5, np.log),
    Function("log2", 1.5, np.log2),
    Function("log10", 1.5, np.log10),
    Function("sin", 1, np.sin),
    Function("cos", 1, np.cos),
    Function("tan", 1, np.tan),
    Function("asin", 1, np.arcsin),
    Function("acos", 1, np.arccos),
    Function("atan", 1.5, np.arctan),
    Function("atan2", 1.5, np.arctan2, 2),
    Function("sinh", 1.5, np.sinh),
    Function("cosh", 1.5, np.cosh),
    Function("tanh", 1.5, np.tanh),
    Function("asinh", 1, np.arcsinh),
    Function("acosh", 1, np.arccosh),
    Function("atanh", 1, np.arctanh),
    Function("pow", 1, np.power, 2),
    Function("sqrt", 0.5, np.sqrt),
    Function("rsqrt", 1.5, lambda x: 1 / np.sqrt(x)),
    Function("pjrt_erf", 4, erf),
    Function("pjrt_erfc", 4, erfc),
    Function("pjrt_expm1", 2, np.expm1),
    Function("pjrt_log1p", 2, np.log1p),
    Function("pjrt_cbrt", 1, np.cbrt),
    Function("floor", 0, np.floor),
    Function("ceil", 0, np.ceil),
    Function("trunc", 0, np.trunc),
    Function("rint", 0, np.rint),
    Function("round", 0, round_away),
    Function("fabs", 0, np.abs),
    Function("fmod", 0, np.fmod, 2),
    Function("fmin", 0, np.fmin, 2),
    Function("fmax", 0, np.fmax, 2),
    Function("copysign", 0, np.copysign, 2),
]


def source() -> str:
    math = (ROOT / "mlir_lowering/msl/math.metal").read_text()
    lines = [f"#include <metal_stdlib>\nusing namespace metal;\n{math}"]
    for f in FUNCTIONS:
        for kind in ("float", "double"):
            if kind == "double" and f.name == "exp10":
                continue
            operands = ", ".join(f"const {kind}* __restrict {v}" for v in "xy"[: f.operands])
            call = ", ".join(f"{v}[i]" for v in "xy"[: f.operands])
            lines.append(
                f'extern "C" void {f.name}_{kind}({operands}, {kind}* __restrict out, long n) {{\n'
                f"  for (long i = 0; i < n; ++i) out[i] = {f.name}({call});\n}}"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    print(source())
