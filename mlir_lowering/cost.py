"""What a program costs, counted on its Graph: for jax's cost_analysis and for comparing plans."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlir_lowering.graph import Graph, Op, Region
from mlir_lowering.passes.trip_count import static_trip_count
from mlir_lowering.registry import OPS

# Pointwise ops at least this dear are counted as transcendentals, as XLA does.
TRANSCENDENTAL_COST = 8


@dataclass
class Cost:
    """flops, transcendental evaluations, and bytes that each op alone would read and write."""

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_accessed: float = 0.0


def analyze(graph: Graph) -> Cost:
    """Counts every op; a loop as often as its trip count (once if unknown)."""
    cost = Cost()
    _region(graph, 1.0, cost)
    return cost


def _region(region: Region, times: float, cost: Cost) -> None:
    for op in region.ops:
        record = OPS[op.name]
        if record.control is not None:
            trips = static_trip_count(op) if record.control == "while" else 1
            for inner in op.regions:
                _region(inner, times * max(trips, 1), cost)
            continue
        size = sum(v.type.size for v in op.results)
        cost.bytes_accessed += times * sum(v.type.bytes for v in (*op.operands, *op.results))
        if record.schedule is not None:
            cost.flops += times * _scheduled_flops(op, size)
        elif record.pointwise and record.cost >= TRANSCENDENTAL_COST:
            cost.transcendentals += times * size
        elif record.pointwise:
            cost.flops += times * size


def _scheduled_flops(op: Op, size: int) -> float:
    match op.name:
        case "stablehlo.dot_general":
            lhs, numbers = op.operands[0], op.attrs["dot_dimension_numbers"]
            folded: int = math.prod(lhs.shape[d] for d in numbers.lhs_contracting_dimensions)
            return 2.0 * size * folded
        case "stablehlo.convolution":
            rhs, numbers = op.operands[1], op.attrs["dimension_numbers"]
            features: int = rhs.shape[numbers.kernel_output_feature_dimension]
            return 2.0 * size * rhs.type.size / max(features, 1)
        case _:
            return float(max((v.type.size for v in op.operands), default=0))
