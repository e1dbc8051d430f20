"""Dead code: ops whose results nobody reads and that have no effects are dropped, in every region.

Of a barrier, which has a result for each operand, the pairs that nobody reads are dropped; of a loop, the carried
values that only their own next values need.
"""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, Region, Value, has_effects, values_read
from mlir_lowering.passes.loops import keep_carried
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
        if op.name == "stablehlo.while":
            keep_carried(op, _needed(op, live))
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


def _needed(op: Op, live: set[Value]) -> set[int]:
    """Which carried values of a loop are read after it, by its condition, by effects in its body, or by the next values
    of such. Each op of the body is looked at once."""
    condition, body = op.regions
    numbers = {arg: number for number, arg in enumerate(body.args)}
    read = {value for inner in condition.ops for value in values_read(inner)} | set(condition.outputs)
    needed = {n for n, (r, arg) in enumerate(zip(op.results, condition.args, strict=True)) if r in live or arg in read}
    inside = set(body.ops)
    seen: set[Op] = set()
    pending = [body.outputs[n] for n in needed]
    pending += [value for inner in body.ops if has_effects(inner) for value in values_read(inner)]
    while pending:
        value = pending.pop()
        if value.op in inside and value.op not in seen:
            seen.add(value.op)
            pending += values_read(value.op)
        elif (number := numbers.get(value)) is not None and number not in needed:
            needed.add(number)
            pending.append(body.outputs[number])
    return needed
