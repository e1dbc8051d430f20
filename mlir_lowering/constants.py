"""Constants' values as numpy arrays, for every element type."""

from __future__ import annotations

import re
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from mlir_lowering.attributes import check_bytes
from mlir_lowering.dtypes import DType
from mlir_lowering.errors import CompileError
from mlir_lowering.graph import TensorType

# What np.array(DenseElementsAttr) understands in all supported versions of jaxlib.
_BY_NUMPY = frozenset(["i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64", "f16", "f32", "f64"])
_ELEMENT = re.compile(r"\(\s*([^\s,]+)\s*,\s*([^\s,)]+)\s*\)|([^\s,\[\]]+)")


def constant_array(op: ir.OpView, type: TensorType) -> np.ndarray[Any, Any]:
    """The value of a stablehlo.constant. A splat is a broadcast scalar (all strides 0).

    Raises CompileError for an attribute of another kind (external resources), and for one of too few elements.
    """
    try:
        return _read(op, type)
    except ValueError as error:
        raise CompileError(f"a constant of {type} cannot be read: {error}") from error


def _read(op: ir.OpView, type: TensorType) -> np.ndarray[Any, Any]:
    dtype = type.dtype
    if dtype.is_complex:  # Python has no class for it
        return _from_text(op.operation.get_asm(), type)
    attr = op.attributes["value"]
    if dtype.name in _BY_NUMPY:
        if not isinstance(attr, ir.DenseElementsAttr):
            raise CompileError(f"a constant of {type} is not stored in the program: {attr}"[:300])
        if attr.is_splat and type.size > 0:
            scalar = np.array(attr.get_splat_value().value).astype(dtype.numpy)
            return np.broadcast_to(scalar, type.shape)
        array = np.array(attr)
        if array.dtype != dtype.numpy or array.size != type.size:
            array = _from_text(op.operation.get_asm(), type)
        check_bytes(attr, array)
        return np.ascontiguousarray(array).reshape(type.shape)
    # Printing an attribute that has not as many bytes as its type says may end the process: one element is a splat.
    if isinstance(attr, ir.DenseElementsAttr) and type.size == 1 and not attr.is_splat:
        raise ValueError("it has not as many elements as its type says")
    array = _from_text(op.operation.get_asm(), type)
    if isinstance(attr, ir.DenseElementsAttr):
        check_bytes(attr, array)
    return array


def _from_text(text: str, type: TensorType) -> np.ndarray[Any, Any]:
    """Reads `dense<...>`: hex bytes, one value for all, or nested lists."""
    start = text.find("dense<")
    end = text.rfind("> : tensor<")
    if start < 0 or end < start:
        raise CompileError(f"a constant of {type} is not stored in the program")
    body = text[start + len("dense<") : end]
    if body.startswith('"0x'):
        array = np.frombuffer(bytes.fromhex(body[3:-1]), type.dtype.numpy)
    else:
        array = np.array([_element(m, type.dtype) for m in _ELEMENT.finditer(body)], type.dtype.numpy)
    if array.size == 1:
        return np.broadcast_to(array.reshape(()), type.shape)
    if array.size != type.size:
        raise CompileError(f"a constant of {type} has {array.size} elements")
    return array.reshape(type.shape)


def _element(match: re.Match[str], dtype: DType) -> Any:
    real, imaginary, single = match.groups()
    if single is not None:
        return _number(single, dtype)
    part = np.dtype(np.float64 if dtype.bits == 128 else np.float32)
    return complex(_part(real, part), _part(imaginary, part))


def _number(text: str, dtype: DType) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if dtype.is_integer:
        return int(text, 0)
    return _part(text, dtype.numpy)


def _part(text: str, dtype: np.dtype[Any]) -> Any:
    """A decimal number, or the bits of one in hex."""
    if text.startswith("0x"):
        return np.frombuffer(int(text, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    return float(text)
