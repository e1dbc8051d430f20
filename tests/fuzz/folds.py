"""What reductions, windows, gathers and scatters compute, on numpy arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlir_lowering.dtypes import DType
from tests.fuzz.contract import pad_array
from tests.fuzz.graph import Array, Op
from tests.fuzz.values import Reject, Val, digits, finite, quanta, require_exact, rounded, sums, widen, wrap, zeroed

# Folds terms by a function: over the first axis, or those that fall together in a scan or a scatter.
Fold = Callable[[np.ufunc, Array], Array]

_FUNCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_OF_PREDICATES = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}


def _first_axis(f: np.ufunc, terms: Array) -> Array:
    return np.asarray(f.reduce(terms, axis=0))


def monoid(
    kind: str, terms: Array, errors: Array | None, dtype: DType, steps: int | Array, fold: Fold = _first_axis
) -> Val:
    """`terms` folded in any order, at most `steps` of them into one (each)."""
    with np.errstate(all="ignore"):
        wide = widen(terms, dtype)
        if dtype.kind in ("pred", "int", "uint"):
            kind = _OF_PREDICATES.get(kind, kind) if dtype.kind == "pred" else kind
            return Val(wrap(fold(_FUNCTIONS[kind], wide), dtype))
        if kind in ("maximum", "minimum"):
            out = rounded(fold(_FUNCTIONS[kind], wide), None if errors is None else fold(np.maximum, errors), dtype)
            out.signed = False
            return out
        inherited = None if errors is None else fold(np.add, errors)
        if kind == "add":
            return sums(
                fold(np.add, wide), fold(np.add, zeroed(wide)), steps, fold(np.minimum, quanta(wide)), inherited, dtype
            )
        if errors is not None or not finite(wide).all() or dtype.is_complex:
            raise Reject("product")
        largest = fold(np.multiply, np.maximum(np.abs(wide), 1))
        if (wide != np.rint(wide)).any() or float(largest.max(initial=0)) >= 2.0 ** digits(dtype):
            raise Reject("product")
        out = rounded(fold(np.multiply, wide), None, dtype)
        out.signed = False
        return out


# ---------------------------------------------------------------- reductions


def _terms(op: Op, array: Array, init: Array) -> Array:
    """The operand's elements along a first axis, the initial value in front."""
    dims = op.attrs["_dims"]
    rest = [d for d in range(array.ndim) if d not in dims]
    moved = np.transpose(array, [*dims, *rest]).reshape(
        math.prod(array.shape[d] for d in dims), *[array.shape[d] for d in rest]
    )
    first = np.broadcast_to(init, moved.shape[1:])[None]
    return np.concatenate([first.astype(array.dtype), moved])


def reduce(op: Op, vals: list[Val]) -> list[Val]:
    half = len(vals) // 2
    kinds = op.attrs["_kinds"]
    if kinds in (["argmax"], ["argmin"]):
        return _argmax(op, vals, kinds[0])
    found = []
    for x, init, kind, out in zip(vals[:half], vals[half:], kinds, op.outs, strict=True):
        errors = None if x.exact and init.exact else _terms(op, x.error(), init.error())
        terms = _terms(op, x.array, init.array)
        found.append(monoid(kind, terms, errors, out.dtype, len(terms)))
    return found


def _argmax(op: Op, vals: list[Val], kind: str) -> list[Val]:
    """The first of the largest (smallest), by the second operand, which is an iota of the whole."""
    x, at, x0, at0 = vals
    require_exact(*vals)
    terms = widen(_terms(op, x.array, x0.array), op.ins[0].dtype)
    places = _terms(op, at.array, at0.array)
    if op.ins[0].dtype.is_float and not (np.isfinite(terms[1:]).all()):
        raise Reject("argmax of NaN")
    best = _first_axis(np.maximum if kind == "argmax" else np.minimum, terms)
    where = np.where(terms == best, places, np.iinfo(places.dtype).max).min(0)
    out = Val(np.asarray(best).astype(x.array.dtype), None, False)
    return [out, Val(np.asarray(where).astype(at.array.dtype))]


# ---------------------------------------------------------------- windows


def _window_terms(op: Op, x: Array, fill: Any, shape: tuple[int, ...]) -> Array:
    """(window positions, ...result): `fill` where a window has no element."""
    w = op.attrs["_window"]
    ones = [1] * x.ndim
    inner = [d - 1 for d in w.get("base", ones)]
    padded = pad_array(x, fill, [p[0] for p in w["pad"]], [p[1] for p in w["pad"]], inner)
    taps = []
    for tap in itertools.product(*map(range, w["size"])):
        at = tuple(
            slice(t * dil, t * dil + (n - 1) * s + 1 if n else t * dil, s)
            for t, dil, s, n in zip(tap, w.get("dilation", ones), w["stride"], shape, strict=True)
        )
        taps.append(padded[at])
    return np.stack(taps)


def reduce_window(op: Op, vals: list[Val]) -> Val:
    x, init = vals
    kind, out = op.attrs["_kinds"][0], op.outs[0]
    if op.attrs["_cumulative"] is not None:
        axis, backward = op.attrs["_cumulative"]  # the initial value is neutral

        def along(f: np.ufunc, terms: Array) -> Array:
            if not backward:
                return np.asarray(f.accumulate(terms, axis))
            return np.flip(f.accumulate(np.flip(terms, axis), axis), axis)

        return monoid(kind, x.array, x.err, out.dtype, x.array.shape[axis] + 1, along)
    terms = _window_terms(op, x.array, init.array[()], out.shape)
    errors = None if x.exact else _window_terms(op, x.error(), 0.0, out.shape)
    return monoid(kind, terms, errors, out.dtype, len(terms))


_KEEPS = {"GE": np.greater_equal, "LE": np.less_equal, "GT": np.greater, "LT": np.less}


def select_and_scatter(op: Op, vals: list[Val]) -> Val:
    """Each window's selected element gets the window's source element, folded with the initial value."""
    x, source, init = vals
    require_exact(x)
    dtype, shape = op.outs[0].dtype, op.ins[1].shape
    if dtype.is_float and not finite(x.array).all():
        raise Reject("select of NaN")
    wide = widen(x.array, dtype)
    numbers = np.arange(x.array.size).reshape(x.array.shape)
    taps = _window_terms(op, wide, 0, shape)
    places = _window_terms(op, numbers, -1, shape)
    direction = op.attrs["_select"]
    best, where = taps[0], places[0]
    for value, place in zip(taps[1:], places[1:], strict=True):
        if direction in ("GT", "LT") and ((place >= 0) & (where >= 0) & (value == best)).any():
            raise Reject("a tie, which the order of evaluation decides")
        take = (place >= 0) & ((where < 0) | ~_KEEPS[direction](best, value))
        best, where = np.where(take, value, best), np.where(take, place, where)
    if (where < 0).any():
        raise Reject("a window of padding")
    errors = None if init.exact else np.full(x.array.shape, init.error())
    first = Val(np.full(x.array.shape, init.array, x.array.dtype), errors)
    return _folded_at(op.attrs["_kinds"][0], first, where.ravel(), source, dtype, keep=False)


# ---------------------------------------------------------------- gathers and scatters


def _index_vectors(op: Op, indices: Val, dim: int) -> Array:
    """The index vectors along a last axis; a missing one has length 1."""
    wide = widen(indices.array, op.ins[1].dtype)
    return wide[..., None] if dim == wide.ndim else np.moveaxis(wide, dim, -1)


def _component(starts: Array, k: int, high: int) -> Array:
    """A component of index vectors, brought near the range [0, high] so that no sum wraps."""
    return np.clip(starts[..., k], 0 if starts.dtype.kind == "u" else -high - 2, 2 * high + 2).astype(np.int64)


def gather(op: Op, vals: list[Val]) -> Val:
    x, indices = vals
    require_exact(indices)
    g, sizes, out, operand = op.attrs["_gather"], op.attrs["_sizes"], op.outs[0], op.ins[0]
    starts = _index_vectors(op, indices, g["vector"])
    grid = np.indices(out.shape, sparse=True)
    batch = tuple(np.broadcast_to(grid[d], out.shape) for d in range(len(out.shape)) if d not in g["offset"])
    inner = [d for d in range(len(operand.shape)) if d not in g["collapsed"] and d not in g["batching"]]
    place = [np.zeros(out.shape, np.int64) for _ in operand.shape]
    for k, d in enumerate(g["map"]):
        last = operand.shape[d] - sizes[d]
        place[d] = np.clip(_component(starts, k, operand.shape[d]), 0, last)[batch]
    for d, s in zip(g["batching"], g["indices_batching"], strict=True):
        place[d] = batch[s - (g["vector"] < s)]
    for d, o in zip(inner, g["offset"], strict=True):
        place[d] = place[d] + grid[o]
    where = tuple(np.broadcast_to(p, out.shape) for p in place)
    return Val(x.array[where], None if x.err is None else x.err[where], x.signed)


def scatter(op: Op, vals: list[Val]) -> Val:
    x, indices, updates = vals
    require_exact(indices)
    s, kind = op.attrs["_scatter"], op.attrs["_kinds"][0]
    shape, rows = op.ins[0].shape, op.ins[2].shape
    starts = _index_vectors(op, indices, s["vector"])
    grid = np.indices(rows, sparse=True)
    batch = tuple(np.broadcast_to(grid[d], rows) for d in range(len(rows)) if d not in s["window"])
    inner = [d for d in range(len(shape)) if d not in s["inserted"] and d not in s["batching"]]
    sizes = [1] * len(shape)
    for d, w in zip(inner, s["window"], strict=True):
        sizes[d] = rows[w]
    start = [np.zeros(rows, np.int64) for _ in shape]
    for k, d in enumerate(s["map"]):
        start[d] = _component(starts, k, shape[d])[batch]
    for d, i in zip(s["batching"], s["indices_batching"], strict=True):
        start[d] = batch[i - (s["vector"] < i)]
    inside, apart = np.ones(rows, bool), np.zeros(rows, bool)
    for p, k, n in zip(start, sizes, shape, strict=True):
        inside &= (p >= 0) & (p + k <= n)
        apart |= (p + k <= 0) | (p >= n)
    # XLA drops a window that lies outside in part, the specification its elements outside.
    if not (inside | apart).all():
        raise Reject("window outside in part")
    for d, w in zip(inner, s["window"], strict=True):
        start[d] = start[d] + grid[w]
    places = np.ravel_multi_index(tuple(np.broadcast_to(p, rows)[inside] for p in start), shape)
    dtype = op.ins[0].dtype
    chosen = Val(updates.array[inside], None if updates.err is None else updates.err[inside], updates.signed)
    if kind != "replace":
        return _folded_at(kind, x, places, chosen, dtype, keep=True)
    if len(np.unique(places)) < places.size:
        raise Reject("several replace one element")
    array, err = x.array.copy(), x.error().copy()
    array.reshape(-1)[places], err.reshape(-1)[places] = chosen.array, chosen.error()
    return Val(array, err, x.signed and updates.signed)


def _folded_at(kind: str, first: Val, places: Array, updates: Val, dtype: DType, keep: bool) -> Val:
    """`first` with each update folded in at its place (a flat index). `keep`: what gets none stays to the bit."""
    size, shape = first.array.size, first.array.shape

    def at(f: np.ufunc, terms: Array) -> Array:
        out = terms[:size].copy()
        f.at(out, places, terms[size:])
        return out

    terms = np.concatenate([first.array.ravel(), updates.array.ravel()])
    errors = None
    if not (first.exact and updates.exact):
        errors = np.concatenate([first.error().ravel(), updates.error().ravel()])
    hits = np.bincount(places, minlength=size)
    found = monoid(kind, terms, errors, dtype, 1 + hits, at)
    array, err = found.array.reshape(shape), found.error().reshape(shape)
    if keep:
        untouched = (hits == 0).reshape(shape)
        array = np.where(untouched, first.array, array)
        err = np.where(untouched, first.error(), err)
    return Val(array, err, first.signed and not places.size and keep)
