"""Dead code: ops whose results nobody reads and that have no effects are dropped, in every region."""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, Region, Value, free_values, has_effects
from mlir_lowering.targets import Target


def run(graph: Graph, target: Target) -> None:
    _region(graph)


def _region(region: Region) -> None:
    live: set[Value] = set(region.outputs)
    kept: list[Op] = []
    for op in reversed(region.ops):
        if not any(v in live for v in op.results) and not has_effects(op):
            continue
        live.update(op.operands)
        for inner in op.regions:
            _region(inner)
            live.update(free_values(inner))
        kept.append(op)
    region.ops = kept[::-1]
