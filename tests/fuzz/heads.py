"""Ops that need a loop nest of their own: reductions, gathers, updates, sorts; windows and contractions are beside."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mlir_lowering.dtypes import BY_NAME
from tests.fuzz.bodies import argmax_body, body, identity, monoids
from tests.fuzz.contractions import convolution, dot, matmul
from tests.fuzz.generate import I32, PRED, Generator
from tests.fuzz.graph import Block, Op, Shape, Var, i64s
from tests.fuzz.values import Reject
from tests.fuzz.windows import reduce_window, select_and_scatter


def _dims(g: Generator, rank: int) -> list[int]:
    chosen = sorted(int(i) for i in g.rng.permutation(rank)[: g.between(1, rank)])
    return chosen


def reduce(g: Generator) -> None:
    x = g.pick(lambda v: len(v.shape) > 0)
    count = g.choose([1, 1, 1, 1, 2, 3])
    xs = [x]
    xs += [g.of(x.shape, g.dtype()) for _ in range(count - 1)]
    dims = _dims(g, len(x.shape))
    kinds = [g.choose(monoids(v.dtype)) for v in xs]
    inits = []
    for v, kind in zip(xs, kinds, strict=True):
        if count == 1 and g.chance(0.08):
            inits.append(g.fresh((), v.dtype, plain=True))
        else:
            inits.append(g.constant(identity(kind, v.dtype), v.dtype))
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    g.emit(
        "reduce",
        [*xs, *inits],
        [(shape, v.dtype) for v in xs],
        {"dimensions": i64s(dims), "_dims": dims, "_kinds": kinds},
        [body(kinds, [v.dtype for v in xs])],
    )


def argmax(g: Generator) -> None:
    x = g.pick(lambda v: len(v.shape) > 0 and v.dtype.kind in ("float", "int", "uint"))
    kind, index = g.choose(["argmax", "argmin"]), I32
    dim = g.between(0, len(x.shape) - 1)
    at = g.one("iota", [], (x.shape, index), {"iota_dimension": f"{dim} : i64", "_dim": dim})
    worst = identity("maximum" if kind == "argmax" else "minimum", x.dtype)
    inits = [g.constant(worst, x.dtype), g.scalar(0 if x.dtype.is_float else 2**31 - 1, index)]
    shape = tuple(n for d, n in enumerate(x.shape) if d != dim)
    if x.shape[dim] == 0:
        raise Reject("empty")
    g.emit(
        "reduce",
        [x, at, *inits],
        [(shape, x.dtype), (shape, index)],
        {"dimensions": i64s([dim]), "_dims": [dim], "_kinds": [kind]},
        [argmax_body(kind, x.dtype, index)],
    )


def softmax(g: Generator) -> None:
    """x - max(x), sum over the same row, and both used: kernels that keep a row."""
    x = g.pick(lambda v: len(v.shape) > 0 and v.dtype.is_float and v.size > 0)
    dim = g.between(0, len(x.shape) - 1)
    shape = tuple(n for d, n in enumerate(x.shape) if d != dim)
    rest = [d for d in range(len(x.shape)) if d != dim]

    def row(v: Var, kind: str) -> Var:
        init = g.constant(identity(kind, x.dtype), x.dtype)
        (found,) = g.emit(
            "reduce",
            [v, init],
            [(shape, x.dtype)],
            {"dimensions": i64s([dim]), "_dims": [dim], "_kinds": [kind]},
            [body([kind], [x.dtype])],
        )
        attrs = {"broadcast_dimensions": i64s(rest), "_dims": rest}
        return g.one("broadcast_in_dim", [found], (x.shape, x.dtype), attrs)

    low = g.one("subtract", [x, row(x, "maximum")], (x.shape, x.dtype))
    e = g.one("exponential", [low], (x.shape, x.dtype)) if g.chance(0.3) else g.one("abs", [low], (x.shape, x.dtype))
    g.one(g.choose(["add", "subtract", "maximum"]), [e, row(e, "add")], (x.shape, x.dtype))


def _start(g: Generator, high: int) -> Var:
    if g.chance(0.4):
        return g.scalar(g.between(-1, max(high, 0) + 1), I32)
    ready = [v for v in g.visible() if v.shape == () and v.dtype is I32]
    if ready and g.chance(0.6):
        return g.choose(ready)  # type: ignore[no-any-return]
    return g.fresh((), I32)


def dynamic_slice(g: Generator) -> None:
    x = g.pick(lambda v: len(v.shape) > 0)
    size = [n if g.chance(0.4) else g.between(min(1, n), n) for n in x.shape]
    starts = [_start(g, n - k) for n, k in zip(x.shape, size, strict=True)]
    g.one("dynamic_slice", [x, *starts], (tuple(size), x.dtype), {"slice_sizes": i64s(size)})


def dynamic_update_slice(g: Generator) -> None:
    x = g.pick(lambda v: len(v.shape) > 0)
    size = [n if g.chance(0.4) else g.between(min(1, n), n) for n in x.shape]
    if g.chance(0.5):
        # A part of the value itself, moved: what is read may be overwritten.
        where = [g.between(0, n - k) for n, k in zip(x.shape, size, strict=True)]
        limits = [s + k for s, k in zip(where, size, strict=True)]
        attrs = {
            "start_indices": i64s(where), "limit_indices": i64s(limits), "strides": i64s([1] * len(size)),
            "_slice": (where, limits, [1] * len(size)),
        }  # fmt: skip
        u = g.one("slice", [x], (tuple(size), x.dtype), attrs)
        if g.chance(0.5):
            dims = [g.between(0, len(size) - 1)]
            u = g.one("reverse", [u], (u.shape, u.dtype), {"dimensions": i64s(dims), "_dims": dims})
    else:
        u = g.of(tuple(size), x.dtype)
    starts = [_start(g, n - k) for n, k in zip(x.shape, size, strict=True)]
    g.one("dynamic_update_slice", [x, u, *starts], (x.shape, x.dtype))


def _indices(g: Generator, shape: Shape, highs: list[int], vector: int) -> Var:
    """Positions, some beyond the ends; sometimes computed ones."""
    dtype = g.choose([I32, I32, I32, BY_NAME["i64"], BY_NAME["ui32"], BY_NAME["ui8"], BY_NAME["i16"]])
    ready = [v for v in g.visible() if v.shape == shape and v.dtype.is_integer and v.dtype.bits >= 8]
    if ready and g.chance(0.7):
        return g.choose(ready)  # type: ignore[no-any-return]
    high = max([*highs, 0])
    low = -1 if dtype.kind == "int" and g.chance(0.3) else 0
    values = g.rng.integers(low, high + (2 if g.chance(0.4) else 1), shape)
    if g.chance(0.1):
        values = np.where(g.rng.random(shape) < 0.3, 100, values)
    v = g.fresh(shape, dtype, plain=True)
    array = np.asarray(values).astype(dtype.numpy)
    if g.inputs and g.env[v].array is g.inputs[-1]:
        g.inputs[-1] = array
        g.env[v].array = array
        return v
    return g.constant(array, dtype)


def _numbers(pairs: list[tuple[str, list[int]]], vector: int) -> str:
    words = [f"{name} = [{', '.join(map(str, dims))}]" for name, dims in pairs if dims]
    return ", ".join([*words, f"index_vector_dim = {vector}"])


class _Batches(NamedTuple):
    """The places that a gather or scatter has indices for, and how they stand in its arrays."""

    vector: int  # index_vector_dim
    indices: tuple[int, ...]  # the shape of the indices
    indices_batching: list[int]  # their batching dimensions
    windows: list[int]  # which dimensions of result or updates are a window's
    shape: tuple[int, ...]  # of the result or the updates


def _batches(g: Generator, x: Var, mapped: list[int], batching: list[int], inner: list[int]) -> _Batches:
    """`mapped`: the dimensions of `x` that an index names; `inner`: a window's extents."""
    batch = [g.choose(g.dims) if g.chance(0.5) else g.between(1, 4) for _ in range(g.between(0, 2))]
    for d in batching:
        batch.insert(0, x.shape[d])
    implicit = len(mapped) == 1 and g.chance(0.3)
    vector = len(batch) if implicit else g.between(0, len(batch))
    indices = list(batch)
    if not implicit:
        indices.insert(vector, len(mapped))
    indices_batching = [0 + (vector <= 0 and not implicit) for _ in batching]
    total = len(batch) + len(inner)
    if total > 5 or math.prod(batch) * math.prod(inner) > g.limit:
        raise Reject("large")
    windows = sorted(int(i) for i in g.rng.permutation(total)[: len(inner)])
    a, b = iter(inner), iter(batch)
    shape = tuple(next(a) if d in windows else next(b) for d in range(total))
    return _Batches(vector, tuple(indices), indices_batching, windows, shape)


def gather(g: Generator) -> None:
    x = g.pick(lambda v: 0 < len(v.shape) <= 4 and v.size > 0)
    rank = len(x.shape)
    mapped = [int(i) for i in g.rng.permutation(rank)[: g.between(1, rank)]]
    batching = [d for d in range(rank) if d not in mapped and x.shape[d] > 0 and g.chance(0.2)][:1]
    sizes = [1 if d in batching else (g.between(1, n) if d in mapped and g.chance(0.5) else (1 if d in mapped else n))
             for d, n in enumerate(x.shape)]  # fmt: skip
    collapsed = [d for d in range(rank) if sizes[d] == 1 and d not in batching and g.chance(0.7)]
    inner = [sizes[d] for d in range(rank) if d not in collapsed and d not in batching]
    at = _batches(g, x, mapped, batching, inner)
    indices = _indices(g, at.indices, [x.shape[d] - sizes[d] for d in mapped], at.vector)
    numbers = _numbers(
        [
            ("offset_dims", at.windows),
            ("collapsed_slice_dims", collapsed),
            ("operand_batching_dims", batching),
            ("start_indices_batching_dims", at.indices_batching),
            ("start_index_map", mapped),
        ],
        at.vector,
    )
    g.one(
        "gather",
        [x, indices],
        (at.shape, x.dtype),
        {
            "dimension_numbers": f"#stablehlo.gather<{numbers}>",
            "slice_sizes": i64s(sizes),
            "_sizes": sizes,
            "_gather": {
                "offset": at.windows, "collapsed": collapsed, "batching": batching,
                "indices_batching": at.indices_batching, "map": mapped, "vector": at.vector,
            },
        },
    )  # fmt: skip


def scatter(g: Generator) -> None:
    x = g.pick(lambda v: 0 < len(v.shape) <= 4 and v.size > 0)
    rank = len(x.shape)
    mapped = [int(i) for i in g.rng.permutation(rank)[: g.between(1, rank)]]
    batching = [d for d in range(rank) if d not in mapped and g.chance(0.2)][:1]
    inserted = [d for d in range(rank) if d not in batching and (d in mapped and g.chance(0.7))]
    inner = [
        (g.between(1, n) if d in mapped else n)
        for d, n in enumerate(x.shape)
        if d not in inserted and d not in batching
    ]
    at = _batches(g, x, mapped, batching, inner)
    kinds = ["replace", *monoids(x.dtype)]
    kind = g.choose(kinds)
    highs = [x.shape[d] - 1 for d in mapped]
    indices = _indices(g, at.indices, highs, at.vector)
    updates = g.of(at.shape, x.dtype)
    numbers = _numbers(
        [
            ("update_window_dims", at.windows),
            ("inserted_window_dims", inserted),
            ("input_batching_dims", batching),
            ("scatter_indices_batching_dims", at.indices_batching),
            ("scatter_dims_to_operand_dims", mapped),
        ],
        at.vector,
    )
    g.emit(
        "scatter",
        [x, indices, updates],
        [(x.shape, x.dtype)],
        {
            "scatter_dimension_numbers": f"#stablehlo.scatter<{numbers}>",
            "_kinds": [kind],
            "_scatter": {
                "window": at.windows, "inserted": inserted, "batching": batching,
                "indices_batching": at.indices_batching, "map": mapped, "vector": at.vector,
            },
        },
        [body([kind], [x.dtype])],
    )  # fmt: skip


def sort(g: Generator) -> None:
    from tests.fuzz.choices import compare_attrs

    key = g.pick(lambda v: len(v.shape) > 0 and v.dtype.kind in ("float", "int", "uint", "pred"))
    xs = [key]
    xs += [g.of(key.shape, g.dtype()) for _ in range(g.choose([0, 0, 1, 1, 2]))]
    at = g.between(0, len(xs) - 1)
    xs[0], xs[at] = xs[at], xs[0]
    axis, descending = g.between(0, len(key.shape) - 1), g.chance(0.4)
    args = [Var((), v.dtype) for v in xs for _ in range(2)]
    out = Var((), PRED)
    less = Op("compare", args[2 * at : 2 * at + 2], [out], compare_attrs("GT" if descending else "LT", key.dtype))
    g.emit(
        "sort",
        xs,
        [(v.shape, v.dtype) for v in xs],
        {
            "dimension": f"{axis} : i64", "is_stable": "true",
            "_dim": axis, "_key": at, "_descending": descending,
        },
        [Block(args, [less], [out])],
    )  # fmt: skip


HEADS: list[tuple[Callable[[Generator], None], float]] = [
    (reduce, 9),
    (argmax, 2),
    (softmax, 2),
    (reduce_window, 3),
    (select_and_scatter, 2),
    (dot, 5),
    (matmul, 0.4),
    (convolution, 3),
    (dynamic_slice, 2.5),
    (dynamic_update_slice, 5),
    (gather, 4),
    (scatter, 4),
    (sort, 2.5),
]
