"""What a program computes, op by op on numpy arrays: the fuzzer's first oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz import elementwise as ew
from tests.fuzz import folds
from tests.fuzz.contract import convolution, dot, pad_array
from tests.fuzz.graph import Array, Block, Op, Var
from tests.fuzz.values import Reject, Val, finite, require_exact, rounded, widen, wrap, zeroed

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
    "reduce": folds.reduce,
    "select_and_scatter": folds.select_and_scatter,
    "reduce_window": folds.reduce_window,
    "dot_general": dot,
    "convolution": convolution,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": folds.gather,
    "scatter": folds.scatter,
    "sort": _sort,
}
