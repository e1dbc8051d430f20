"""Kernels that would need one another if they took in all that they could (tests/compiler has random programs)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest


def _crossed(a: Any, b: Any) -> Any:
    p, q = jnp.tanh(a @ a.T), jnp.tanh(b[:2] @ b[:2].T)
    return p + q.max(), q + p.max()


def _apart(a: Any, b: Any) -> Any:
    p, q = jnp.tanh(a @ a.T), jnp.tanh(b @ b.T)
    return p + q.max(), q + p.max()


def _through_a_sort(x: Any, z: Any) -> Any:
    s, r = z.sum(0), x.sum(0)
    return (z * r).sum(0), (x * jnp.sort(s)).sum(0)


CASES = ((_crossed, (2, 3), (5, 2)), (_apart, (2, 3), (5, 2)), (_through_a_sort, (8, 4), (8, 4)))


@pytest.mark.parametrize(("function", "first", "second"), CASES, ids=lambda case: getattr(case, "__name__", None))
def test_no_cycle(function: Any, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in (first, second)]
    with jax.default_device(jax.devices("cpu")[0]), jax.disable_jit():
        expected = function(*map(jnp.asarray, arguments))
    for found, wanted in zip(jax.jit(function)(*arguments), expected, strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-5, atol=1e-6)
