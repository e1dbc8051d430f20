"""Results that one kernel could hold for the element at hand are also read at other elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

# What makes a matrix of a and b (17, 17), by a schedule of its own.
HEADS: dict[str, Callable[[Any, Any], Any]] = {
    "dot": lambda a, b: a @ b,
    "convolution": lambda a, b: lax.conv(a[None, None], b[None, None, :3, :3], (1, 1), "SAME")[0, 0],
    "reduce": lambda a, b: (a[:, :, None] * b).sum(1),
    "reduce_window": lambda a, b: lax.reduce_window(a, 0.0, lax.add, (3, 3), (1, 1), "SAME"),
    "cumsum": lambda a, b: jnp.cumsum(a, 1),
    "sort": lambda a, b: jnp.sort(a),
    "scatter": lambda a, b: a.at[jnp.argsort(b[0])].add(b),
    "pointwise": lambda a, b: jnp.tanh(a) * b,
}

READERS: dict[str, Callable[[Any], Any]] = {
    "transpose": lambda h: h + h.T,
    "reverse": lambda h: h - 2 * h[::-1],
    "slice": lambda h: h - h[:1],
    "roll": lambda h: h * jnp.roll(h, 1, 1),
    "gather": lambda h: h + h[jnp.argsort(h[:, 0])],
    "pad": lambda h: h + lax.pad(h[1:], 0.0, ((0, 1, 0), (0, 0, 0))),
    "pointwise before": lambda h: (lambda g: g - g.T)(jnp.tanh(h) + 1),
    "reduced as well": lambda h: h - h.mean(0),
    "whole sum": lambda h: h.mean() + ((h - h.mean()) ** 2).sum(),
    "logsumexp": lambda h: jax.nn.logsumexp(h, axis=1),
    "logsumexp of all": jax.nn.logsumexp,
    "maximum and sum": lambda h: jnp.log(jnp.exp(h - h.max(1, keepdims=True)).sum(1)) + h.max(1),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("head", HEADS)
def test_equals_the_cpus(head: str, reader: str) -> None:
    a, b = np.random.default_rng(5).normal(size=(2, 17, 17)).astype(np.float32)
    function = jax.jit(lambda a, b: READERS[reader](HEADS[head](a, b)))
    metal, cpu = (np.asarray(function(*jax.device_put((a, b), jax.devices(p)[0]))) for p in ("metal", "cpu"))
    np.testing.assert_allclose(metal, cpu, rtol=1e-4, atol=1e-4)
