"""Checks a Graph: each value is defined once and before its use, and each op has types that fit together."""

from __future__ import annotations

import math
from collections.abc import Callable

from mlir_lowering.graph import Graph, Op, Region, TensorType, Value
from mlir_lowering.registry import OPS
from mlir_lowering.verify import VerificationError


def verify_graph(graph: Graph, stage: str) -> None:
    """Raises VerificationError if what `stage` made is not a Graph."""
    if len(graph.arguments) != len(graph.args):
        raise VerificationError(stage, "arguments and what is known of them differ in number")
    _region(graph, {}, stage)


def _region(region: Region, scope: dict[Value, None], stage: str) -> None:
    """`scope`: what is defined around; unchanged afterwards."""
    defined: list[Value] = []

    def define(value: Value, owner: Op | None, index: int) -> None:
        if value in scope:
            raise VerificationError(stage, f"{value} is defined twice")
        if value.op is not owner or (owner is not None and value.index != index):
            raise VerificationError(stage, f"{value} is result {index} of {owner} and does not know it")
        scope[value] = None
        defined.append(value)

    for arg in region.args:
        define(arg, None, 0)
    for op in region.ops:
        for value in op.operands:
            if value not in scope:
                raise VerificationError(stage, f"{op} reads {value}, which is not defined before it")
        wrong = _op(op)
        if wrong:
            raise VerificationError(stage, f"{op}: {wrong} ({op.attrs})")
        for inner in op.regions:
            _region(inner, scope, stage)
        for index, value in enumerate(op.results):
            define(value, op, index)
    for value in region.outputs:
        if value not in scope:
            raise VerificationError(stage, f"the output {value} is not defined")
    for value in defined:
        del scope[value]


def _op(op: Op) -> str:
    """What is wrong with an op; "" if nothing."""
    record = OPS.get(op.name)
    if record is None:
        return "it has no record"
    operands, results = [v.type for v in op.operands], [v.type for v in op.results]
    if op.name in _COUNTS and (len(operands), len(op.regions)) != _COUNTS[op.name]:
        return f"it has {len(operands)} operands and {len(op.regions)} regions"
    rule = _RULES.get(op.name)
    if rule is not None:
        return "" if rule(op, operands, results) else "its types, attributes and regions do not fit together"
    if record.pointwise:
        return "" if _same(operands, results) else "operands and result differ in type"
    return ""


_Rule = Callable[[Op, list[TensorType], list[TensorType]], bool]


def _same(operands: list[TensorType], results: list[TensorType]) -> bool:
    return len(results) == 1 and all(type == results[0] for type in operands)


def _shaped(operands: list[TensorType], results: list[TensorType]) -> bool:
    return len(results) == 1 and all(type.shape == results[0].shape for type in operands)


def _constant(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    value = op.attrs["value"]
    return not operands and value.shape == results[0].shape and value.dtype == results[0].dtype.numpy


def _select(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    pred, *values = operands
    return pred.dtype.kind == "pred" and pred.shape in ((), results[0].shape) and _same(values, results)


def _clamp(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    low, x, high = operands
    return x == results[0] and all(t.dtype is x.dtype and t.shape in ((), x.shape) for t in (low, high))


def _compare(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    x, y = operands
    return x == y and results[0] == TensorType(x.shape, results[0].dtype) and results[0].dtype.kind == "pred"


def _broadcast(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    (x,), dims, shape = operands, op.attrs["broadcast_dimensions"], results[0].shape
    fits = len(dims) == x.rank and len(set(dims)) == x.rank and all(0 <= d < len(shape) for d in dims)
    return fits and x.dtype is results[0].dtype and all(n in (1, shape[d]) for n, d in zip(x.shape, dims, strict=True))


def _reshape(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    return operands[0].size == results[0].size and operands[0].dtype is results[0].dtype


def _transpose(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    (x,), order = operands, op.attrs["permutation"]
    whole = sorted(order) == list(range(x.rank))
    return whole and results[0] == TensorType(tuple(x.shape[d] for d in order), x.dtype)


def _slice(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    (x,) = operands
    parts = list(zip(*(op.attrs[n] for n in ("start_indices", "limit_indices", "strides")), strict=True))
    inside = len(parts) == x.rank and all(0 <= a <= b <= n for (a, b, _), n in zip(parts, x.shape, strict=True))
    return inside and results[0] == TensorType(tuple(-(-(b - a) // s) for a, b, s in parts), x.dtype)


def _pad(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    x, value = operands
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    shape = tuple(
        n + low + high + max(n - 1, 0) * inside
        for n, low, high, inside in zip(x.shape, *(op.attrs[name] for name in names), strict=True)
    )
    return value == TensorType((), x.dtype) and results[0] == TensorType(shape, x.dtype)


def _concatenate(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    d, whole = op.attrs["dimension"], results[0]
    alike = all(
        t.dtype is whole.dtype and t.shape[:d] == whole.shape[:d] and t.shape[d + 1 :] == whole.shape[d + 1 :]
        for t in operands
    )
    return alike and sum(t.shape[d] for t in operands) == whole.shape[d]


def _dynamic_slice(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    x, *starts = operands
    return _starts(x, starts) and _inside(results[0], x)


def _dynamic_update_slice(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    x, update, *starts = operands
    return results == [x] and _starts(x, starts) and _inside(update, x)


def _starts(x: TensorType, starts: list[TensorType]) -> bool:
    return len(starts) == x.rank and all(t.shape == () and t.dtype.is_integer for t in starts)


def _inside(part: TensorType, x: TensorType) -> bool:
    return (
        part.dtype is x.dtype and part.rank == x.rank and all(a <= b for a, b in zip(part.shape, x.shape, strict=True))
    )


def _reduce(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    count = len(results)
    if len(operands) != 2 * count or len(op.regions) != 1 or len(op.regions[0].args) != 2 * count:
        return False
    dims = op.attrs["dimensions"]
    kept = tuple(n for d, n in enumerate(operands[0].shape) if d not in dims)
    return len(op.regions[0].outputs) == count and all(
        x.shape == operands[0].shape and init.shape == () and result.shape == kept
        for x, init, result in zip(operands[:count], operands[count:], results, strict=True)
    )


def _dot(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    (x, y), numbers = operands, op.attrs["dot_dimension_numbers"]
    pairs = (
        (numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions),
        (numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions),
    )
    if any([x.shape[d] for d in left] != [y.shape[d] for d in right] for left, right in pairs):
        return False
    (left_batch, right_batch), (left, right) = pairs
    batch = [x.shape[d] for d in left_batch]
    rows = [n for d, n in enumerate(x.shape) if d not in (*left_batch, *left)]
    columns = [n for d, n in enumerate(y.shape) if d not in (*right_batch, *right)]
    return results[0].shape == (*batch, *rows, *columns)


def _sort(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    whole = operands == results and all(t.shape == operands[0].shape for t in operands)
    return whole and len(op.regions) == 1 and len(op.regions[0].args) == 2 * len(operands)


def _scatter(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    count = len(results)
    whole = len(operands) == 2 * count + 1 and operands[:count] == results
    return whole and len(op.regions) == 1 and len(op.regions[0].args) == 2 * count


def _types(values: list[Value]) -> list[TensorType]:
    return [v.type for v in values]


def _while(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    if operands != results or len(op.regions) != 2:
        return False
    condition, body = op.regions
    (predicate,) = _types(condition.outputs)
    carried = all(_types(values) == results for values in (condition.args, body.args, body.outputs))
    return carried and predicate.shape == () and predicate.dtype.kind == "pred"


def _branches(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    kind = "pred" if op.name == "stablehlo.if" else "int"
    index = len(operands) == 1 and operands[0].shape == () and operands[0].dtype.kind == kind
    count = len(op.regions) == 2 if kind == "pred" else bool(op.regions)
    return index and count and all(not r.args and _types(r.outputs) == results for r in op.regions)


def _bitcast(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    bits = [math.prod(t.shape) * t.dtype.bits for t in (*operands, *results)]
    return len(bits) == 2 and bits[0] == bits[1]


def _any(op: Op, operands: list[TensorType], results: list[TensorType]) -> bool:
    return _shaped(operands, results)


# Operands and regions of ops that have a number of them, where no rule below says it.
_COUNTS: dict[str, tuple[int, int]] = {
    "stablehlo.broadcast_in_dim": (1, 0),
    "stablehlo.clamp": (3, 0),
    "stablehlo.compare": (2, 0),
    "stablehlo.convolution": (2, 0),
    "stablehlo.dot_general": (2, 0),
    "stablehlo.gather": (2, 0),
    "stablehlo.iota": (0, 0),
    "stablehlo.pad": (2, 0),
    "stablehlo.reshape": (1, 0),
    "stablehlo.reverse": (1, 0),
    "stablehlo.select": (3, 0),
    "stablehlo.select_and_scatter": (3, 2),
    "stablehlo.slice": (1, 0),
    "stablehlo.transpose": (1, 0),
}

_RULES: dict[str, _Rule] = {
    "stablehlo.abs": _any,
    "stablehlo.bitcast_convert": _bitcast,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.case": _branches,
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.complex": _any,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.convert": _any,
    "stablehlo.dot_general": _dot,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.if": _branches,
    "stablehlo.imag": _any,
    "stablehlo.is_finite": _any,
    "stablehlo.optimization_barrier": lambda op, operands, results: operands == results,
    "stablehlo.pad": _pad,
    "stablehlo.real": _any,
    "stablehlo.reduce": _reduce,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": lambda op, operands, results: operands == results,
    "stablehlo.scatter": _scatter,
    "stablehlo.select": _select,
    "stablehlo.slice": _slice,
    "stablehlo.sort": _sort,
    "stablehlo.transpose": _transpose,
    "stablehlo.while": _while,
}
