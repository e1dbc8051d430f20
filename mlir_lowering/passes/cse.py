"""Common subexpressions: of ops that compute the same from the same values, the first one remains."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Hashable
from typing import Any

import numpy as np

from mlir_lowering.arrays import is_splat
from mlir_lowering.graph import Graph, Op, Region, Value
from mlir_lowering.registry import OPS
from mlir_lowering.targets import Target


def run(graph: Graph, target: Target) -> None:
    """Merges equal ops in the graph and in every region; a region may use what its surroundings computed."""
    _region(graph, ChainMap(), {})


def _region(region: Region, seen: ChainMap[Hashable, Op], mapping: dict[Value, Value]) -> None:
    ops: list[Op] = []
    for op in region.ops:
        op.operands = [mapping.get(v, v) for v in op.operands]
        controls = OPS[op.name].control is not None
        for inner in op.regions:
            _region(inner, seen.new_child(), mapping)
        if controls:
            ops.append(op)
            continue
        key = _op_key(op, {})
        first = seen.get(key)
        if first is None:
            seen[key] = op
            ops.append(op)
        else:
            mapping.update(zip(op.results, first.results, strict=True))
    region.ops = ops
    region.outputs = [mapping.get(v, v) for v in region.outputs]


def _op_key(op: Op, names: dict[Value, int]) -> Hashable:
    """Equal for ops that compute the same; values of an enclosing region's key are known by number."""
    return (
        op.name,
        tuple(names.get(v, v) for v in op.operands),
        tuple(sorted((k, _attribute_key(v)) for k, v in op.attrs.items())),
        tuple(v.type for v in op.results),
        tuple(_region_key(r, names) for r in op.regions),
    )


def _region_key(region: Region, outer: dict[Value, int]) -> Hashable:
    names = dict(outer)
    for value in region.args:
        names[value] = len(names)
    keys = []
    for op in region.ops:
        keys.append(_op_key(op, names))
        for value in op.results:
            names[value] = len(names)
    return (
        tuple(v.type for v in region.args),
        tuple(keys),
        tuple(names.get(v, v) for v in region.outputs),
    )


def _attribute_key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        if is_splat(value):
            return ("splat", value.dtype.str, value.shape, value.flat[0].tobytes())
        return ("array", value.dtype.str, value.shape, value.tobytes())
    return repr(value)
