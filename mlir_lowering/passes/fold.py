"""Constant folding: an op whose operands are all constants becomes one.

Splats (one value for all elements) fold at any size; other constants only while small, so that a program does not
grow. Ops whose records have no `fold` (transcendentals: numpy's last bit is not the device's) are left alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.arrays import is_splat
from mlir_lowering.graph import Op, Value
from mlir_lowering.registry import OPS

# Largest constant, in elements, that folding may make.
MAX_ELEMENTS = 4096


def constant_of(value: Value) -> np.ndarray[Any, Any] | None:
    """The value's array if it is a constant."""
    op = value.op
    if op is None or op.name != "stablehlo.constant":
        return None
    array: np.ndarray[Any, Any] = op.attrs["value"]
    return array


def splat_of(value: Value) -> np.ndarray[Any, Any] | None:
    """The one value, of rank 0, that all elements of a constant have."""
    array = constant_of(value)
    if array is None or not is_splat(array):
        return None
    return np.asarray(array[(0,) * array.ndim]).reshape(())


def fold_op(op: Op) -> Op | None:
    """The constant that `op` computes, or None."""
    record = OPS.get(op.name)
    if record is None or record.fold is None or not op.operands:
        return None
    arrays = [constant_of(v) for v in op.operands]
    if any(a is None for a in arrays):
        return None
    shape = op.result.shape
    splats = [splat_of(v) for v in op.operands]
    with np.errstate(all="ignore"):
        if all(s is not None for s in splats):
            if record.pointwise:
                value = record.fold(op, [s for s in splats if s is not None])
                return None if value is None else _constant(op, np.broadcast_to(value, shape))
            if len(splats) == 1 and splats[0] is not None:
                return _constant(op, np.broadcast_to(splats[0], shape))
        if op.result.type.size > MAX_ELEMENTS:
            return None
        value = record.fold(op, [a for a in arrays if a is not None])
        return None if value is None else _constant(op, np.ascontiguousarray(value).reshape(shape))


def _constant(op: Op, array: np.ndarray[Any, Any]) -> Op:
    array = array if array.dtype == op.result.dtype.numpy else array.astype(op.result.dtype.numpy)
    return Op("stablehlo.constant", [], [op.result.type], {"value": array}, loc=op.loc)
