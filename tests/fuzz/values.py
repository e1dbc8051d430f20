"""Values with a bound on how far a right implementation may be from them.

`err` bounds |device - array| element by element: 0 where every order of evaluation, with or without contraction into
fma, gives this very number. Reject is raised where no bound can be given: the generator then takes another op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlir_lowering.dtypes import DType
from tests.fuzz.graph import Array

# Bits of the significand, the hidden one included; the smallest normal number's exponent.
_FORMATS = {"f32": (24, -126), "f16": (11, -14), "bf16": (8, -126), "f64": (53, -1022)}
# Units in the last place that functions (exp, tanh...) may be wrong by on any of the devices and on XLA:CPU.
FUNCTION_ULPS = 16.0


class Reject(Exception):
    """The op on these values has no result that can be compared sharply."""


@dataclass(eq=False)
class Val:
    """`signed`: the sign of zeros is determined."""

    array: Array
    err: Array | None = None
    signed: bool = True

    def __post_init__(self) -> None:
        self.array = np.asarray(self.array)
        if self.err is not None and not self.err.any():
            self.err = None

    @property
    def exact(self) -> bool:
        return self.err is None

    def error(self) -> Array:
        return np.zeros(self.array.shape) if self.err is None else self.err


def digits(dtype: DType) -> int:
    return _FORMATS[dtype.part.name][0]


def epsilon(dtype: DType) -> float:
    return 2.0 ** (1 - digits(dtype))


def smallest(dtype: DType) -> float:
    """The smallest normal number."""
    return float(np.ldexp(1.0, _FORMATS[dtype.part.name][1]))


def widen(array: Array, dtype: DType) -> Array:
    """Integers as (u)int64; floats in a type in which one operation's rounding is negligible."""
    if dtype.kind == "pred":
        return array
    if dtype.is_integer:
        return array.astype(np.uint64 if dtype.name == "ui64" else np.int64)
    if dtype.is_complex:
        return array.astype(np.clongdouble if dtype.part.bits == 64 else np.complex128)
    return array.astype(np.longdouble if dtype.bits == 64 else np.float64)


def wrap(wide: Array, dtype: DType) -> Array:
    """Integers modulo 2^bits."""
    if dtype.kind == "pred":
        return np.asarray(wide).astype(np.bool_)
    if dtype.bits < 8:
        low = np.asarray(wide).astype(np.int64) & (2**dtype.bits - 1)
        if dtype.kind == "int":
            low = np.where(low >= 2 ** (dtype.bits - 1), low - 2**dtype.bits, low)
        return np.asarray(low).astype(dtype.numpy)
    return np.asarray(wide).astype(dtype.numpy)


def ulp(wide: Array, dtype: DType) -> Array:
    """An upper bound of the spacing of `dtype` around each value, denormals flushed or not."""
    magnitude = np.abs(wide).astype(np.float64)
    return np.nan_to_num(magnitude * epsilon(dtype) + np.where(magnitude < smallest(dtype), smallest(dtype), 0))


def same(a: Array, b: Array) -> Array:
    """Equal elements, NaN equal to NaN."""
    return np.asarray((a == b) | ((a != a) & (b != b)))


def finite(array: Array) -> Array:
    return np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))


def rounded(wide: Array, inherited: Array | None, dtype: DType, ulps: float = 1.0, always: bool = False) -> Val:
    """`wide` as an array of `dtype`; wrong by what was inherited and, where it was rounded, by `ulps`.

    `always`: nobody rounds this function correctly, even where its value is a number of the type.
    """
    wide = np.asarray(wide)
    with np.errstate(all="ignore"):
        array = np.asarray(wide.astype(dtype.numpy))
        inexact = ~same(widen(array, dtype), wide)
        there = finite(array)
        if (inexact & ~there).any():
            raise Reject("overflow")
        added = np.where((inexact | always) & there, ulps * ulp(wide, dtype), 0.0)
        if inherited is not None:
            added = added + np.where(there, inherited.astype(np.float64) * 1.0001, 0.0)
    if not np.isfinite(added).all():
        raise Reject("no bound")
    return checked(Val(array, added), dtype)


def checked(val: Val, dtype: DType) -> Val:
    """Rejects bounds so wide that nothing would be tested, and denormals, which a device may take for zeros.

    Half keeps its denormals (docs/design.md).
    """
    if dtype.kind in ("float", "complex") and dtype.name != "f16":
        with np.errstate(all="ignore"):
            wide = val.array.astype(np.clongdouble if dtype.is_complex else np.longdouble)
            for part in (np.abs(wide.real), np.abs(wide.imag)):
                if ((part > 0) & (part < smallest(dtype))).any():
                    raise Reject("denormal")
    if val.err is not None and dtype.kind in ("float", "complex"):
        scale = np.abs(val.array.astype(np.complex128 if dtype.is_complex else np.float64))
        there = np.isfinite(scale)
        top = max(float(scale[there].max(initial=0.0)), smallest(dtype))
        if float(val.err.max(initial=0.0)) > 0.25 * top or top > 1e30:
            raise Reject("too inexact")
    return val


def spread(f: Callable[..., Array], center: Array, wides: list[Array], vals: list[Val]) -> Array | None:
    """How far f(operands) may move within the operands' bounds: the largest change at the corners."""
    if all(v.exact for v in vals):
        return None
    moved = np.zeros(np.shape(center))
    with np.errstate(all="ignore"):
        for corner in range(2 ** len(vals)):
            at = [
                w + v.error() * (1 if corner >> n & 1 else -1) for n, (w, v) in enumerate(zip(wides, vals, strict=True))
            ]
            there = f(*at)
            change = np.where(same(there, center), 0.0, np.abs(there - center).astype(np.float64))
            moved = np.maximum(moved, change)
    if not np.isfinite(moved).all():
        raise Reject("no bound")
    return moved * 1.5


def require_exact(*vals: Val) -> None:
    if not all(v.exact for v in vals):
        raise Reject("inexact operand")


def require_signed(*vals: Val) -> None:
    for v in vals:
        if not v.signed and (v.array == 0).any():
            raise Reject("sign of zero")


def quanta(wide: Array) -> Array:
    """Of each element a power of two that it is a multiple of, 0 if there is no small one; 1 for what is not finite."""
    if wide.dtype.kind == "c":
        return np.minimum(quanta(wide.real), quanta(wide.imag))
    there = np.where(np.isfinite(wide), np.abs(wide), 0).astype(np.float64)
    found = np.zeros(there.shape)
    for power in (-12, -8, -4, -2, -1, 0):
        scaled = np.ldexp(there, -power)
        found = np.where(scaled == np.floor(scaled), 2.0**power, found)
    return found


def quantum(wide: Array) -> float:
    """A power of two that all finite elements are multiples of; 0 if there is no small one."""
    return float(quanta(wide).min(initial=1.0))


def zeroed(wide: Array) -> Array:
    """|x|, and 0 for what is not finite."""
    with np.errstate(all="ignore"):
        magnitude = np.abs(wide)
        return np.where(np.isfinite(magnitude), magnitude, 0).astype(np.float64)


def sums(
    wide: Array, total: Array, steps: int | Array, grain: float | Array, inherited: Array | None, dtype: DType
) -> Val:
    """Sums: `total` their sums of magnitudes, `steps` the additions, `grain` what all terms (of each) are multiples of
    (0: of no known number).

    A sum is exact in every order if no partial sum needs more digits than the type has.
    """
    inherited = np.zeros(np.shape(wide)) if inherited is None else inherited
    exact = (inherited == 0) & (total <= grain * 2.0 ** digits(dtype))
    val = rounded(wide, np.where(exact, 0.0, (steps + 2) * epsilon(dtype) * total + inherited), dtype)
    val.signed = False
    return val


def compare(got: Any, want: Val, dtype: DType) -> str | None:
    """What is wrong with a device's result; None if nothing is."""
    got = np.asarray(got)
    if got.shape != want.array.shape or got.dtype != want.array.dtype:
        return f"is {got.dtype}{got.shape}, not {want.array.dtype}{want.array.shape}"
    if not dtype.is_float and not dtype.is_complex:
        bad = np.asarray(got != want.array)
    else:
        with np.errstate(all="ignore"):
            a, b = (x.astype(np.complex128 if dtype.is_complex else np.float64) for x in (got, want.array))
            bad = ~(same(a, b) | (np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= want.error())))
            if want.signed and want.exact and dtype.is_float:
                bad |= (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))
    if not bad.any():
        return None
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{int(bad.sum())} of {bad.size} wrong; at {at}: {got[at]!r}, not {want.array[at]!r}"
        f" (bound {float(want.error()[at]):.3g})"
    )
