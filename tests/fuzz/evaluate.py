"""What a program computes, op by op on numpy arrays: the fuzzer's first oracle."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlir_lowering.dtypes import DType
from tests.fuzz import elementwise as ew
from tests.fuzz.contract import convolution, dot, pad_array
from tests.fuzz.graph import Array, Block, Op, Var
from tests.fuzz.values import (
    Reject,
    Val,
    digits,
    finite,
    quantum,
    require_exact,
    rounded,
    sums,
    widen,
    wrap,
    zeroed,
)

# Loops that go on longer are not for testing.
TRIPS = 40

Env = dict[Var, Val]


def run_block(block: Block, arguments: list[Val], outer: Env | None = None) -> list[Val]:
    env = dict(outer or {})
    env.update(zip(block.args, arguments, strict=True))
    for op in block.ops:
        env.update(zip(op.outs, run_op(op, env), strict=True))
    return [env[v] for v in block.outputs]


def run_op(op: Op, env: Env) -> list[Val]:
    vals = [env[v] for v in op.ins]
    if op.blocks and op.kind in _CONTROL:
        return _CONTROL[op.kind](op, vals, env)
    if op.kind in ("divide", "remainder") and op.ins[0].dtype.is_integer:
        return [ew.integer_divide(op, vals)]
    if op.kind == "abs" and op.ins[0].dtype.is_complex:
        return [ew.complex_abs(op, vals)]
    if op.kind in ew.TABLE:
        return [ew.elementwise(op, vals)]
    found = _OPS[op.kind](op, vals)
    return found if isinstance(found, list) else [found]


# ---------------------------------------------------------------- views and constants


def _view(f: Callable[[Op, Array], Array]) -> Callable[[Op, list[Val]], Val]:
    def run(op: Op, vals: list[Val]) -> Val:
        (v,) = vals
        err = None if v.err is None else np.array(f(op, v.err), order="C")
        return Val(np.array(f(op, v.array)), err, v.signed)

    return run


def _broadcast(op: Op, x: Array) -> Array:
    shape = op.outs[0].shape
    at = [1] * len(shape)
    for d, n in zip(op.attrs["_dims"], x.shape, strict=True):
        at[d] = n
    return np.broadcast_to(x.reshape(at), shape)


def _slice(op: Op, x: Array) -> Array:
    return x[tuple(slice(*t) for t in zip(*op.attrs["_slice"], strict=True))]


def _pad(op: Op, vals: list[Val]) -> Val:
    x, fill = vals
    err = None
    if not (x.exact and fill.exact):
        err = pad_array(x.error(), fill.error()[()], *op.attrs["_pad"])
    return Val(pad_array(x.array, fill.array[()], *op.attrs["_pad"]), err, x.signed and fill.signed)


def _concatenate(op: Op, vals: list[Val]) -> Val:
    axis = op.attrs["_dim"]
    err = None if all(v.exact for v in vals) else np.concatenate([v.error() for v in vals], axis)
    return Val(np.concatenate([v.array for v in vals], axis), err, all(v.signed for v in vals))


def _iota(op: Op, vals: list[Val]) -> Val:
    (out,) = op.outs
    at = np.arange(out.shape[op.attrs["_dim"]]).reshape(
        [-1 if d == op.attrs["_dim"] else 1 for d in range(len(out.shape))]
    )
    wide = np.array(np.broadcast_to(at, out.shape))
    if out.dtype.is_float or out.dtype.is_complex:
        return rounded(wide.astype(np.longdouble), None, out.dtype)
    return Val(wrap(wide, out.dtype))


# ---------------------------------------------------------------- reductions


def fold(values: list[Array], kind: str) -> Array:
    f = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}.get(kind)
    f = f or {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[kind]
    out = values[0]
    for x in values[1:]:
        out = f(out, x)
    return out


def monoid(kind: str, terms: Array, errors: Array | None, dtype: DType) -> Val:
    """`terms` (n, ...) folded over the first axis."""
    count = len(terms)
    with np.errstate(all="ignore"):
        if dtype.kind in ("pred", "int", "uint"):
            wide = widen(terms, dtype)
            if dtype.kind == "pred":
                kind = {"add": "or", "maximum": "or", "multiply": "and", "minimum": "and"}.get(kind, kind)
            return Val(wrap(fold(list(wide), kind), dtype))
        wide = widen(terms, dtype)
        if kind in ("maximum", "minimum"):
            out = rounded(fold(list(wide), kind), None if errors is None else errors.max(0), dtype)
            out.signed = False
            return out
        inherited = None if errors is None else errors.sum(0)
        if kind == "add":
            return sums(wide.sum(0), zeroed(wide).sum(0), count, quantum(wide), inherited, dtype)
        if errors is not None or not finite(wide).all() or dtype.is_complex:
            raise Reject("product")
        largest = np.maximum(np.abs(wide), 1).prod(0)
        if (wide != np.rint(wide)).any() or float(largest.max(initial=0)) >= 2.0 ** digits(dtype):
            raise Reject("product")
        out = rounded(wide.prod(0), None, dtype)
        out.signed = False
        return out


def _terms(op: Op, array: Array, init: Array) -> Array:
    """The operand's elements along a first axis, the initial value in front."""
    dims = op.attrs["_dims"]
    rest = [d for d in range(array.ndim) if d not in dims]
    moved = np.transpose(array, [*dims, *rest]).reshape(
        math.prod(array.shape[d] for d in dims), *[array.shape[d] for d in rest]
    )
    first = np.broadcast_to(init, moved.shape[1:])[None]
    return np.concatenate([first.astype(array.dtype), moved])


def _reduce(op: Op, vals: list[Val]) -> list[Val]:
    half = len(vals) // 2
    kinds = op.attrs["_kinds"]
    if kinds in (["argmax"], ["argmin"]):
        return _argmax(op, vals, kinds[0])
    found = []
    for x, init, kind, out in zip(vals[:half], vals[half:], kinds, op.outs, strict=True):
        errors = None if x.exact and init.exact else _terms(op, x.error(), init.error())
        found.append(monoid(kind, _terms(op, x.array, init.array), errors, out.dtype))
    return found


def _argmax(op: Op, vals: list[Val], kind: str) -> list[Val]:
    """The first of the largest (smallest), by the second operand, which is an iota of the whole."""
    x, at, x0, at0 = vals
    require_exact(*vals)
    terms = widen(_terms(op, x.array, x0.array), op.ins[0].dtype)
    places = _terms(op, at.array, at0.array)
    if op.ins[0].dtype.is_float and not (np.isfinite(terms[1:]).all()):
        raise Reject("argmax of NaN")
    best, where = terms[0], places[0]
    for value, place in zip(terms[1:], places[1:], strict=True):
        better = (value > best) if kind == "argmax" else (value < best)
        take = better | ((value == best) & (place < where))
        best, where = np.where(take, value, best), np.where(take, place, where)
    out = Val(np.asarray(best).astype(x.array.dtype), None, False)
    return [out, Val(np.asarray(where).astype(at.array.dtype))]


def window_terms(op: Op, x: Array, fill: Any) -> Array:
    """(window positions, ...result): `fill` where a window has no element."""
    w = op.attrs["_window"]
    inner = [d - 1 for d in w["base"]]
    padded = pad_array(x, fill, [p[0] for p in w["pad"]], [p[1] for p in w["pad"]], inner)
    shape = op.outs[0].shape
    taps = []
    for tap in itertools.product(*map(range, w["size"])):
        at = tuple(
            slice(t * dil, t * dil + (n - 1) * s + 1 if n else t * dil, s)
            for t, dil, s, n in zip(tap, w["dilation"], w["stride"], shape, strict=True)
        )
        taps.append(padded[at])
    return np.stack(taps)


def _reduce_window(op: Op, vals: list[Val]) -> Val:
    x, init = vals
    kind = op.attrs["_kinds"][0]
    terms = window_terms(op, x.array, init.array[()])
    errors = None if x.exact else window_terms(op, x.error(), 0.0)
    return monoid(kind, terms, errors, op.outs[0].dtype)


# ---------------------------------------------------------------- indexing


def _starts(vals: list[Val], limits: list[int]) -> list[int]:
    require_exact(*vals)
    return [min(max(int(v.array), 0), n) for v, n in zip(vals, limits, strict=True)]


def _dynamic_slice(op: Op, vals: list[Val]) -> Val:
    x, size = vals[0], op.outs[0].shape
    starts = _starts(vals[1:], [n - k for n, k in zip(op.ins[0].shape, size, strict=True)])
    at = tuple(slice(s, s + k) for s, k in zip(starts, size, strict=True))
    return Val(x.array[at].copy(), None if x.err is None else x.err[at].copy(), x.signed)


def _dynamic_update_slice(op: Op, vals: list[Val]) -> Val:
    x, u = vals[:2]
    size = op.ins[1].shape
    starts = _starts(vals[2:], [n - k for n, k in zip(op.ins[0].shape, size, strict=True)])
    at = tuple(slice(s, s + k) for s, k in zip(starts, size, strict=True))
    array, err = x.array.copy(), x.error().copy()
    array[at], err[at] = u.array, u.error()
    return Val(array, err, x.signed and u.signed)


def _index_vectors(op: Op, indices: Val, dim: int) -> Array:
    """The index vectors along a last axis; a missing one has length 1."""
    wide = widen(indices.array, op.ins[1].dtype)
    return wide[..., None] if dim == wide.ndim else np.moveaxis(wide, dim, -1)


def _gather(op: Op, vals: list[Val]) -> Val:
    x, indices = vals
    require_exact(indices)
    g, sizes = op.attrs["_gather"], op.attrs["_sizes"]
    out = op.outs[0]
    at = np.zeros((*out.shape, len(op.ins[0].shape)), np.int64)
    starts = _index_vectors(op, indices, g["vector"])
    batch_dims = [d for d in range(len(out.shape)) if d not in g["offset"]]
    inner = [d for d in range(len(op.ins[0].shape)) if d not in g["collapsed"] and d not in g["batching"]]
    for index in np.ndindex(*out.shape):
        batch = tuple(index[d] for d in batch_dims)
        place = np.zeros(len(op.ins[0].shape), np.int64)
        for k, d in enumerate(g["map"]):
            place[d] = min(max(int(starts[(*batch, k)]), 0), op.ins[0].shape[d] - sizes[d])
        for d, s in zip(g["batching"], g["indices_batching"], strict=True):
            place[d] = batch[s - (g["vector"] < s)]
        for d, o in zip(inner, g["offset"], strict=True):
            place[d] += index[o]
        at[index] = place
    where = tuple(np.moveaxis(at, -1, 0))
    return Val(x.array[where], None if x.err is None else x.err[where], x.signed)


def _scatter(op: Op, vals: list[Val]) -> Val:
    x, indices, updates = vals
    require_exact(indices)
    s, kind = op.attrs["_scatter"], op.attrs["_kinds"][0]
    shape = op.ins[0].shape
    starts = _index_vectors(op, indices, s["vector"])
    scatter_dims = [d for d in range(len(op.ins[2].shape)) if d not in s["window"]]
    inner = [d for d in range(len(shape)) if d not in s["inserted"] and d not in s["batching"]]
    sizes = [1] * len(shape)
    for d, w in zip(inner, s["window"], strict=True):
        sizes[d] = op.ins[2].shape[w]
    hits: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for index in np.ndindex(*op.ins[2].shape):
        batch = tuple(index[d] for d in scatter_dims)
        start = [0] * len(shape)
        for k, d in enumerate(s["map"]):
            start[d] = int(starts[(*batch, k)])
        for d, i in zip(s["batching"], s["indices_batching"], strict=True):
            start[d] = batch[i - (s["vector"] < i)]
        outside = [p < 0 or p + k > n for p, k, n in zip(start, sizes, shape, strict=True)]
        if any(outside):
            # XLA drops a window that lies outside in part, the specification its elements outside.
            if not any(p + k <= 0 or p >= n for p, k, n in zip(start, sizes, shape, strict=True)):
                raise Reject("window outside in part")
            continue
        for d, w in zip(inner, s["window"], strict=True):
            start[d] += index[w]
        hits.setdefault(tuple(start), []).append(index)
    dtype = op.ins[0].dtype
    if kind == "replace":
        array, err = x.array.copy(), x.error().copy()
        for place, sources in hits.items():
            if len(sources) > 1:
                raise Reject("several replace one element")
            array[place], err[place] = updates.array[sources[0]], updates.error()[sources[0]]
        return Val(array, err, x.signed and updates.signed)
    array, err, signed = x.array.copy(), x.error().copy(), x.signed
    for place, sources in hits.items():
        terms = np.array([x.array[place], *[updates.array[i] for i in sources]], dtype=x.array.dtype)
        errors = np.array([x.error()[place], *[updates.error()[i] for i in sources]])
        one = monoid(kind, terms, errors if errors.any() else None, dtype)
        array[place], err[place], signed = one.array[()], one.error()[()], False
    return Val(array, err, signed)


def _sort(op: Op, vals: list[Val]) -> list[Val]:
    axis, key = op.attrs["_dim"], op.attrs["_key"]
    require_exact(vals[key])
    wide = widen(vals[key].array, op.ins[key].dtype)
    if op.ins[key].dtype.is_float and np.isnan(wide.astype(np.float64)).any():
        raise Reject("order of NaN")
    if op.attrs["_descending"]:
        # Stable: equal keys keep their order.
        order = np.flip(np.argsort(np.flip(wide, axis), axis, kind="stable"), axis)
        order = wide.shape[axis] - 1 - order
    else:
        order = np.argsort(wide, axis, kind="stable")
    return [
        Val(
            np.take_along_axis(v.array, order, axis),
            None if v.err is None else np.take_along_axis(v.err, order, axis),
            v.signed,
        )
        for v in vals
    ]


def _reduce_precision(op: Op, vals: list[Val]) -> Val:
    """To bf16's digits: what is not a number of bf16 is not tested (ties, overflow)."""
    require_exact(*vals)
    wide = widen(vals[0].array, op.ins[0].dtype)
    with np.errstate(all="ignore"):
        import ml_dtypes

        if (zeroed(wide)[wide != 0] < 1e-30).any() if wide.size else False:
            raise Reject("denormal")
        near = wide.astype(np.float32).astype(ml_dtypes.bfloat16)
        if (finite(wide) & ~finite(near)).any():
            raise Reject("overflow")
        return Val(near.astype(vals[0].array.dtype), None, vals[0].signed)


# ---------------------------------------------------------------- control flow


def _while(op: Op, vals: list[Val], env: Env) -> list[Val]:
    cond, body = op.blocks
    for _ in range(TRIPS):
        (go,) = run_block(cond, vals, env)
        require_exact(go)
        if not bool(go.array):
            return vals
        vals = run_block(body, vals, env)
    raise Reject("endless loop")


def _case(op: Op, vals: list[Val], env: Env) -> list[Val]:
    require_exact(vals[0])
    if op.kind == "if":
        return run_block(op.blocks[0 if bool(vals[0].array) else 1], [], env)
    at = int(vals[0].array)
    return run_block(op.blocks[at if 0 <= at < len(op.blocks) else -1], [], env)


_CONTROL = {"while": _while, "case": _case, "if": _case}

_OPS: dict[str, Callable[[Op, list[Val]], Any]] = {
    "shift_left": ew.shift,
    "shift_right_logical": ew.shift,
    "shift_right_arithmetic": ew.shift,
    "popcnt": ew.count,
    "count_leading_zeros": ew.count,
    "compare": ew.compare,
    "is_finite": ew.is_finite,
    "select": ew.select,
    "clamp": ew.clamp,
    "convert": ew.convert,
    "bitcast_convert": ew.bitcast,
    "real": ew.complex_parts,
    "imag": ew.complex_parts,
    "complex": ew.complex_make,
    "reduce_precision": _reduce_precision,
    "reshape": _view(lambda op, x: x.reshape(op.outs[0].shape)),
    "transpose": _view(lambda op, x: np.transpose(x, op.attrs["_perm"])),
    "reverse": _view(lambda op, x: np.flip(x, tuple(op.attrs["_dims"]))),
    "broadcast_in_dim": _view(_broadcast),
    "slice": _view(_slice),
    "optimization_barrier": _view(lambda op, x: x),
    "pad": _pad,
    "concatenate": _concatenate,
    "constant": lambda op, vals: Val(op.attrs["_value"]),
    "iota": _iota,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "dot_general": dot,
    "convolution": convolution,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    "sort": _sort,
}
