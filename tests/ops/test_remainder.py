"""The remainder of floats is exact at every pair of bit patterns: math.metal's own loop, since Metal's fmod is not."""

from __future__ import annotations

import jax
import numpy as np
from jax import lax


def test_remainder_is_exact() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, (2, 200_000), dtype=np.uint32)
    a, b = bits.view(np.float32)
    near = a.view(np.int32) + rng.integers(-(40 << 23), 40 << 23, a.shape).astype(np.int32)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 1.17549435e-38, 3.4e38], np.float32)
    left = np.concatenate([a, a, np.repeat(special, len(special)), a[:1000]])
    right = np.concatenate([b, near.view(np.float32), np.tile(special, len(special)), a[:1000]])
    device = jax.devices("metal")[0]
    found = np.asarray(jax.jit(lax.rem)(jax.device_put(left, device), jax.device_put(right, device)))
    with np.errstate(invalid="ignore"):
        expected = np.fmod(left, right)
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(found), ~numbers)
    assert np.array_equal(found[numbers].view(np.uint32), expected[numbers].view(np.uint32))
