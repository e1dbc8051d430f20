"""JAX's contractions on the fake GPU against the CPU: run by test_library.py in a process with the fake preloaded.

    python -m tests.metal.library_cases NAME...

prints for each case a line "NAME CALLS ERROR": how many executables MPSGraph encoded, and the largest difference in
units of the type's rounding. The last line is "violations: TEXT".
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any
Case = tuple[Callable[..., Array], list[tuple[int, ...]], str]
NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def _convolution(source: tuple[int, ...], weights: tuple[int, ...], *arguments: Any, **options: Any) -> dict[str, Case]:
    """A convolution and its gradients; `options` may hold the element type."""
    dtype = options.pop("dtype", "float32")

    def convolve(x: Array, w: Array) -> Array:
        return lax.conv_general_dilated(x, w, *arguments, **options)

    x, w = (jax.ShapeDtypeStruct(shape, dtype) for shape in (source, weights))
    result = jax.eval_shape(convolve, x, w).shape

    def input_gradient(g: Array, w: Array) -> Array:
        return jax.linear_transpose(lambda x: convolve(x, w), jax.ShapeDtypeStruct(source, g.dtype))(g)[0]

    def filter_gradient(g: Array, x: Array) -> Array:
        return jax.linear_transpose(lambda w: convolve(x, w), jax.ShapeDtypeStruct(weights, g.dtype))(g)[0]

    return {
        "": (convolve, [source, weights], dtype),
        "_input": (input_gradient, [result, weights], dtype),
        "_filter": (filter_gradient, [result, source], dtype),
    }


_CONVOLUTIONS = {
    "nhwc": _convolution((2, 8, 7, 5), (3, 3, 5, 6), (1, 1), "SAME", dimension_numbers=NHWC),
    "nchw": _convolution((2, 5, 8, 7), (6, 5, 3, 2), (1, 1), "SAME", dimension_numbers=NCHW),
    "strided": _convolution((2, 10, 9, 5), (3, 2, 5, 6), (2, 3), "VALID", dimension_numbers=NHWC),
    "dilated": _convolution(
        (2, 5, 9, 9), (6, 5, 3, 3), (1, 1), [(2, 1), (1, 2)], rhs_dilation=(2, 1), dimension_numbers=NCHW
    ),
    "grouped": _convolution(
        (2, 9, 9, 6), (3, 3, 2, 9), (2, 2), [(1, 1), (1, 1)], feature_group_count=3, dimension_numbers=NHWC
    ),
    "depthwise": _convolution(
        (2, 6, 6, 4), (3, 3, 1, 4), (1, 1), "SAME", feature_group_count=4, dimension_numbers=NHWC
    ),
    "one": _convolution((2, 9, 5), (3, 5, 6), (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")),
    "half": _convolution((2, 6, 6, 5), (3, 3, 5, 6), (1, 1), "SAME", dimension_numbers=NHWC, dtype="float16"),
    "bfloat": _convolution((2, 6, 6, 5), (3, 3, 5, 6), (1, 1), "SAME", dimension_numbers=NHWC, dtype="bfloat16"),
}

CASES: dict[str, Case] = {
    "dot": (jnp.matmul, [(20, 30), (30, 10)], "float32"),
    "dot_half": (jnp.matmul, [(20, 30), (30, 10)], "float16"),
    "dot_bfloat": (jnp.matmul, [(20, 30), (30, 10)], "bfloat16"),
    # Shares of k: two kernels.
    "dot_long": (jnp.matmul, [(16, 512), (512, 16)], "float32"),
    "dot_batched": (lambda a, b: jnp.einsum("bihk,bjhk->bhij", a, b), [(2, 6, 3, 5), (2, 7, 3, 5)], "float32"),
    "dot_transposed": (lambda a, b: a.T @ b.T, [(30, 20), (10, 30)], "float32"),
    # What the second reads lies within the arena.
    "dot_dot": (lambda a, b, c: (a @ b) @ (c @ b), [(20, 30), (30, 10), (10, 30)], "float32"),
    # Not the library's: work in front of it, work behind it, an integer type.
    "prologue": (lambda a, b: jnp.exp(a) @ b, [(20, 30), (30, 10)], "float32"),
    "epilogue": (lambda a, b: jnp.exp(a @ b), [(20, 30), (30, 10)], "float32"),
    "integers": (jnp.matmul, [(20, 30), (30, 10)], "int32"),
} | {f"{name}{form}": case for name, forms in _CONVOLUTIONS.items() for form, case in forms.items()}


def main(names: list[str]) -> None:
    fake = ctypes.CDLL(None)
    fake.FakeViolations.restype = ctypes.c_char_p
    rng = np.random.default_rng(0)
    metal, cpu = jax.devices("metal")[0], jax.devices("cpu")[0]
    for name in names:
        if name in ("assert", "kill", ""):
            fake.FakeFail(name.encode())
            continue
        function, shapes, dtype = CASES[name]
        arguments = [(rng.standard_normal(shape) * 4 / 8).astype(dtype) for shape in shapes]
        before = fake.FakeGraphCalls()
        got = jax.block_until_ready(jax.jit(function)(*jax.device_put(arguments, metal)))
        calls = fake.FakeGraphCalls() - before
        wide = [a.astype(np.float64) if dtype != "int32" else a for a in arguments]
        with jax.enable_x64(True):
            wanted = np.asarray(jax.jit(function)(*jax.device_put(wide, cpu)))
        unit = jnp.finfo(dtype).eps if dtype != "int32" else 1.0
        difference = np.abs(np.asarray(got).astype(np.float64) - wanted)
        print(name, calls, float(np.max(difference / (unit * (1 + np.abs(wanted))))))
    print("violations:", fake.FakeViolations().decode().replace("\n", "; "))


if __name__ == "__main__":
    main(sys.argv[1:])
