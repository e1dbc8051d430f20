"""Arrays without elements, as operands, windows and updates of every kind of op, against the CPU.

All of them are one program, jitted: what has no elements is simplified away there, or reaches the schedules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

f = np.float32
i0 = np.int32(1)


def A(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(f)


CASES: tuple[tuple[Any, ...], ...] = (
    (lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), A(5), A(0), i0),
    (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), A(5, 4), A(2, 0), i0),
    (lambda x, u, i: lax.dynamic_update_slice(x, u, (i, i)), A(0, 4), A(0, 2), i0),
    (lambda x, u, i: lax.dynamic_update_slice(x * 2, u * 2, (i,)).sum(), A(5), A(0), i0),
    (lambda x, i: lax.dynamic_slice(x, (i,), (0,)), A(5), i0),
    (lambda x, i: lax.dynamic_slice(x, (i, i), (0, 2)).sum(0), A(5, 3), i0),
    (lambda x: x.at[np.zeros((0,), np.int32)].add(1.0), A(5)),
    (lambda x, u: x.at[jnp.zeros((0,), jnp.int32)].set(u), A(5, 3), A(0, 3)),
    (lambda x: x.at[jnp.zeros((3,), jnp.int32), 0:0].add(1.0), A(5, 4)),
    (lambda x: x[jnp.zeros((0,), jnp.int32)], A(5, 3)),
    (lambda x: x[jnp.zeros((2,), jnp.int32)], A(5, 0)),
    (lambda x, y: x @ y, A(3, 0), A(0, 4)),
    (lambda x, y: x @ y, A(0, 3), A(3, 4)),
    (lambda x, y: jnp.tanh(x @ y) + 1, A(3, 0), A(0, 4)),
    (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), A(0, 3, 2), A(0, 2, 4)),
    (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), A(2, 3, 0), A(2, 0, 4)),
    (lambda x, y: x @ y, A(3, 0).astype(np.complex64), A(0, 4).astype(np.complex64)),
    (lambda x, y: x @ y, A(3, 0).astype(np.int32), A(0, 4).astype(np.int32)),
    (lambda x, y: x @ y, A(3, 0), A(0)),
    (lambda x: x.sum(0), A(0, 3)),
    (lambda x: x.sum(1), A(0, 3)),
    (lambda x: x.sum(), A(0, 3)),
    (lambda x: jnp.max(x, 0, initial=-2.0), A(0, 3)),
    (lambda x: jnp.argmax(x, 1), A(0, 3)),
    (lambda x, y: lax.reduce((x, y), (f(0), f(1)), lambda a, b: (a[0] + b[1], a[1] * b[0]), (1,)), A(0, 3), A(0, 3)),
    (lambda x: lax.reduce(x, f(3), lambda a, b: a * b + a, (0,)), A(0, 3)),
    (lambda x, y: jnp.tanh(x.sum(0) + y), A(0, 3), A(3)),
    (lambda x: jnp.sort(x, 0), A(0, 3)),
    (lambda x: jnp.sort(x, 0), A(3, 0)),
    (lambda x: jnp.argsort(x, 1), A(3, 0)),
    (lambda x: lax.top_k(x, 0), A(3, 4)),
    (lambda x: jnp.cumsum(x, 0), A(0, 3)),
    (lambda x: jnp.cumsum(x, 1), A(0, 3)),
    (lambda x: lax.cummax(x, 1), A(0, 3)),
    (lambda x: lax.reduce_window(x, f(0), lax.add, (2, 1), (1, 1), "VALID"), A(1, 3)),
    (lambda x: lax.reduce_window(x, f(0), lax.add, (2, 1), (1, 1), ((3, 3), (0, 0))), A(0, 3)),
    (lambda x: lax.reduce_window(x, f(0), lax.add, (2, 2), (1, 1), "SAME"), A(4, 0)),
    (lambda x: lax.reduce_window(x, -np.inf, lax.max, (2, 1), (1, 1), ((1, 1), (0, 0))), A(0, 3)),
    (lambda x: jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "VALID").sum())(x), A(0, 3)),
    (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), A(0, 3, 4, 4), A(2, 3, 3, 3)),
    (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), A(1, 3, 4, 4), A(0, 3, 3, 3)),
    (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((2, 2), (2, 2))), A(1, 3, 0, 4), A(2, 3, 3, 3)),
    (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), ((0, 0), (0, 0)), lhs_dilation=(2, 2)),
        A(1, 3, 1, 1),
        A(2, 3, 2, 2),
    ),
    (lambda x: jnp.pad(x, ((1, 1), (0, 0))), A(0, 3)),
    (lambda x: lax.pad(x, f(1), ((2, 1, 3), (0, 0, 2))), A(0, 3)),
    (lambda x, y: jnp.concatenate([x, y]), A(0, 3), A(0, 3)),
    (lambda x: lax.scan(lambda c, y: (c + y.sum(), c * y), f(1), x), A(0, 3)),
    (lambda x: lax.while_loop(lambda s: s[1] < 3, lambda s: (s[0] * 2, s[1] + 1), (x, 0)), A(0)),
    (lambda x: lax.cond(x.sum() > 0, lambda x: x * 2, lambda x: x, x), A(0)),
    (lambda x: lax.bitcast_convert_type(x, np.uint8), A(0, 3)),
    (lambda x: jax.ops.segment_sum(x, jnp.zeros((0,), jnp.int32), 3), A(0, 2)),
    (lambda x: jax.ops.segment_sum(x, jnp.zeros((4,), jnp.int32), 0), A(4, 2)),
    (lambda x: x.T @ x, A(0, 3)),
)


def test_empty_arrays() -> None:
    functions: list[Callable[..., Any]] = [case[0] for case in CASES]
    arguments = [case[1:] for case in CASES]

    def program(arguments: list[tuple[Any, ...]]) -> list[Any]:
        return [function(*a) for function, a in zip(functions, arguments, strict=True)]

    expected = jax.jit(program)(jax.device_put(arguments, jax.devices("cpu")[0]))
    found = jax.jit(program)(jax.device_put(arguments, jax.devices("metal")[0]))
    for e, r in zip(expected, found, strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), r, e)
