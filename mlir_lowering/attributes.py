"""MLIR attributes as plain Python data: one row a kind of attribute."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from mlir_lowering.graph import (
    ConvDimensionNumbers,
    DotDimensionNumbers,
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
)

# Attributes that do not change what an op computes, or that only say how XLA should.
IGNORED = frozenset(
    {
        "algorithm",
        "backend_config",
        "backend_config_format",
        "composite_attributes",  # the records of composites have none
        "mhlo.backend_config",  # a host call's: mlir_lowering/host_calls.py reads it
        "mhlo.frontend_attributes",
        "mhlo.sharding",
        "precision_config",
        "result_accuracy",
        "sdy.sharding",
        "sdy.sharding_per_value",
    }
)

# What jaxlib's bindings raise for an attribute that a corrupt program can have: of a kind that they have no class for
# (locations, complex elements) or that numpy has no type for, with a zero byte in its name, with text that is no UTF-8.
UNREADABLE = (KeyError, RuntimeError, TypeError, ValueError)


def reason(error: Exception) -> str:
    """The first line of what they say: the others list functions."""
    return str(error).partition("\n")[0]


def _dataclass(kind: type) -> Callable[[Any], Any]:
    """Reads the fields of a dimension-numbers attribute, whose bindings have the dataclass's names."""
    names = list(kind.__dataclass_fields__)  # type: ignore[attr-defined]

    def convert(attr: Any) -> Any:
        values = [getattr(attr, name) for name in names]
        return kind(*(v if isinstance(v, int) else tuple(v) for v in values))

    return convert


def dense(attr: ir.DenseElementsAttr) -> np.ndarray[Any, Any]:
    """The elements of a type that numpy has; raises ValueError for one that has not as many as its type says."""
    array = np.array(attr)
    check_bytes(attr, array)
    return array


def check_bytes(attr: ir.DenseElementsAttr, array: np.ndarray[Any, Any]) -> None:
    """Raises ValueError unless `attr` holds the bytes of `array`, which was read from it, and no others.

    MLIR does not compare how many bytes a corrupt artifact has for a constant with the constant's type, and reads what
    lies behind them. Equal attributes are one: made anew of as many bytes as the type asks for, it is the same again.
    Costs a copy and a hash; a splat's single element needs none.
    """
    if attr.is_splat or array.size == 0:
        return
    type = ir.ShapedType(attr.type)
    raw = array.view(f"u{array.itemsize}")  # whatever the type, its bytes
    again = ir.DenseElementsAttr.get(raw, type=type.element_type, shape=type.shape, context=attr.context)
    if again != attr:
        raise ValueError("it has not as many elements as its type says")


def _value(attr: Any) -> Any:
    return attr.value


def names(attr: ir.DictAttr) -> list[str]:
    """A dictionary's; raises RuntimeError for one that is no UTF-8. Costs the text of the whole dictionary."""
    entries = [attr[i] for i in range(len(attr))]
    for entry in entries:
        repr(entry)  # raises where `name` would end the process
    return [entry.name for entry in entries]


def _dictionary(attr: Any) -> dict[str, Any]:
    # By name: NamedAttribute.attr ends the process where Python has no class for a value (complex elements).
    return {name: convert(attr[name]) for name in names(attr)}


def _alias(attr: Any) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
    return tuple(attr.output_tuple_indices), attr.operand_index, tuple(attr.operand_tuple_indices)


_KINDS: dict[type, Callable[[Any], Any]] = {
    ir.ArrayAttr: lambda attr: tuple(convert(item) for item in attr),
    ir.BoolAttr: _value,
    ir.DenseBoolArrayAttr: tuple,
    ir.DenseF32ArrayAttr: tuple,
    ir.DenseF64ArrayAttr: tuple,
    ir.DenseFPElementsAttr: dense,
    ir.DenseI16ArrayAttr: tuple,
    ir.DenseI32ArrayAttr: tuple,
    ir.DenseI64ArrayAttr: tuple,
    ir.DenseI8ArrayAttr: tuple,
    ir.DenseIntElementsAttr: dense,
    ir.DictAttr: _dictionary,
    ir.FlatSymbolRefAttr: _value,
    ir.FloatAttr: _value,
    ir.IntegerAttr: _value,
    ir.StringAttr: _value,
    ir.TypeAttr: lambda attr: str(attr.value),
    ir.UnitAttr: lambda attr: True,
}

# StableHLO's own attributes arrive as plain ir.Attribute and say in their text what they are:
# "#stablehlo.gather<...>", "#stablehlo<comparison_direction LT>".
_STABLEHLO: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "comparison_direction": (stablehlo.ComparisonDirectionAttr, _value),
    "comparison_type": (stablehlo.ComparisonTypeAttr, _value),
    "conv": (stablehlo.ConvDimensionNumbers, _dataclass(ConvDimensionNumbers)),
    "dot": (stablehlo.DotDimensionNumbers, _dataclass(DotDimensionNumbers)),
    "fft_type": (stablehlo.FftTypeAttr, _value),
    "output_operand_alias": (stablehlo.OutputOperandAlias, _alias),
    "gather": (stablehlo.GatherDimensionNumbers, _dataclass(GatherDimensionNumbers)),
    "rng_algorithm": (stablehlo.RngAlgorithmAttr, _value),
    "rng_distribution": (stablehlo.RngDistributionAttr, _value),
    "scatter": (stablehlo.ScatterDimensionNumbers, _dataclass(ScatterDimensionNumbers)),
    "transpose": (stablehlo.TransposeAttr, _value),
}
_MNEMONIC = re.compile(r"#stablehlo[.<](\w+)")


def convert(attr: ir.Attribute) -> Any:
    """An attribute as Python data; one of a kind not listed here as its MLIR text. Raises any of UNREADABLE."""
    reader = _KINDS.get(type(attr))
    if reader is not None:
        return reader(attr)
    text = str(attr)
    match = _MNEMONIC.match(text)
    if match is None or match[1] not in _STABLEHLO:
        return text
    kind, reader = _STABLEHLO[match[1]]
    return reader(kind(attr))
