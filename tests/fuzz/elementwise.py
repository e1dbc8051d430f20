"""What elementwise ops compute, on numpy arrays wide enough that one operation's rounding does not matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlir_lowering.dtypes import DType
from tests.fuzz.graph import Array, Op
from tests.fuzz.values import (
    FUNCTION_ULPS,
    Reject,
    Val,
    checked,
    digits,
    epsilon,
    finite,
    require_exact,
    require_signed,
    rounded,
    spread,
    widen,
    wrap,
)

Domain = Callable[..., Any]


@dataclass(frozen=True)
class Elementwise:
    """`kinds` of element; `function`: nobody rounds it correctly; `sharp`: it jumps, so operands must be exact;
    `signs`: it shows the sign of a zero operand; `domain`: where it is tested (given finite operands)."""

    f: Callable[..., Array]
    operands: int
    kinds: tuple[str, ...]
    function: bool = False
    sharp: bool = False
    signs: bool = False
    domain: Domain | None = None
    loses_sign: bool = False


def _round_afz(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _sign(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))


FLOAT = ("float",)
NUMBER = ("float", "int", "uint")
ALL = ("float", "int", "uint", "complex")
BITS = ("int", "uint", "pred")


def _near(bound: float) -> Domain:
    return lambda x: np.abs(x) <= bound


TABLE = {
    "negate": Elementwise(np.negative, 1, ALL),
    "abs": Elementwise(np.abs, 1, ("float", "int")),
    "floor": Elementwise(np.floor, 1, FLOAT, sharp=True),
    "ceil": Elementwise(np.ceil, 1, FLOAT, sharp=True),
    "round_nearest_even": Elementwise(np.rint, 1, FLOAT, sharp=True),
    "round_nearest_afz": Elementwise(_round_afz, 1, FLOAT, sharp=True),
    "sign": Elementwise(_sign, 1, ("float", "int"), sharp=True),
    "exponential": Elementwise(np.exp, 1, FLOAT, function=True, domain=_near(8)),
    "exponential_minus_one": Elementwise(np.expm1, 1, FLOAT, function=True, domain=_near(8)),
    "log": Elementwise(np.log, 1, FLOAT, function=True, domain=lambda x: x >= 0.03),
    "log_plus_one": Elementwise(np.log1p, 1, FLOAT, function=True, domain=lambda x: x >= -0.9),
    "tanh": Elementwise(np.tanh, 1, FLOAT, function=True),
    "logistic": Elementwise(lambda x: 1 / (1 + np.exp(-x)), 1, FLOAT, function=True, domain=_near(30)),
    "sine": Elementwise(np.sin, 1, FLOAT, function=True, domain=_near(50)),
    "cosine": Elementwise(np.cos, 1, FLOAT, function=True, domain=_near(50)),
    "sqrt": Elementwise(np.sqrt, 1, FLOAT, function=True, domain=lambda x: (x == 0) | (x > 1e-3)),
    "rsqrt": Elementwise(lambda x: 1 / np.sqrt(x), 1, FLOAT, function=True, domain=lambda x: x > 1e-3),
    "cbrt": Elementwise(np.cbrt, 1, FLOAT, function=True, domain=lambda x: (x == 0) | (np.abs(x) > 1e-3)),
    "add": Elementwise(np.add, 2, (*ALL, "pred")),
    "subtract": Elementwise(np.subtract, 2, ALL),
    "multiply": Elementwise(np.multiply, 2, (*ALL, "pred")),
    "maximum": Elementwise(np.maximum, 2, (*NUMBER, "pred"), loses_sign=True),
    "minimum": Elementwise(np.minimum, 2, (*NUMBER, "pred"), loses_sign=True),
    "divide": Elementwise(np.divide, 2, ("float", "complex"), signs=True, domain=lambda a, b: np.abs(b) > 1e-3),
    "remainder": Elementwise(np.fmod, 2, FLOAT, sharp=True, domain=lambda a, b: (b != 0) & (np.abs(a) < 1e6)),
    "atan2": Elementwise(np.arctan2, 2, FLOAT, function=True, sharp=True, signs=True),
    "power": Elementwise(
        np.power, 2, FLOAT, function=True, domain=lambda a, b: (a > 0.05) & (a < 20) & (np.abs(b) <= 4)
    ),
    "and": Elementwise(np.bitwise_and, 2, BITS),
    "or": Elementwise(np.bitwise_or, 2, BITS),
    "xor": Elementwise(np.bitwise_xor, 2, BITS),
    "not": Elementwise(np.invert, 1, BITS),
}


def elementwise(op: Op, vals: list[Val]) -> Val:
    row, dtype = TABLE[op.kind], op.ins[0].dtype
    wides = [widen(v.array, dtype) for v in vals]
    with np.errstate(all="ignore"):
        if not dtype.is_float and not dtype.is_complex:
            return Val(wrap(row.f(*wides), dtype))
        there = np.logical_and.reduce([finite(v.array) for v in vals])
        if dtype.is_complex and not there.all():
            raise Reject("special complex")
        if row.sharp:
            require_exact(*vals)
        if row.signs:
            require_signed(*vals)
        if row.domain is not None:
            # Errors must not leave the domain either.
            if any((v.error() > 1e-4 * (1e-2 + np.abs(w))).any() for v, w in zip(vals, wides, strict=True)):
                raise Reject("domain")
            if not (row.domain(*wides) | ~there).all():
                raise Reject("domain")
        wide = row.f(*wides)
        if (there & ~np.isfinite(wide)).any():
            raise Reject("no finite result")
        moved = spread(row.f, wide, wides, vals)
        ulps = FUNCTION_ULPS if row.function or dtype.is_complex else 1.0
        if dtype.is_complex and op.kind in ("add", "subtract", "negate"):
            ulps = 1.0
        if dtype.is_complex and op.kind in ("multiply", "divide"):
            return _complex(op.kind, wides, wide, moved, dtype)
        always = row.function
        val = rounded(wide, moved, dtype, ulps, always)
        if always and val.err is not None:
            # Near a zero of the function the argument's reduction counts.
            val.err = val.err + np.where(there, 4 * epsilon(dtype) * (np.abs(wide) < 0.25), 0)
            val = checked(val, dtype)
    val.signed = all(v.signed for v in vals) and not row.loses_sign and not dtype.is_complex
    return val


def _complex(kind: str, wides: list[Array], wide: Array, moved: Array | None, dtype: DType) -> Val:
    """Parts are sums of products: exact if those are small integers."""
    a, b = wides
    size = np.abs(a) * np.abs(b) if kind == "multiply" else np.abs(wide)
    whole = all((w.real == np.rint(w.real)).all() and (w.imag == np.rint(w.imag)).all() for w in wides)
    exact = kind == "multiply" and moved is None and whole and float(size.max(initial=0)) < 2.0 ** (digits(dtype) - 2)
    bound = None if exact else 8 * epsilon(dtype) * size.astype(np.float64) + (0 if moved is None else moved)
    val = rounded(wide, bound, dtype)
    val.signed = False
    return val


def integer_divide(op: Op, vals: list[Val]) -> Val:
    """Towards zero. Division by zero and the quotient that overflows are not tested: StableHLO leaves them open."""
    a, b = (widen(v.array, op.ins[0].dtype) for v in vals)
    dtype = op.ins[0].dtype
    if (b == 0).any() or (dtype.kind == "int" and ((b == -1) & (a == -(2 ** (dtype.bits - 1)))).any()):
        raise Reject("division")
    if dtype.kind == "uint":
        return Val(wrap(a // b if op.kind == "divide" else a % b, dtype))
    with np.errstate(all="ignore"):
        quotient = (np.abs(a) // np.abs(b)) * np.sign(a) * np.sign(b)
        if (a == np.iinfo(np.int64).min).any() or (b == np.iinfo(np.int64).min).any():
            raise Reject("division")
    return Val(wrap(quotient if op.kind == "divide" else a - quotient * b, dtype))


def shift(op: Op, vals: list[Val]) -> Val:
    """Amounts of the width or more shift everything out."""
    dtype = op.ins[0].dtype
    bits = dtype.bits
    a, b = (widen(v.array, dtype).astype(object) for v in vals)
    mask = 2**bits - 1

    def one(x: int, n: int) -> int:
        n &= mask
        if op.kind == "shift_left":
            return (x << n) & mask if n < bits else 0
        if op.kind == "shift_right_logical":
            return (x & mask) >> n if n < bits else 0
        x &= mask
        x -= 2**bits if x >= 2 ** (bits - 1) else 0
        return (x >> min(n, bits - 1)) & mask

    raw = np.array([one(int(x), int(n)) & mask for x, n in zip(a.flat, b.flat, strict=True)], object).reshape(a.shape)
    return Val(_from_bits(raw, dtype))


def count(op: Op, vals: list[Val]) -> Val:
    dtype = op.ins[0].dtype
    wide = widen(vals[0].array, dtype).astype(object)
    raw = [int(x) & (2**dtype.bits - 1) for x in wide.flat]
    found = [x.bit_count() if op.kind == "popcnt" else dtype.bits - x.bit_length() for x in raw]
    return Val(wrap(np.array(found, np.int64).reshape(wide.shape), dtype))


def _from_bits(raw: Array, dtype: DType) -> Array:
    if dtype.kind == "int":
        half = 2 ** (dtype.bits - 1)
        raw = np.array([int(x) - 2 * half if x >= half else int(x) for x in raw.flat], object).reshape(raw.shape)
    wide = raw.astype(np.uint64 if dtype.kind == "uint" else np.int64)
    return wrap(wide, dtype)


_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def compare(op: Op, vals: list[Val]) -> Val:
    require_exact(*vals)
    a, b = (widen(v.array, op.ins[0].dtype) for v in vals)
    if op.attrs.get("_total"):
        require_signed(*vals)
        if not (finite(a) & finite(b)).all():
            raise Reject("order of NaN")
        a, b = (total_order(x) for x in (a, b))
    return Val(np.asarray(_COMPARE[op.attrs["_direction"]](a, b)))


def total_order(x: Array) -> Array:
    """Numbers that order as the finite floats do, -0 before +0."""
    bits = np.asarray(x).astype(np.float64).view(np.int64)
    return np.where(bits < 0, ~(bits & np.int64(2**63 - 1)), bits)


def is_finite(op: Op, vals: list[Val]) -> Val:
    return Val(finite(vals[0].array))


def select(op: Op, vals: list[Val]) -> Val:
    pred, a, b = vals
    chosen = np.broadcast_to(pred.array, a.array.shape)
    err = None if a.exact and b.exact else np.where(chosen, a.error(), b.error())
    return Val(np.asarray(np.where(chosen, a.array, b.array)).astype(a.array.dtype), err, a.signed and b.signed)


def clamp(op: Op, vals: list[Val]) -> Val:
    dtype = op.ins[1].dtype
    low, x, high = (widen(v.array, dtype) for v in vals)
    if dtype.is_float and not all(finite(v.array).all() for v in vals):
        raise Reject("clamp of NaN")
    if (low > high).any():
        raise Reject("empty clamp")
    wide = np.minimum(np.maximum(low, x), high)
    if not dtype.is_float:
        return Val(wrap(wide, dtype))
    err = (
        None
        if all(v.exact for v in vals)
        else np.maximum.reduce([np.broadcast_to(v.error(), wide.shape) for v in vals])
    )
    val = rounded(wide, err, dtype)
    val.signed = False
    return val


def convert(op: Op, vals: list[Val]) -> Val:
    source, result = op.ins[0].dtype, op.outs[0].dtype
    (val,) = vals
    wide = widen(val.array, source)
    if source.is_complex and result.kind != "complex":
        wide = wide.real
    if result.kind == "pred":
        require_exact(val)
        return Val(np.asarray(wide != 0))
    if result.is_integer:
        require_exact(val)
        if source.is_float or source.is_complex:
            low = -(2.0 ** (result.bits - 1)) if result.kind == "int" else 0.0
            high = 2.0 ** (result.bits - (result.kind == "int"))
            cut = np.trunc(wide)
            if not (np.isfinite(wide) & (cut >= low) & (cut < high)).all():
                raise Reject("out of range")
            return Val(wrap(cut.astype(np.uint64 if result.name == "ui64" else np.int64), result))
        return Val(wrap(wide.astype(np.int64) if source.kind == "pred" else wide, result))
    if source.kind == "pred" or source.is_integer:
        wide = wide.astype(np.longdouble)
        if result.is_complex:
            wide = wide.astype(np.clongdouble)
        return rounded(wide, None, result)
    if result.is_complex and not source.is_complex:
        if not finite(val.array).all():
            raise Reject("special complex")
        wide = wide.astype(np.complex128 if result.part.bits == 32 else np.clongdouble)
    out = rounded(wide, val.err, result)
    out.signed = val.signed and not result.is_complex and not source.is_complex
    return out


def bitcast(op: Op, vals: list[Val]) -> Val:
    require_exact(*vals)
    require_signed(*vals)
    source, result = op.ins[0].dtype, op.outs[0].dtype
    if source.is_float and not finite(vals[0].array).all():
        raise Reject("bits of NaN")
    array = np.array(vals[0].array, order="C")
    out = array.reshape(-1).view(result.numpy).reshape(array.shape)
    if result.is_float and not finite(out).all():
        raise Reject("bits of NaN")
    val = Val(out)
    if result.is_float:
        checked(val, result)
        with np.errstate(all="ignore"):
            if (np.abs(out.astype(np.float64)) > 1e18).any():
                raise Reject("huge")
    return val


def complex_parts(op: Op, vals: list[Val]) -> Val:
    (val,) = vals
    part = val.array.real if op.kind == "real" else val.array.imag
    return Val(np.array(part, order="C"), val.err, False)


def complex_make(op: Op, vals: list[Val]) -> Val:
    re, im = vals
    if not (finite(re.array).all() and finite(im.array).all()):
        raise Reject("special complex")
    array = (re.array.astype(np.complex128) + 1j * im.array).astype(op.outs[0].dtype.numpy)
    err = None if re.exact and im.exact else re.error() + im.error()
    return Val(array, err, False)


def complex_abs(op: Op, vals: list[Val]) -> Val:
    wide = np.abs(widen(vals[0].array, op.ins[0].dtype))
    return rounded(wide, vals[0].err, op.outs[0].dtype, 4, always=True)
