"""Turns layouts that jax asked for into transposes, so that the rest of the compiler sees row-major arrays only.

An argument whose elements lie in another order becomes a row-major argument of the physical shape, transposed; an
output likewise the other way. The Program's tensors keep their logical dimensions (see `logical_shape`).
"""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, TensorType, Value, replace_uses
from mlir_lowering.targets import Target


def _is_row_major(layout: tuple[int, ...] | None) -> bool:
    return layout is None or layout == tuple(reversed(range(len(layout))))


def logical_shape(physical: tuple[int, ...], layout: tuple[int, ...] | None) -> tuple[int, ...]:
    """The dimensions a user sees of an array whose memory is row-major `physical`."""
    if layout is None:
        return physical
    shape = [0] * len(physical)
    for extent, dimension in zip(physical, reversed(layout), strict=True):
        shape[dimension] = extent
    return tuple(shape)


def run(graph: Graph, target: Target) -> None:
    """Rewrites arguments and outputs with a layout of their own."""
    transposes = []
    replaced = {}
    for number, (arg, info) in enumerate(zip(graph.args, graph.arguments, strict=True)):
        if info.layout is None or _is_row_major(info.layout):
            continue
        order = tuple(reversed(info.layout))  # major to minor
        physical = Value(TensorType(tuple(arg.shape[d] for d in order), arg.dtype))
        back = tuple(order.index(d) for d in range(len(order)))
        op = Op("stablehlo.transpose", [physical], [arg.type], {"permutation": back})
        graph.args[number] = physical
        replaced[arg] = op.result
        transposes.append(op)
    replace_uses(graph, replaced)
    graph.ops[:0] = transposes
    for number, layout in enumerate(graph.output_layouts):
        if layout is None or _is_row_major(layout):
            continue
        value = graph.outputs[number]
        order = tuple(reversed(layout))
        result = TensorType(tuple(value.shape[d] for d in order), value.dtype)
        op = Op("stablehlo.transpose", [value], [result], {"permutation": order})
        graph.ops.append(op)
        graph.outputs[number] = op.result
