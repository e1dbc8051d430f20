"""Shapes that take every path through the GPU's schedules: the doctor's test of all kernel templates.

Each case names what its launches' labels must say on a GPU (tests/kernels/gpu_cases.py checks that), so that a case
cannot quietly stop testing its path.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pjrt_metal.doctor import Check
from pjrt_metal.doctor_ops import difference


@dataclass(frozen=True)
class Case:
    """`run` on the device and on the CPU, with arguments drawn for `shapes`; on a GPU its launches' labels say all of
    `says`."""

    name: str
    run: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    says: tuple[str, ...]
    dtype: str = "float32"
    rtol: float = 1e-5
    nan_at: int | None = None  # this element of the first argument is a NaN
    numpy: Callable[..., Any] | None = None  # the oracle in the CPU's stead, which loses some NaNs


def _max_and_sum(x: Any) -> Any:
    return jnp.max(x, -1), jnp.sum(x, -1)


def _dot(a: Any, b: Any) -> Any:
    return a @ b


def _transposed(a: Any, b: Any) -> Any:
    return a.T @ b.T


def _epilogue(a: Any, b: Any, c: Any) -> Any:
    return jnp.tanh(jnp.exp(a * 0.1) @ b + c)


def _convolution(numbers: tuple[str, str, str], **options: Any) -> Callable[[Any, Any], Any]:
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=numbers, **options)


_NHWC = ("NHWC", "HWIO", "NHWC")
_NCHW = ("NCHW", "OIHW", "NCHW")


def _convolution_gradients(x: Any, w: Any) -> Any:
    def loss(x: Any, w: Any) -> Any:
        convolve = _convolution(_NHWC, window_strides=(2, 2), padding=((1, 1), (1, 1)))
        return jnp.sum(convolve(x, w) ** 2)

    return jax.grad(loss, (0, 1))(x, w)


def _pool_gradient(x: Any) -> Any:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    return jax.grad(lambda x: jnp.sum(pool(x) ** 2))(x)


def _scatter_add(x: Any, updates: Any) -> Any:
    indices = (jnp.arange(updates.shape[0]) * 7919) % (x.shape[0] + 2)
    return x.at[indices].add(updates, mode="drop")


def _scatter_unique(x: Any, updates: Any) -> Any:
    return x.at[jnp.arange(updates.shape[0]) * 2].multiply(updates, unique_indices=True)


def _scatter_overlapping(x: Any, updates: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    starts = ((jnp.arange(updates.shape[0]) * 5) % 11)[:, None]
    return lax.scatter_add(x, starts, updates, numbers)


def _scatter_many(op: str) -> Callable[[Any, Any], Any]:
    """More rows than are applied one after another, some of them outside and most of them at a few places."""

    def run(x: Any, updates: Any) -> Any:
        number = jnp.arange(updates.shape[0])
        indices = jnp.where(number % 3 > 0, number * 7919 % (x.shape[0] + 2), number % 2)
        return getattr(x.at[indices], op)(updates, mode="drop")

    return run


def _scatter_frames(x: Any, updates: Any) -> Any:
    numbers = lax.ScatterDimensionNumbers((1,), (), (0,))
    starts = ((jnp.arange(updates.shape[0]) * 5) % (x.shape[0] - 9))[:, None]
    return lax.scatter_add(x, starts, updates, numbers)


def _slice_gradients(x: Any, starts: Any) -> Any:
    def loss(row: Any, start: Any) -> Any:
        return jnp.sum(lax.dynamic_slice(row, (start.astype(jnp.int32),), (7,)) ** 2)

    return jax.vmap(jax.grad(loss))(x, starts)


def _running_argmax(x: Any) -> Any:
    def larger(a: Any, b: Any) -> Any:
        first = a[0] >= b[0]
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    n = x.shape[0]
    pair = (x, jnp.arange(n, dtype=jnp.int32))
    return lax.reduce_window(pair, (-jnp.inf, -1), larger, (n,), (1,), [(n - 1, 0)])[1]


def _numpy_running_argmax(x: Any) -> Any:
    found = np.arange(x.shape[0], dtype=np.int32)
    for i in range(1, x.shape[0]):
        found[i] = i if x[i] > x[found[i - 1]] else found[i - 1]
    return found


def _window_sum(window: tuple[int, ...], **options: Any) -> Callable[[Any], Any]:
    strides = (1,) * len(window)
    return lambda x: lax.reduce_window(x, 0.0, lax.add, window, strides, "SAME", **options)


def _large_pool_gradient(x: Any) -> Any:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (9, 8), (1, 2), "SAME")

    return jax.grad(lambda x: jnp.sum(pool(x) ** 2))(x)


def _update_slice(x: Any, update: Any) -> Any:
    return lax.dynamic_update_slice(x, update * 2, (jnp.int32(3), jnp.int32(1), jnp.int32(0)))


def _sorted_pairs(x: Any) -> Any:
    return lax.sort((jnp.round(x * 2), jnp.arange(x.shape[0], dtype=jnp.int32)), num_keys=1, is_stable=True)


CASES = (
    Case("flat", lambda a, b: jnp.sin(a) * b, ((1001,), (1001,)), ("n elements, 1 a thread",)),
    Case("flat_vectors", lambda a, b: a * b + 1, ((256, 257), (256, 257)), ("n elements, 4 a thread",)),
    Case("two_axes", lambda a, b: a + b, ((33, 40), (40,)), ("Pointwise over 40 by 33 by 1",)),
    Case("vector_rows", lambda a, b: a + b, ((300, 256), (256,)), ("4 neighbours",)),
    Case("transpose", lambda a: jnp.transpose(a, (3, 1, 0, 2)), ((3, 4, 9, 5),), ("Pointwise over",)),
    Case("short_rows", lambda a, b: a * b, ((50, 3), (3,)), ("n elements",)),
    Case("rows_by_thread", lambda x: jnp.sum(x, -1), ((70, 9),), ("a thread an output",)),
    Case("rows_by_simd", _max_and_sum, ((21, 100),), ("a SIMD group an output",)),
    Case("rows_by_simd_nan", _max_and_sum, ((21, 100),), ("a SIMD group an output",), nan_at=340),
    Case("rows_by_threadgroup", _max_and_sum, ((70, 1500),), ("256 threads an output",), rtol=1e-4),
    Case(
        "rows_nan",
        lambda x: jnp.min(x, -1),
        ((70, 1500),),
        ("256 threads an output",),
        nan_at=2999,
        numpy=lambda x: np.min(x, -1),
    ),
    Case("rows_f16", lambda x: jnp.mean(x, -1), ((70, 1500),), ("256 threads",), dtype="float16", rtol=2e-3),
    Case("rows_outer_loops", lambda x: jnp.sum(x, (0, 2)), ((20, 66, 300),), ("256 threads",), rtol=1e-4),
    Case("rows_int64", lambda x: jnp.sum(x, -1), ((5, 700),), ("256 threads share each of 1",), dtype="int64"),
    Case("rows_max_int64", lambda x: jnp.max(x, -1), ((5, 700),), ("256 threads share",), dtype="int64"),
    Case("rows_int8", lambda x: (jnp.max(x, -1), jnp.min(x, -1)), ((5, 700),), ("SIMD group",), dtype="int8"),
    Case("rows_int8_product", lambda x: jnp.prod(x, -1), ((5, 700),), ("SIMD group",), dtype="int8"),
    Case("rows_bool", lambda x: (jnp.all(x, -1), jnp.any(x, -1)), ((5, 700),), ("SIMD group",), dtype="bool"),
    Case("columns", lambda x: jnp.sum(x, 0), ((100, 2100),), ("8 threads share each of 32",)),
    Case("columns_edge", _max_and_sum, ((100, 45),), ("SIMD group",)),
    Case(
        "columns_nan",
        lambda x: jnp.max(x, 0),
        ((100, 45),),
        ("each of 32 columns",),
        nan_at=4499,
        numpy=lambda x: np.max(x, 0),
    ),
    Case("columns_few", lambda x: jnp.sum(x, (0, 1)), ((30, 41, 3),), ("64 threads share each of 4",)),
    Case("columns_many", lambda x: jnp.sum(x, 1), ((200, 20, 170),), ("a thread an output",)),
    Case("columns_outer", lambda x: jnp.sum(x, 1), ((3, 90, 40),), ("each of 32",)),
    Case("two_stages_rows", jnp.sum, ((96, 1024),), ("256 threads an output", "a SIMD group an output"), rtol=1e-4),
    Case("two_stages_columns", lambda x: jnp.sum(x, 0), ((4096, 20),), ("each of 32",), rtol=1e-4),
    Case("arg_max_rows", lambda x: jnp.argmax(x, -1), ((6, 700),), ("256 threads share each of 1",)),
    Case("arg_max_columns", lambda x: jnp.argmax(x, 0), ((100, 45),), ("8 threads share each of 32",)),
    Case("arg_max_nan", lambda x: jnp.argmax(x, -1), ((6, 700),), ("256 threads share",), nan_at=1000),
    Case("dot_tile", _dot, ((64, 64), (64, 64)), ("32 rows by 32 columns",)),
    Case("dot_edges", _dot, ((45, 51), (51, 70)), ("32 rows by 32 columns",)),
    Case("dot_large_tile", _dot, ((520, 24), (24, 530)), ("64 rows by 64 columns",)),
    Case("dot_transposed", _transposed, ((51, 45), (70, 51)), ("32 rows by 32 columns",)),
    Case("dot_small_tile", _dot, ((16, 33), (33, 17)), ("16 rows by 32 columns",)),
    Case("dot_shares", _dot, ((40, 1030), (1030, 40)), ("4 of them sharing k", "Adds 4 shares"), rtol=1e-4),
    Case("dot_f16", _dot, ((45, 51), (51, 70)), ("32 rows by 32 columns",), dtype="float16", rtol=2e-3),
    Case("dot_bf16", _dot, ((45, 51), (51, 70)), ("32 rows by 32 columns",), dtype="bfloat16", rtol=2e-2),
    Case("dot_epilogue", _epilogue, ((45, 51), (51, 70), (70,)), ("32 rows by 32 columns",), rtol=1e-4),
    Case("dot_shares_epilogue", _epilogue, ((17, 600), (600, 20), (20,)), ("Adds 2 shares",), rtol=1e-4),
    Case("dot_batch", _dot, ((3, 20, 33), (3, 33, 40)), ("32 rows by 32 columns",)),
    Case("dot_int", _dot, ((20, 100), (100, 40)), ("8 threads share each of 32",), dtype="int32"),
    Case("dot_int64", _dot, ((20, 9), (9, 40)), ("a thread an output",), dtype="int64"),
    Case("matrix_vector", _dot, ((70, 500), (500,)), ("a SIMD group an output",)),
    Case("vector_matrix", _dot, ((500,), (500, 70)), ("8 threads share each of 32",)),
    Case("inner_product", _dot, ((3000,), (3000,)), ("256 threads an output",), rtol=1e-4),
    Case("dot_short", _dot, ((40, 3), (3, 50)), ("a thread an output",)),
    Case(
        "convolution_nhwc",
        _convolution(_NHWC, window_strides=(2, 2), padding=((1, 2), (2, 1))),
        ((2, 11, 12, 5), (3, 3, 5, 20)),
        ("rows by",),
    ),
    Case(
        "convolution_nchw",
        _convolution(_NCHW, window_strides=(1, 1), padding="SAME", rhs_dilation=(2, 1)),
        ((2, 5, 11, 12), (20, 5, 3, 3)),
        ("rows by",),
    ),
    Case(
        "convolution_grouped",
        _convolution(_NHWC, window_strides=(1, 1), padding="SAME", feature_group_count=6),
        ((2, 7, 8, 6), (3, 3, 1, 12)),
        ("a thread an output",),
    ),
    Case("convolution_gradients", _convolution_gradients, ((2, 9, 10, 18), (3, 3, 18, 20)), ("rows by",), rtol=1e-4),
    Case("max_pool_gradient", _pool_gradient, ((2, 9, 10, 12),), ("Pointwise over",)),
    Case("gather", lambda x: x[jnp.array([5, 1, 5, 30])], ((31, 9),), ("Pointwise over",)),
    Case("scatter_add", _scatter_add, ((20, 40), (50, 40)), ("shares",)),
    Case("scatter_add_scalars", _scatter_add, ((20,), (500,)), ("500 windows of 1 elements",)),
    Case("scatter_unique", _scatter_unique, ((60, 9), (30, 9)), ("do not meet",)),
    Case("scatter_overlapping", _scatter_overlapping, ((16,), (9, 6)), ("that cover it",)),
    Case("scatter_sorted_add", _scatter_many("add"), ((40,), (1500,)), ("a thread folds 32",), rtol=1e-4),
    Case("scatter_sorted_rows", _scatter_many("max"), ((40, 5), (1100, 5)), ("a thread folds 32",)),
    Case("scatter_sorted_set", _scatter_many("set"), ((40, 5), (1100, 5)), ("the last of each place",)),
    Case("scatter_sorted_int8", _scatter_many("multiply"), ((40,), (1500,)), ("a thread folds 32",), dtype="int8"),
    Case("scatter_sorted_bf16", _scatter_many("min"), ((40,), (1500,)), ("a thread folds 32",), dtype="bfloat16"),
    Case("scatter_sorted_frames", _scatter_frames, ((3000,), (400, 10)), ("Scatters 4000 sorted items",), rtol=1e-4),
    Case("slice_gradients", _slice_gradients, ((20, 50), (20,)), ("do not meet",)),
    Case("scan_rows", lambda x: jnp.cumsum(x, 1), ((3, 2100),), ("256 threads scan", "by SIMD groups"), rtol=1e-4),
    Case("scan_blocks", jnp.cumsum, ((5001,),), ("256 threads fold", "256 threads scan"), rtol=1e-4),
    Case("scan_backwards", lambda x: lax.cummax(x, reverse=True), ((5001,),), ("Scans backwards", "fold"), nan_at=70),
    Case("scan_int64", jnp.cumsum, ((2500,),), ("by halves",), dtype="int64"),
    # XLA:CPU ends the process at a scan of pairs.
    Case("scan_pairs", _running_argmax, ((700,),), ("threads scan",), numpy=_numpy_running_argmax),
    Case("scan_columns", lambda x: jnp.cumsum(x, 0), ((600, 40),), ("a thread folds", "a thread scans"), rtol=1e-4),
    Case("scan_short", lambda x: lax.cumlogsumexp(x, 1), ((70, 50),), ("a thread scans 50",)),
    Case("window_long", _window_sum((50,)), ((333,),), ("Scans backwards 8 x 50", "Scans 8 x 50"), rtol=1e-4),
    Case("window_whole", _window_sum((90,)), ((70,),), ("Scans backwards 1 x 70", "Scans 1 x 70"), rtol=1e-4),
    Case("window_of_two", _window_sum((40, 35)), ((50, 60),), ("Scans",), rtol=1e-4),
    Case("window_dilated", _window_sum((40,), window_dilation=(3,)), ((200,),), ("Scans",), rtol=1e-4),
    Case("pool_gradient_large", _large_pool_gradient, ((20, 30),), ("Scatters",), rtol=1e-4),
    Case("update_slice", _update_slice, ((9, 8, 7), (4, 5, 7)), ("a thread each",)),
    Case("sort_run", lambda x: jnp.sort(x, -1), ((5, 13),), ("Sorts runs of 16",)),
    Case("sort_merge", lambda x: jnp.sort(x, 0), ((77, 3),), ("Merges runs", "in order")),
    Case("sort_pairs", _sorted_pairs, ((301,),), ("Merges runs",)),
)


def arguments(case: Case) -> list[Any]:
    """The case's arguments, the same in every run."""
    rng = np.random.default_rng(len(case.name))
    made: list[Any] = []
    for shape in case.shapes:
        if case.dtype == "bool":
            made.append(rng.random(shape) < 0.9)
        elif case.dtype.startswith("int"):
            made.append(rng.integers(-9, 10, shape).astype(case.dtype))
        else:
            made.append(np.asarray(rng.standard_normal(shape), np.float32).astype(jnp.dtype(case.dtype)))
    if case.nan_at is not None:
        made[0].flat[case.nan_at] = np.nan
    return made


def compare(case: Case) -> str:
    """Runs the case on metal and on the CPU; raises if they differ."""
    with jax.enable_x64(case.dtype == "int64"):
        given = arguments(case)

        def on(platform: str) -> list[Any]:
            with jax.default_device(jax.devices(platform)[0]):
                return [np.asarray(x) for x in jax.tree.leaves(jax.jit(case.run)(*given))]

        wanted = on("cpu") if case.numpy is None else [case.numpy(*given)]
        worst = 0.0
        for got, want in zip(on("metal"), wanted, strict=True):
            scale = float(np.nanmax(np.abs(want.astype(np.float64)), initial=1.0))
            worst = max(worst, difference(got, want, case.rtol, case.rtol * scale, case.name))
    return f"largest difference {worst:.3g}"


def checks() -> Iterator[Check]:
    for case in CASES:
        yield Check("schedules", case.name, functools.partial(compare, case))
