"""Dead code: ops whose results nobody reads and that have no effects are dropped, in every region.

Of a barrier, which has a result for each operand, the pairs that nobody reads are dropped.
"""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, Region, Value, has_effects, values_read
from mlir_lowering.targets import Target


def run(graph: Graph, target: Target) -> None:
    _region(graph)


def _region(region: Region) -> None:
    live: set[Value] = set(region.outputs)
    kept: list[Op] = []
    for op in reversed(region.ops):
        if not any(v in live for v in op.results) and not has_effects(op):
            continue
        if op.name == "stablehlo.optimization_barrier":
            _prune(op, live)
        for inner in op.regions:
            _region(inner)
        live.update(values_read(op))
        kept.append(op)
    region.ops = kept[::-1]


def _prune(op: Op, live: set[Value]) -> None:
    pairs = [(v, r) for v, r in zip(op.operands, op.results, strict=True) if r in live]
    op.operands = [v for v, _ in pairs]
    op.results = [r for _, r in pairs]
    for index, result in enumerate(op.results):
        result.index = index
