"""Custom calls of XLA's typed FFI: what a Program says of them, read from their attributes.

The FFI's kinds of attributes are scalars, one-dimensional arrays, strings and dictionaries of these; their bytes are
specified in mlir_lowering/program.py.
"""

from __future__ import annotations

import struct
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from mlir_lowering.attributes import UNREADABLE, dense, names, reason
from mlir_lowering.dtypes import BY_NAME, PRED, DType
from mlir_lowering.errors import unsupported
from mlir_lowering.graph import Op, Region, TensorType, Value

# StableHLO's number of the typed FFI; jax also writes 1 with a dictionary under mhlo.backend_config.
_TYPED_FFI = 4

_ARRAY, _DICTIONARY, _SCALAR, _STRING = 1, 2, 3, 4

_DENSE_ARRAYS = {
    ir.DenseBoolArrayAttr: "i1",
    ir.DenseI8ArrayAttr: "i8",
    ir.DenseI16ArrayAttr: "i16",
    ir.DenseI32ArrayAttr: "i32",
    ir.DenseI64ArrayAttr: "i64",
    ir.DenseF32ArrayAttr: "f32",
    ir.DenseF64ArrayAttr: "f64",
}


def ffi_dictionary(operation: Any, target: str, loc: str) -> bytes:
    """The attributes that the call passes to its handler, as a Program has them.

    Raises CompileError for a call of the older, untyped kind.
    """
    attributes = operation.attributes
    version = attributes["api_version"].value if "api_version" in attributes else 1
    places = ["mhlo.backend_config"] + ["backend_config"] * (version == _TYPED_FFI)
    try:
        config = next((attributes[name] for name in places if name in attributes), None)
    except UNREADABLE:
        raise unsupported(f'the custom call "{target}" with a configuration that cannot be read', loc) from None
    if not isinstance(config, ir.DictAttr):
        if version != _TYPED_FFI:
            raise unsupported(
                f'the custom call "{target}" of API version {version}, which is not the typed FFI',
                loc,
                "register an XLA FFI handler with jax.ffi.register_ffi_target and call it with jax.ffi.ffi_call",
            )
        return struct.pack("<I", 0)
    try:
        return _dictionary(config)
    except _NotInTheFfi as error:
        raise unsupported(f'the custom call "{target}" with {error}', loc) from None


class _NotInTheFfi(Exception):
    """An attribute of a kind that handlers cannot be given."""


def _blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def _dictionary(attr: Any) -> bytes:
    try:
        found = names(attr)
    except UNREADABLE:
        raise _NotInTheFfi("an attribute whose name is no text") from None
    parts = [struct.pack("<I", len(found))]
    for name in sorted(found, key=str.encode):  # handlers find them by their place in this order
        try:
            parts += [_blob(name.encode()), _value(name, attr[name])]
        except UNREADABLE as error:
            raise _NotInTheFfi(f"the attribute {name}, which cannot be read: {reason(error)}") from None
    return b"".join(parts)


def _value(name: str, attr: Any) -> bytes:
    match attr:
        case ir.DictAttr():
            return bytes([_DICTIONARY]) + _dictionary(attr)
        case ir.StringAttr():
            return bytes([_STRING]) + _blob(attr.value_bytes)
        case ir.BoolAttr():
            return _elements(_SCALAR, PRED, attr.value)
        case ir.IntegerAttr() | ir.FloatAttr():
            dtype = BY_NAME.get(str(attr.type))
            if dtype is not None:
                return _elements(_SCALAR, dtype, attr.value)
        case ir.DenseElementsAttr():
            dtype = BY_NAME.get(str(ir.ShapedType(attr.type).element_type))
            if dtype is not None:
                return _elements(_ARRAY, dtype, dense(attr))
        case _ if type(attr) in _DENSE_ARRAYS:
            return _elements(_ARRAY, BY_NAME[_DENSE_ARRAYS[type(attr)]], list(attr))
    raise _NotInTheFfi(f"the attribute {name} = {attr}, which XLA's FFI has no kind for")


def _elements(kind: int, dtype: DType, value: Any) -> bytes:
    return bytes([kind, dtype.code]) + _blob(np.asarray(value).astype(dtype.numpy).tobytes())


def host_call(
    target: str,
    operands: list[Value],
    types: list[TensorType],
    tokens: tuple[tuple[bool, ...], tuple[bool, ...]],
    attrs: dict[str, Any],
    dictionary: bytes,
    region: Region,
    loc: Any,
) -> list[Value]:
    """Appends the call to `region`, between the transposes that give its arrays the layouts it asks for.

    `tokens`: which operands and results are tokens. Returns the results, row-major.
    """
    aliases = _aliases(attrs, target, str(loc))
    operand_layouts = _layouts(attrs, "operand_layouts", [v.type for v in operands])
    result_layouts = _layouts(attrs, "result_layouts", types)
    inputs = [_transposed(v, order, region, loc) for v, order in zip(operands, operand_layouts, strict=True)]
    physical = [_physical(t, order) for t, order in zip(types, result_layouts, strict=True)]
    for result, operand in aliases:
        if inputs[operand].type != physical[result]:
            raise unsupported(f'the custom call "{target}", whose result and operand in one memory differ', str(loc))
    described = {
        "call_target_name": target,
        "has_side_effect": bool(attrs.get("has_side_effect", False)),
        "attributes": dictionary,
        "aliases": aliases,
        "operand_arrays": _arrays([v.type for v in operands], tokens[0]),
        "result_arrays": _arrays(types, tokens[1]),
    }
    call = Op("stablehlo.custom_call", inputs, physical, described, loc=loc)
    region.ops.append(call)
    back = [tuple(order.index(d) for d in range(len(order))) for order in result_layouts]
    return [_transpose(v, type, order, region, loc) for v, type, order in zip(call.results, types, back, strict=True)]


def _arrays(types: list[TensorType], tokens: tuple[bool, ...]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    token = (BY_NAME["token"].code, ())
    return tuple(token if t else (type.dtype.code, type.shape) for type, t in zip(types, tokens, strict=True))


def _layouts(attrs: dict[str, Any], name: str, types: list[TensorType]) -> list[tuple[int, ...]]:
    """Dimensions from major to minor for each type."""
    row_major = [tuple(range(type.rank)) for type in types]
    if name not in attrs:
        return row_major
    asked = [tuple(int(d) for d in reversed(layout)) for layout in attrs[name]]
    # A token has no dimensions, and the empty array that stands for it has one.
    return [order if len(order) == len(usual) else usual for order, usual in zip(asked, row_major, strict=True)]


def _physical(type: TensorType, order: tuple[int, ...]) -> TensorType:
    return TensorType(tuple(type.shape[d] for d in order), type.dtype)


def _transposed(value: Value, order: tuple[int, ...], region: Region, loc: Any) -> Value:
    return _transpose(value, _physical(value.type, order), order, region, loc)


def _transpose(value: Value, type: TensorType, permutation: tuple[int, ...], region: Region, loc: Any) -> Value:
    if permutation == tuple(range(len(permutation))):
        return value
    op = Op("stablehlo.transpose", [value], [type], {"permutation": permutation}, loc=loc)
    region.ops.append(op)
    return op.result


def _aliases(attrs: dict[str, Any], target: str, loc: str) -> tuple[tuple[int, int], ...]:
    """Pairs of a result and the operand whose memory it must have."""
    pairs = []
    for output, operand, inner in attrs.get("output_operand_aliases", ()):
        if inner or len(output) > 1:
            raise unsupported(f'the custom call "{target}" with aliases inside tuples', loc)
        pairs.append((output[0] if output else 0, operand))
    return tuple(pairs)
