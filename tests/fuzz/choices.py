"""What may come next in a random program: one function a family of ops, each with its weight."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mlir_lowering.dtypes import BY_NAME, DType
from tests.fuzz import control
from tests.fuzz.elementwise import TABLE
from tests.fuzz.generate import F32, I32, PRED, Generator
from tests.fuzz.graph import Var, i64s
from tests.fuzz.heads import HEADS
from tests.fuzz.values import Reject
from tests.fuzz.windows import reduce_window


def unary(g: Generator) -> None:
    v = g.pick()
    kinds = [k for k, row in TABLE.items() if row.operands == 1 and v.dtype.kind in row.kinds]
    if v.dtype.kind != "pred" and v.dtype.is_integer:
        kinds += ["popcnt", "count_leading_zeros"]
    if v.dtype.is_float:
        kinds += ["is_finite", "reduce_precision"] + ["negate", "abs"] * 3
    if v.dtype.is_complex:
        kinds += ["real", "imag", "abs"]
    kind = g.choose(kinds)
    result, attrs = v.dtype, {}
    if kind == "is_finite":
        result = PRED
    if v.dtype.is_complex and kind in ("real", "imag", "abs"):
        result = v.dtype.part
    if kind == "reduce_precision":
        if v.dtype is not F32:
            raise Reject("only f32")
        attrs = {"exponent_bits": "8 : i32", "mantissa_bits": "7 : i32"}
    g.one(kind, [v], (v.shape, result), attrs)


def binary(g: Generator) -> None:
    a = g.pick()
    kinds = [k for k, row in TABLE.items() if row.operands == 2 and a.dtype.kind in row.kinds]
    if a.dtype.is_integer:
        kinds += ["divide", "remainder", "shift_left", "shift_right_logical", "shift_right_arithmetic"]
    if a.dtype.is_float:
        kinds += ["add", "subtract", "multiply", "maximum"] * 2
    kind = g.choose(kinds)
    b = g.of(a.shape, a.dtype)
    if kind in ("divide", "remainder", "power") and g.chance(0.7):
        b = g.broadcast(g.scalar(g.choose([2, 3, 4, 1]), a.dtype), a.shape)
    if kind.startswith("shift") and g.chance(0.7):
        b = g.broadcast(g.scalar(g.between(0, min(a.dtype.bits, 7)), a.dtype), a.shape)
    pair = [b, a] if g.chance(0.3) and kind not in ("divide", "remainder", "power") else [a, b]
    g.one(kind, pair, (a.shape, a.dtype))


def compare(g: Generator) -> None:
    a = g.pick()
    b = g.of(a.shape, a.dtype)
    directions = ["EQ", "NE"] if a.dtype.is_complex else ["EQ", "NE", "LT", "LE", "GT", "GE"]
    total = a.dtype.is_float and g.chance(0.2)
    g.one("compare", [a, b], (a.shape, PRED), compare_attrs(g.choose(directions), a.dtype, total))


def compare_attrs(direction: str, dtype: DType, total: bool = False) -> dict[str, Any]:
    kind = {"int": "SIGNED", "uint": "UNSIGNED", "pred": "UNSIGNED"}.get(dtype.kind, "TOTALORDER" if total else "FLOAT")
    return {
        "comparison_direction": f"#stablehlo<comparison_direction {direction}>",
        "compare_type": f"#stablehlo<comparison_type {kind}>",
        "_direction": direction,
        "_total": total,
    }


def select(g: Generator) -> None:
    a = g.pick()
    b = g.of(a.shape, a.dtype)
    p = g.of(a.shape if g.chance(0.85) else (), PRED)
    g.one("select", [p, a, b], (a.shape, a.dtype))


def clamp(g: Generator) -> None:
    x = g.pick(lambda v: v.dtype.kind in ("float", "int", "uint"))
    scalar = g.chance(0.7)
    low = g.scalar(g.between(0, 2), x.dtype) if scalar else g.of(x.shape, x.dtype)
    high = g.scalar(g.between(2, 5), x.dtype) if scalar else g.of(x.shape, x.dtype)
    g.one("clamp", [low, x, high], (x.shape, x.dtype))


def convert(g: Generator) -> None:
    v = g.pick()
    to = g.choose([*g.dtypes, F32, I32, PRED])
    if to is v.dtype:
        raise Reject("same type")
    g.one("convert", [v], (v.shape, to))


def bitcast(g: Generator) -> None:
    v = g.pick(lambda v: v.dtype.bits >= 8 and not v.dtype.is_complex)
    fitting = [d for d in BY_NAME.values() if d.bits == v.dtype.bits and d is not v.dtype and d.name in _PLAIN]
    g.one("bitcast_convert", [v], (v.shape, g.choose(fitting)))


_PLAIN = {"f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64"}


def make_complex(g: Generator) -> None:
    a = g.pick(lambda v: v.dtype is F32)
    g.one("complex", [a, g.of(a.shape, F32)], (a.shape, BY_NAME["complex<f32>"]))


def reshape(g: Generator) -> None:
    v = g.pick()
    shape: list[int] = []
    rest = v.size
    if rest == 0:
        raise Reject("empty")
    for p in (2, 3, 5, 7, 11, 13, 17, 31, 37):
        while rest % p == 0 and g.chance(0.4):
            rest //= p
            shape.append(p)
    shape += [rest] + [1] * g.between(0, 1)
    order = g.rng.permutation(len(shape))
    if len(shape) > 5:
        raise Reject("rank")
    g.one("reshape", [v], (tuple(shape[i] for i in order), v.dtype))


def transpose(g: Generator) -> None:
    v = g.pick(lambda v: len(v.shape) > 1)
    perm = [int(i) for i in g.rng.permutation(len(v.shape))]
    g.one("transpose", [v], (tuple(v.shape[i] for i in perm), v.dtype), {"permutation": i64s(perm), "_perm": perm})


def broadcast(g: Generator) -> None:
    v = g.pick(lambda v: len(v.shape) < 4)
    shape = list(v.shape)
    for _ in range(g.between(1, 2)):
        shape.insert(g.between(0, len(shape)), g.choose(g.dims))
    dims = sorted(int(i) for i in g.rng.permutation(len(shape))[: len(v.shape)])
    for d, n in zip(dims, v.shape, strict=True):
        if n != 1 or g.chance(0.3):
            shape[d] = n
    rest = [d for d in range(len(shape)) if d not in dims]
    for d in rest:
        if math.prod(shape) > g.limit:
            shape[d] = g.between(1, 2)
    g.one(
        "broadcast_in_dim",
        [v],
        (tuple(shape), v.dtype),
        {"broadcast_dimensions": i64s(dims), "_dims": dims},
    )


def slice_(g: Generator) -> None:
    v = g.pick(lambda v: len(v.shape) > 0)
    starts, limits, strides = [], [], []
    for n in v.shape:
        if g.chance(0.4):
            start, limit, stride = 0, n, 1
        else:
            start = g.between(0, max(n - 1, 0))
            limit, stride = g.between(start if g.chance(0.05) else min(start + 1, n), n), g.choose([1, 1, 1, 2, 3])
        starts.append(start)
        limits.append(limit)
        strides.append(stride)
    shape = tuple(max(0, -(-(b - a) // s)) for a, b, s in zip(starts, limits, strides, strict=True))
    g.one(
        "slice",
        [v],
        (shape, v.dtype),
        {
            "start_indices": i64s(starts),
            "limit_indices": i64s(limits),
            "strides": i64s(strides),
            "_slice": (starts, limits, strides),
        },
    )


def reverse(g: Generator) -> None:
    v = g.pick(lambda v: len(v.shape) > 0)
    dims = sorted({g.between(0, len(v.shape) - 1) for _ in range(2)})
    g.one("reverse", [v], (v.shape, v.dtype), {"dimensions": i64s(dims), "_dims": dims})


def pad(g: Generator) -> None:
    v = g.pick(lambda v: len(v.shape) > 0)
    low, high, inner, shape = [], [], [], []
    for n in v.shape:
        lo, hi, k = (0, 0, 0) if g.chance(0.4) else (g.between(-2, 3), g.between(-2, 3), g.choose([0, 0, 1, 2]))
        size = n + max(n - 1, 0) * k
        if size + lo + hi < 0 or size + min(lo, 0) < 0 or size + min(hi, 0) < 0:
            lo = hi = 0
        low.append(lo)
        high.append(hi)
        inner.append(k)
        shape.append(size + lo + hi)
    fill = g.of((), v.dtype) if g.chance(0.5) else g.scalar(g.between(0, 3), v.dtype)
    g.one(
        "pad",
        [v, fill],
        (tuple(shape), v.dtype),
        {
            "edge_padding_low": i64s(low),
            "edge_padding_high": i64s(high),
            "interior_padding": i64s(inner),
            "_pad": (low, high, inner),
        },
    )


def concatenate(g: Generator) -> None:
    v = g.pick(lambda v: len(v.shape) > 0)
    axis = g.between(0, len(v.shape) - 1)

    def fits(w: Var) -> bool:
        return (
            w.dtype is v.dtype
            and len(w.shape) == len(v.shape)
            and all(a == b for d, (a, b) in enumerate(zip(w.shape, v.shape, strict=True)) if d != axis)
        )

    parts = [v, *(g.pick(fits) for _ in range(g.between(0, 2)))]
    if g.chance(0.3):
        shape = list(v.shape)
        shape[axis] = g.between(1, 3)
        parts.append(g.of(tuple(shape), v.dtype))
    parts = [parts[i] for i in g.rng.permutation(len(parts))]
    shape = list(v.shape)
    shape[axis] = sum(p.shape[axis] for p in parts)
    g.one("concatenate", parts, (tuple(shape), v.dtype), {"dimension": f"{axis} : i64", "_dim": axis})


def iota(g: Generator) -> None:
    shape = g.shape(g.between(1, 3))
    axis = g.between(0, len(shape) - 1)
    dtype = g.dtype("float", "int", "uint", "complex")
    g.one("iota", [], (shape, dtype), {"iota_dimension": f"{axis} : i64", "_dim": axis})


def fresh(g: Generator) -> None:
    g.fresh(g.shape(), g.dtype())


def twice(g: Generator) -> None:
    """A value that two ops read in other ways: x - reverse(x), x * broadcast(max(x))."""
    v = g.pick(lambda v: v.dtype.kind in ("float", "int", "uint") and len(v.shape) > 0)
    a = g.one("reverse", [v], (v.shape, v.dtype), {"dimensions": i64s([0]), "_dims": [0]})
    g.one(g.choose(["add", "subtract", "maximum", "multiply"]), [v, a], (v.shape, v.dtype))


CHOICES: list[tuple[Callable[[Generator], None], float]] = [
    (unary, 9),
    (binary, 14),
    (compare, 4),
    (select, 4),
    (clamp, 1),
    (convert, 4),
    (bitcast, 1),
    (make_complex, 0.5),
    (reshape, 3),
    (transpose, 4),
    (broadcast, 4),
    (slice_, 4),
    (reverse, 2),
    (pad, 3),
    (concatenate, 3),
    (iota, 1.5),
    (fresh, 1.5),
    (twice, 2),
    *HEADS,
    *control.CONTROL,
]
_WEIGHTS = np.array([w for _, w in CHOICES])
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
# Wide programs are there for the loop nests.
_WIDE_WEIGHTS = np.array([w * {reduce_window: 4}.get(f, 2 if (f, w) in HEADS else 1) for f, w in CHOICES])
_WIDE_WEIGHTS = _WIDE_WEIGHTS / _WIDE_WEIGHTS.sum()


def add_op(g: Generator) -> None:
    """One more, or several that go together; nothing if that would not be known sharply."""
    choose, _ = CHOICES[int(g.rng.choice(len(CHOICES), p=_WIDE_WEIGHTS if g.wide else _WEIGHTS))]
    count, here, arguments = len(g.block.ops), len(g.here), len(g.block.args)
    try:
        choose(g)
    except Reject:
        del g.block.ops[count:]
        del g.here[here:]
        if g.parent is None:
            del g.inputs[arguments:]
            del g.block.args[arguments:]
