"""Scans and large windows against numpy in f64, where XLA:CPU or the interpreter differ or are no measure."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mlir_lowering.options import read_options
from mlir_lowering.pipeline import compile_program
from mlir_lowering.targets import parse_target

# Shape and axis: strips, short rows, chunks with a rest, blocks with a rest, few neighbours, nothing.
SHAPES = [
    ((1,), 0),
    ((131,), 0),
    ((5, 3), 1),
    ((1021,), 0),
    ((40_001,), 0),
    ((601, 33), 0),
    ((2, 4999, 3), 1),
    ((0, 4), 0),
]


def _metal(f: Any, *args: Any) -> Any:
    (device, *_) = jax.devices("metal")
    return np.asarray(jax.jit(f)(*jax.device_put(args, device)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_cumulative(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape).astype(np.float32)
    turn = functools.partial(np.flip, axis=axis) if reverse else (lambda a: a)
    wide = turn(x.astype(np.float64))
    if x.size > 100:
        x.flat[x.size // 2] = np.nan
    got = _metal(lambda x: lax.cummax(x, axis, reverse), x)
    np.testing.assert_array_equal(got, turn(np.maximum.accumulate(turn(x), axis)) if x.size else x)
    x = turn(wide).astype(np.float32)
    got = _metal(lambda x: lax.cumsum(x, axis, reverse), x)
    np.testing.assert_allclose(got, turn(np.cumsum(wide, axis)), rtol=1e-5, atol=1e-4)
    got = _metal(lambda x: lax.cumlogsumexp(x, axis, reverse), x)
    want = turn(np.logaddexp.accumulate(wide, axis)) if x.size else x
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    counts = rng.integers(-99, 99, shape).astype(np.int8)
    got = _metal(lambda x: lax.cumsum(x, axis, reverse), counts)
    np.testing.assert_array_equal(got, turn(np.cumsum(turn(counts), axis, dtype=np.int8)))


def test_long_sums_keep_their_digits() -> None:
    """Each addition of 0.1 is rounded the same way: one after another, a sum of 10^6 is off by a hundredth."""
    x = np.full(1_000_003, 0.1, np.float32)
    want = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(_metal(jnp.cumsum, x), want, rtol=3e-6)
    columns = np.broadcast_to(x[:100_003, None], (100_003, 20))
    got = _metal(lambda x: jnp.cumsum(x, 0), np.ascontiguousarray(columns))
    np.testing.assert_allclose(got, np.broadcast_to(want[:100_003, None], columns.shape), rtol=3e-6)


def test_half_precision_sums_are_kept_in_f32() -> None:
    ones = jnp.ones(3000, jnp.bfloat16)
    np.testing.assert_array_equal(_metal(jnp.cumsum, ones)[[255, 2047, 2999]], np.array([256, 2048, 3000], ones.dtype))


def test_an_initial_value_comes_in_once() -> None:
    """XLA:CPU takes it in twice here, the interpreter for every element of padding."""
    x = np.ones(300, np.float32)
    got = _metal(lambda x: lax.reduce_window(x, 1.5, lax.add, (300,), (1,), [(299, 0)]), x)
    np.testing.assert_array_equal(got, np.arange(1, 301) + 1.5)
    got = _metal(lambda x: lax.reduce_window(x, 1.5, lax.add, (60,), (1,), [(0, 0)]), x)
    np.testing.assert_array_equal(got, np.full(241, 61.5))


@pytest.mark.parametrize("run", [jnp.cumsum, lambda x: lax.reduce_window(x, 0.0, lax.add, (999,), (1,), "SAME")])
def test_the_number_of_threads_changes_nothing(run: Any) -> None:
    text = jax.jit(run).lower(jax.ShapeDtypeStruct((500_000,), jnp.float32)).as_text().encode()
    one, many = (
        compile_program(text, read_options(b""), parse_target(f"software:threads={n},vector_bytes=64")) for n in (1, 48)
    )
    assert one.kernels == many.kernels and one.body == many.body
