"""The reductions that are known by name: bodies that apply one associative, commutative op to their two arguments."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlir_lowering.dtypes import DType
from mlir_lowering.graph import Op


def _lowest(dtype: DType) -> float:
    if dtype.kind in ("pred", "uint"):
        return 0
    return -math.inf if dtype.is_float else -(2 ** (dtype.bits - 1))


def _highest(dtype: DType) -> float:
    if dtype.is_float:
        return math.inf
    return 1 if dtype.kind == "pred" else 2 ** (dtype.bits - (dtype.kind == "int")) - 1


# What changes nothing, by the body's op and the element type.
_IDENTITIES: dict[str, Callable[[DType], float]] = {
    "stablehlo.add": lambda dtype: 0,
    "stablehlo.multiply": lambda dtype: 1,
    "stablehlo.maximum": _lowest,
    "stablehlo.minimum": _highest,
    "stablehlo.and": lambda dtype: -1 if dtype.kind == "int" else _highest(dtype),
    "stablehlo.or": lambda dtype: 0,
    "stablehlo.xor": lambda dtype: 0,
}


def monoid_of(op: Op) -> str | None:
    """The body's op if the body is one known monoid applied to its two arguments."""
    region = op.regions[0]
    if len(region.args) != 2 or len(region.ops) != 1:
        return None
    (body,) = region.ops
    if body.name not in _IDENTITIES or region.outputs != [body.result]:
        return None
    return body.name if set(body.operands) == set(region.args) else None


def identity(monoid: str, dtype: DType) -> float:
    """The element that a known monoid leaves others unchanged with."""
    return _IDENTITIES[monoid](dtype)
