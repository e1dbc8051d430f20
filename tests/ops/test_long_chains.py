"""Long chains in one kernel: functions out of line, long indices as variables; against numpy in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

METAL = jax.devices("metal")[0]


def chain(f: Callable[[Any, Any, int], Any], n: int, xp: Any, x: Any) -> Any:
    for i in range(n):
        x = f(xp, x, i)
    return x


def pixels(xp: Any, x: Any, i: int) -> Any:
    a, b, c = ((3, 4, 5), (2, 5, 6), (10, 2, 3))[i % 3]
    return xp.sin(x.reshape(a, b, c).transpose(2, 0, 1).reshape(-1) + i)


STEPS: dict[str, Callable[[Any, Any, int], Any]] = {
    "sin": lambda xp, x, i: xp.sin(x + 1),
    "exp and log": lambda xp, x, i: xp.log(1 + xp.exp(-x * x)),
    "tanh": lambda xp, x, i: xp.tanh(x + 0.5),
    "expm1 and log1p": lambda xp, x, i: xp.log1p(xp.expm1(xp.abs(x) * 0.9) * 0.8),
    "power": lambda xp, x, i: xp.power(xp.abs(x) + 0.1, 0.7),
    "remainder": lambda xp, x, i: xp.fmod(x * 1.5 + 1, 1.25),
    "atan2 and cosh": lambda xp, x, i: xp.arctan2(xp.cosh(x * 0.3), x + 2),
    "reshaped transposes": pixels,
    "rolled": lambda xp, x, i: (xp.roll(x, 1) + x) * 0.5,
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_numpy(name: str, dtype: Any) -> None:
    """67 numbers (60 that are reshaped) fill vectors and leave a rest; a double in such a kernel is no float."""
    x = np.random.default_rng(5).uniform(-1, 1, 60 if name == "reshaped transposes" else 67).astype(dtype)
    with jax.enable_x64(True):
        got = jax.jit(lambda x: chain(STEPS[name], 30, jnp, x))(jax.device_put(x, METAL))
    assert got.dtype == dtype
    want = chain(STEPS[name], 30, np, x.astype(np.float64))
    tolerance = 3e-5 if dtype is np.float32 else 1e-13
    if name == "remainder" and dtype is np.float32:
        # Chaotic near the jumps: in float32 step by step, where the remainder is exact.
        want = chain(lambda xp, x, i: np.fmod(x * np.float32(1.5) + np.float32(1), np.float32(1.25)), 30, np, x)
        tolerance = 0
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance)


def test_half_in_a_kernel_of_many_functions() -> None:
    x = np.random.default_rng(6).uniform(-1, 1, 67).astype(np.float16)
    got = np.asarray(jax.jit(lambda x: chain(STEPS["tanh"], 30, jnp, x))(jax.device_put(x, METAL)))
    want = chain(lambda xp, x, i: np.tanh((x + np.float16(0.5)).astype(np.float64)).astype(np.float16), 30, np, x)
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), atol=2e-3)
