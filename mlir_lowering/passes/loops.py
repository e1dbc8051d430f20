"""Values that a while loop carries unchanged are not carried: the loop reads them from outside.

JAX carries all that a loop's functions close over, a model's weights in a scan. A carried value has memory of its own,
into which the plan copies it; a value from outside is read where it is. (What is carried for itself alone goes with
dead code, passes/dce.py.)
"""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, Region, Value, replace_uses
from mlir_lowering.targets import Target


def run(graph: Graph, target: Target) -> None:
    """Rewrites every loop, inner ones first: what an inner one does not change, the outer one may not change either."""
    mapping: dict[Value, Value] = {}
    _region(graph, mapping)
    replace_uses(graph, mapping)


def _region(region: Region, mapping: dict[Value, Value]) -> None:
    for op in region.ops:
        for inner in op.regions:
            _region(inner, mapping)
        if op.name == "stablehlo.while":
            _take_out(op, mapping)


def _take_out(op: Op, mapping: dict[Value, Value]) -> None:
    condition, body = op.regions
    changed = set()
    for number, (arg, output) in enumerate(zip(body.args, body.outputs, strict=True)):
        if _resolved(output, mapping) is not arg:
            changed.add(number)
            continue
        # Resolved here, lest a chain of loops makes a chain to follow.
        outside = _resolved(op.operands[number], mapping)
        mapping.update({arg: outside, condition.args[number]: outside, op.results[number]: outside})
    keep_carried(op, changed)


def _resolved(value: Value, mapping: dict[Value, Value]) -> Value:
    while value in mapping:
        value = mapping[value]
    return value


def keep_carried(op: Op, kept: set[int]) -> None:
    """Drops the carried values of the while `op` that are not at positions `kept`. Nothing may read them any more."""
    condition, body = op.regions
    for values in (op.operands, op.results, condition.args, body.args, body.outputs):
        values[:] = [value for number, value in enumerate(values) if number in kept]
    for number, value in enumerate(op.results):
        value.index = number
