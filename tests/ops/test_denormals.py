"""Denormals are zeros to arithmetic and comparisons, as to XLA on the CPU and to Apple's GPUs; what only moves keeps
them; half has them (docs/design.md, Arithmetic)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

METAL, CPU = jax.devices("metal")[0], jax.devices("cpu")[0]


def run(device: jax.Device, f: Callable[..., Any], *args: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(f)(*(jax.device_put(a, device) for a in args)))


def values(dtype: Any) -> np.ndarray[Any, Any]:
    """Denormals, zeros, the least normal numbers, in no order; 40 of them, so that vector code runs."""
    tiny = float(ml_dtypes.finfo(dtype).tiny)
    some = [tiny / 8, -tiny / 8, 0.0, -0.0, tiny * 0.75, 1.5 * tiny, -1.5 * tiny, tiny / 4]
    return np.array(some * 5).astype(dtype)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + x,
    "underflow": lambda x: x * 0.5,
    "quotient": lambda x: (x / 3, 1 / x),
    "comparisons": lambda x: (x == 0, x > 0, x >= 0, x != 0, x < -x),
    "sort": jnp.sort,
    "argsort": jnp.argsort,
    "sign": jnp.sign,
    "maximum": lambda x: (jnp.maximum(x, 0), jnp.minimum(x, 0)),
    "sum": lambda x: (jnp.abs(x[:8]).sum(), jnp.cumsum(x[:8])),
    "root": lambda x: jnp.sqrt(jnp.abs(x)),
    "logarithm": lambda x: jnp.log(jnp.abs(x)),
    "dot": lambda x: x[:8] @ jnp.ones(8, x.dtype),
    "extremes": lambda x: (jnp.argmax(x[:5]), jnp.argmin(x[:3]), x[:5].max() > 0),
    "to integer": lambda x: x.astype(jnp.int32),
    "to bool": lambda x: x.astype(bool),
    "select": lambda x: jnp.where(x > 0, 1, 2),
    "searchsorted": lambda x: jnp.searchsorted(jnp.sort(x), x),
}


def flushed(x: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    return (
        np.where(np.abs(x) < ml_dtypes.finfo(dtype).tiny, np.copysign(np.zeros_like(x), x), x)
        if x.dtype == dtype
        else x
    )


# Of double the host's libm reads the bits, whatever the CPU is told: its logarithm of a denormal is a number.
CASES = [
    (name, dtype)
    for name in FUNCTIONS
    for dtype in (np.float32, ml_dtypes.bfloat16, np.float64)
    if (name, dtype) != ("logarithm", np.float64)
]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_are_zeros(name: str, dtype: Any) -> None:
    """The CPU's results for zeros in their place. (Its own for bf16's denormals are not always those.)"""
    x = values(dtype)
    got, want = run(METAL, FUNCTIONS[name], x), run(CPU, FUNCTIONS[name], flushed(x, dtype))

    def check(a: Any, b: Any) -> None:
        # What selects (a sort, a minimum) moves the number it selects.
        a = flushed(a, dtype).astype(np.float64)
        np.testing.assert_allclose(a, b.astype(np.float64), rtol=1e-6, atol=0)
        if name != "maximum":  # of equal zeros
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b.astype(np.float64)))

    jax.tree.map(check, got, want)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16, np.float16])
def test_moves_keep_their_bits(dtype: Any) -> None:
    x = values(dtype)

    def move(x: jax.Array) -> tuple[jax.Array, ...]:
        picked = jnp.where(jnp.arange(40) % 2 == 0, x, x[::-1])
        return x.reshape(5, 8).T, x[jnp.arange(40)[::-1]], picked, jnp.concatenate([x[3:], x[:3]]), -x, jnp.abs(x)

    got = run(METAL, move, x)
    want = (x.reshape(5, 8).T, x[::-1], np.where(np.arange(40) % 2 == 0, x, x[::-1]), np.roll(x, -3), -x, np.abs(x))
    for a, b in zip(got, want, strict=True):
        assert a.tobytes() == np.ascontiguousarray(b).tobytes()


def test_half_has_denormals() -> None:
    x = np.arange(2048, dtype=np.uint16).view(np.float16)
    x = np.concatenate([x, -x])
    wide, doubled, positive = run(METAL, lambda x: (x.astype(jnp.float32), x + x, x > 0), x)
    np.testing.assert_array_equal(wide, x.astype(np.float32))
    np.testing.assert_array_equal(doubled, x + x)
    np.testing.assert_array_equal(positive, x > 0)
    np.testing.assert_array_equal(run(METAL, lambda x: x.astype(jnp.float16), wide), x)


def test_the_programs_own_arithmetic_is_left_alone() -> None:
    def check(x: Any) -> Any:
        return np.asarray(x) * 0 + np.float32(1e-40) * np.float32(2)

    shape = jax.ShapeDtypeStruct((3,), np.float32)
    got = run(METAL, lambda x: jax.pure_callback(check, shape, x + 1), np.ones(3, np.float32))
    want = np.full(3, np.float32(1e-40) * np.float32(2))
    assert want[0] > 0
    np.testing.assert_array_equal(got, want)
