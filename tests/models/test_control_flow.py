"""Loops, branches and in-place updates: each read sees the value it names, whatever shares memory.

The oracle runs the same functions op by op on the CPU (jax.disable_jit), where nothing is compiled together. Values
are small integers, so that both agree to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

Function = Callable[..., Any]


def _flag(x: Any) -> Any:
    """The condition reads the flag, the body does not, the caller does."""
    return lax.while_loop(lambda s: ~s[1], lambda s: (s[0] * 2, s[0] > 7), (x[0] + 1, False))


def _flag_itself(x: Any) -> Any:
    return lax.while_loop(lambda s: s[1], lambda s: (s[0] * 2, s[0] < 70), (x[0] + 1, True))


def _sorted_in_the_condition(x: Any) -> Any:
    """The condition's temporaries must not take the carried array's memory."""
    return lax.while_loop(lambda c: jnp.sort(-c[1])[0] < -1, lambda c: (c[0] + 1, x - c[0] * 2), (0, x))


def _written_in_the_condition(x: Any) -> Any:
    return lax.while_loop(
        lambda c: (-c[0]).at[c[1]].set(-9).min() < -5 - c[1], lambda c: (x - c[1], c[1] + 1), (x, jnp.int32(0))
    )


def _no_iteration(x: Any) -> Any:
    return lax.while_loop(lambda c: (c[0] * 2).sum() < -(10**6), lambda c: (c[0] + 1, c[0][::-1]), (x, x[::-1]))


def _solver(x: Any) -> Any:
    """`done`, `converged` and a count, as solvers carry them."""

    def step(state: Any) -> Any:
        y, _, _, count = state
        following = y - y // 2
        return following, y, jnp.all(following == y), count + 1

    return lax.while_loop(lambda s: ~s[2] & (s[3] < 20), step, (jnp.abs(x), x, jnp.bool_(False), 0))


def _flag_of_an_inner_loop(x: Any) -> Any:
    def body(outer: Any) -> Any:
        y, _, count = outer
        z, flag = lax.while_loop(lambda s: ~s[1], lambda s: (s[0] + 1, s[0].sum() > 4 * count), (y, False))
        return z, flag, count + jnp.where(flag, 1, 100)

    return lax.while_loop(lambda s: s[2] < 4, body, (x, False, 0))


def _loop_in_a_condition(x: Any) -> Any:
    def condition(state: Any) -> Any:
        total, flag = lax.while_loop(lambda s: ~s[1], lambda s: (s[0] + 7, s[0] > 10), (state[0].sum(), False))
        return flag & (total < 60)

    return lax.while_loop(condition, lambda s: (s[0] + 3, s[0]), (x, x))


def _branches_in_a_loop(x: Any) -> Any:
    def body(i: Any, state: Any) -> Any:
        a, b = state
        return lax.cond(i % 2 == 0, lambda: (b.at[i].add(1), a), lambda: (a * 2, b.at[i].set(a[0])))

    return lax.fori_loop(0, x.shape[0], body, (x, x[::-1]))


def _loops_in_branches(x: Any) -> Any:
    def loop(y: Any) -> Any:
        return lax.while_loop(lambda s: ~s[1], lambda s: (s[0] * 2, s[0].max() > 20), (y, False))

    def branch(y: Any) -> Any:
        return lax.switch(y[0] % 3, [lambda y: (y, True), loop, lambda y: (loop(y + 1)[0] - y, False)], y)

    return branch(x), branch(x + 1), branch(x + 2)


def _swapped(x: Any) -> Any:
    return lax.while_loop(
        lambda s: (s[0][0] + s[1].sum()) < 300, lambda s: (s[1], s[0] * 2, s[0].max()), (x, x[::-1] + 1, x[0])
    )


def _rotated_by_a_scan(x: Any) -> Any:
    def body(carry: Any, row: Any) -> Any:
        a, b, c = carry
        return (b, c, a.at[row].add(b.sum())), (a[0], c.max())

    return lax.scan(body, (x, x * 2, x * 3), jnp.arange(x.shape[0]))


def _outer_value_carried_on(x: Any) -> Any:
    """The body's next value is one from outside the loop."""
    y = x * 3
    return lax.while_loop(lambda s: s[0].sum() < 30, lambda s: (y + s[1], s[1] + 1, y), (x, 0, x)), y


def _same_next_value_twice(x: Any) -> Any:
    def body(s: Any) -> Any:
        t = s[0] + s[1]
        return t, t, s[0]

    return lax.while_loop(lambda s: s[0].max() < 50, body, (x, x[::-1], x))


def _updated_in_place(x: Any) -> Any:
    def body(state: Any) -> Any:
        y, z, i = state
        y = lax.dynamic_update_slice(y, z[:2], (i,))
        return y, z + y[0], i + 1

    return lax.while_loop(lambda s: (s[1].sum() < 90) & (s[2] < 5), body, (x, x + 1, 0))


def _history(x: Any) -> Any:
    """A buffer that is read after the loop only, and one that the condition reads."""

    def body(s: Any) -> Any:
        return s[0].at[s[2]].set(s[1].sum()), s[1] * 2 - s[0], s[2] + 1

    return lax.while_loop(lambda s: (s[0][s[2] - 1] < 100) & (s[2] < 6), body, (x, x + 2, 1))


def _reads_before_and_after(x: Any) -> Any:
    y = x * 2
    z = lax.while_loop(lambda s: (s + y).sum() < 100, lambda s: s.at[0].add(y[1]), y)
    return y, z, y + z


PROGRAMS: tuple[Function, ...] = (
    _flag,
    _flag_itself,
    _sorted_in_the_condition,
    _written_in_the_condition,
    _no_iteration,
    _solver,
    _flag_of_an_inner_loop,
    _loop_in_a_condition,
    _branches_in_a_loop,
    _loops_in_branches,
    _swapped,
    _rotated_by_a_scan,
    _outer_value_carried_on,
    _same_next_value_twice,
    _updated_in_place,
    _history,
    _reads_before_and_after,
)


def _assert_same(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), found, expected)


@pytest.mark.parametrize("donate", [False, True], ids=["kept", "donated"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__[1:])
def test_control_flow(program: Function, donate: bool) -> None:
    x = np.array([3, 1, 4, 1, 5, 9, 2], np.int32)
    with jax.default_device(jax.devices("cpu")[0]), jax.disable_jit():
        expected = jax.tree.map(np.asarray, program(jnp.asarray(x)))
    metal = jax.devices("metal")[0]
    argument = jax.jit(lambda x: x + 0)(jax.device_put(x, metal))
    found = jax.jit(program, donate_argnums=(0,) if donate else ())(argument)
    _assert_same(found, expected)


def test_vectorized_flags() -> None:
    """What vmap makes of a flag: a batched predicate, and a select of every carried value."""

    def solve(x: Any) -> Any:
        return lax.while_loop(lambda s: ~s[1], lambda s: (s[0] * 2, s[0] > 7), (x, False))

    found = jax.jit(jax.vmap(solve))(jnp.arange(1, 12))
    expected = [(2 * n, True) for n in (8, 8, 12, 8, 10, 12, 14, 8, 9, 10, 11)]
    np.testing.assert_array_equal(found[0], [e[0] for e in expected])
    np.testing.assert_array_equal(found[1], [e[1] for e in expected])
