"""What contractions compute: sums of products, exact where those are small integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlir_lowering.dtypes import DType
from tests.fuzz.graph import Array, Op
from tests.fuzz.values import Reject, Val, finite, quantum, sums, widen, wrap, zeroed


def pad_array(x: Array, fill: Any, low: Any, high: Any, inner: Any) -> Array:
    """StableHLO's pad: negative edges cut."""
    sizes = [n + max(n - 1, 0) * k for n, k in zip(x.shape, inner, strict=True)]
    spread = np.full(sizes, fill, x.dtype)
    spread[tuple(slice(None, None, k + 1) for k in inner)] = x
    out = np.full([n + lo + hi for n, lo, hi in zip(sizes, low, high, strict=True)], fill, x.dtype)
    source, target = [], []
    for n, lo, m in zip(sizes, low, out.shape, strict=True):
        start, stop = max(0, -lo), min(n, m - lo)
        source.append(slice(start, max(start, stop)))
        target.append(slice(start + lo, max(start, stop) + lo))
    out[tuple(target)] = spread[tuple(source)]
    return out


def _contract(
    f: Callable[[Array, Array], Array], a: Val, b: Val, steps: int, operand: DType, result: DType, strict: bool = False
) -> Val:
    """f is bilinear. `strict`: some products are with zeros that are not there."""
    x, y = widen(a.array, operand), widen(b.array, operand)
    if operand.is_integer or operand.kind == "pred":
        with np.errstate(all="ignore"):
            if operand.kind == "pred":
                return Val(f(x.astype(np.int64), y.astype(np.int64)) > 0)
            return Val(wrap(f(x, y), result))
    if (strict or operand.is_complex) and not (finite(a.array).all() and finite(b.array).all()):
        raise Reject("special values")
    with np.errstate(all="ignore"):
        x, y = (
            x.astype(np.complex128 if operand.is_complex else np.float64),
            y.astype(np.complex128 if operand.is_complex else np.float64),
        )
        wide = f(x, y)
        ax, ay = zeroed(x), zeroed(y)
        total = f(ax, ay)
        grain = quantum(x) * quantum(y)
        inherited = None
        if not (a.exact and b.exact):
            inherited = f(ax, b.error()) + f(a.error(), ay) + f(a.error(), b.error())
        if operand.bits == 64 and not operand.is_complex:
            # Computed here in f64 as well: only exact results are a reference.
            total = total * 4
        if operand.is_complex:
            total, steps = 2 * total, 2 * steps
        return sums(wide, total, steps, grain, inherited, result)


def dot(op: Op, vals: list[Val]) -> Val:
    lb, rb, lc, rc = op.attrs["_dot"]
    left, right = op.ins
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    lhs = ["" for _ in left.shape]
    rhs = ["" for _ in right.shape]
    for i, j in [*zip(lb, rb, strict=True), *zip(lc, rc, strict=True)]:
        lhs[i] = rhs[j] = next(letters)
    lhs = [x or next(letters) for x in lhs]
    rhs = [x or next(letters) for x in rhs]
    free_l = [x for n, x in enumerate(lhs) if n not in (*lb, *lc)]
    free_r = [x for n, x in enumerate(rhs) if n not in (*rb, *rc)]
    code = f"{''.join(lhs)},{''.join(rhs)}->{''.join([lhs[i] for i in lb] + free_l + free_r)}"
    steps = math.prod(left.shape[i] for i in lc)
    return _contract(lambda x, y: np.asarray(np.einsum(code, x, y)), *vals, steps, left.dtype, op.outs[0].dtype)


def convolution(op: Op, vals: list[Val]) -> Val:
    c = op.attrs["_conv"]

    def run(x: Array, y: Array) -> Array:
        x = np.transpose(x, c["lhs"])  # N, C, space
        y = np.transpose(y, c["rhs"])  # O, I, space
        space = x.ndim - 2
        if any(c["reverse"]):
            y = np.flip(y, tuple(2 + i for i in range(space) if c["reverse"][i]))
        x = pad_array(
            x,
            0,
            [0, 0, *[p[0] for p in c["pad"]]],
            [0, 0, *[p[1] for p in c["pad"]]],
            [0, 0, *[d - 1 for d in c["lhs_dilation"]]],
        )
        groups, batches = c["groups"], c["batch_groups"]
        sizes = [
            max((n - (k - 1) * d - 1) // s + 1, 0) if k else 0
            for n, k, d, s in zip(x.shape[2:], y.shape[2:], c["rhs_dilation"], c["stride"], strict=True)
        ]
        if batches > 1:
            x = np.concatenate(np.split(x, batches, 0), 1)
            groups = batches
        o = y.shape[0]
        out = np.zeros((x.shape[0], o, *sizes), x.dtype)
        per_in, per_out = x.shape[1] // groups, o // groups
        for tap in itertools.product(*map(range, y.shape[2:])):
            at = tuple(
                slice(t * d, t * d + (n - 1) * s + 1 if n else t * d, s)
                for t, d, s, n in zip(tap, c["rhs_dilation"], c["stride"], sizes, strict=True)
            )
            part = x[(slice(None), slice(None), *at)]
            for g in range(groups):
                w = y[(slice(g * per_out, (g + 1) * per_out), slice(None), *tap)]
                out[:, g * per_out : (g + 1) * per_out] += np.einsum(
                    "ni...,oi->no...", part[:, g * per_in : (g + 1) * per_in], w
                )
        # The result's dimensions: c["out"][k] is where N, O, space... goes.
        return np.transpose(out, np.argsort(c["out"]))

    steps = math.prod(op.ins[1].shape[d] for d in c["rhs"][1:])
    return _contract(run, *vals, steps, op.ins[0].dtype, op.outs[0].dtype, strict=True)
