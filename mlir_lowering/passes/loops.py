"""Values that a while loop carries unchanged are not carried: the loop reads them from outside.

JAX carries all that a loop's functions close over, a model's weights in a scan. A carried value has memory of its own,
into which the plan copies it; a value from outside is read where it is. (What is carried for itself alone goes with
dead code, passes/dce.py.)
"""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, Region, Value, replace_uses
from mlir_lowering.targets import Target


def run(graph: Graph, target: Target) -> None:
    """Rewrites every loop, inner ones first: what an inner loop does not change, the outer one may not change either."""
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
        while output in mapping:
            output = mapping[output]
        if output is not arg:
            changed.add(number)
            continue
        for value in (arg, condition.args[number], op.results[number]):
            mapping[value] = op.operands[number]
    keep_carried(op, changed)


def keep_carried(op: Op, kept: set[int]) -> None:
    """Drops all carried values of the while `op` but those at positions `kept`. Nothing may read the others any more."""
    condition, body = op.regions
    for values in (op.operands, op.results, condition.args, body.args, body.outputs):
        values[:] = [value for number, value in enumerate(values) if number in kept]
    for number, value in enumerate(op.results):
        value.index = number
