"""Algebraic simplification: a table of exact local rewrites, applied with constant folding in one walk.

Every rule keeps the result bit for bit (adding zero is not dropped: -0 + 0 is 0), except that a sum over one element
keeps the sign of a zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mlir_lowering.graph import CONTROL_FLOW, Graph, Op, Region, TensorType, Value, has_effects
from mlir_lowering.monoids import identity, monoid_of
from mlir_lowering.passes.fold import constant_of, fold_op, splat_of
from mlir_lowering.targets import Target

# A rule gives the value that replaces the op's result, or an op to put in its place, or None.
Rule = Callable[[Op], "Value | Op | None"]


def run(graph: Graph, target: Target) -> None:
    """Simplifies the graph and every region of control flow."""
    _Simplifier().region(graph)


class _Simplifier:
    def __init__(self) -> None:
        self.mapping: dict[Value, Value] = {}

    def region(self, region: Region) -> None:
        ops: list[Op] = []
        pending = list(reversed(region.ops))
        while pending:
            op = pending.pop()
            op.operands = [self.mapping.get(v, v) for v in op.operands]
            branch = _constant_branch(op)
            if branch is not None:
                pending += reversed(branch.ops)
                self.mapping.update(zip(op.results, branch.outputs, strict=True))
                # Its outputs may be simplified in turn: resolved when they are read.
                continue
            if (kept := _nothing_to_update(op)) is not None:
                self.mapping.update(zip(op.results, kept, strict=True))
                continue
            for inner in op.regions:
                self.region(inner)
            empty = _without_elements(op)
            if empty:
                self.mapping.update(zip(op.results, (o.result for o in empty), strict=True))
                pending += reversed(empty)
                continue
            ops += self.simplified(op)
        region.ops = ops
        region.outputs = [self.resolve(v) for v in region.outputs]
        for op in ops:
            op.operands = [self.resolve(v) for v in op.operands]

    def resolve(self, value: Value) -> Value:
        while value in self.mapping:
            value = self.mapping[value]
        return value

    def simplified(self, op: Op) -> list[Op]:
        """The ops that take op's place: none if another value has its result already."""
        original = op
        while True:
            op.operands = [self.resolve(v) for v in op.operands]
            found: Value | Op | None = fold_op(op)
            if found is None and (rule := _RULES.get(op.name)) is not None:
                found = rule(op)
            if isinstance(found, Op):
                op = found
                continue
            if isinstance(found, Value):
                self.mapping[original.result] = found
                return []
            if op is not original:
                self.mapping[original.result] = op.result
            return [op]


def _without_elements(op: Op) -> list[Op]:
    """What takes the place of an op that has nothing to compute, or nothing to compute from: one op a result."""
    if op.name in ("stablehlo.constant", *CONTROL_FLOW) or has_effects(op):
        return []
    if all(v.type.size == 0 for v in op.results):
        return [
            Op("stablehlo.constant", [], [v.type], {"value": np.zeros(v.shape, v.dtype.numpy)}, loc=op.loc)
            for v in op.results
        ]
    if op.name == "stablehlo.reduce" and op.operands[0].type.size == 0:
        inits = op.operands[len(op.results) :]
        return [
            Op("stablehlo.broadcast_in_dim", [init], [v.type], {"broadcast_dimensions": ()}, loc=op.loc)
            for init, v in zip(inits, op.results, strict=True)
        ]
    return []


def _nothing_to_update(op: Op) -> list[Value] | None:
    """The arrays that an update without elements leaves as they are."""
    if op.name == "stablehlo.dynamic_update_slice":
        return op.operands[:1] if op.operands[1].type.size == 0 else None
    if op.name == "stablehlo.scatter":
        return op.operands[: len(op.results)] if op.operands[-1].type.size == 0 else None
    return None


def _constant_branch(op: Op) -> Region | None:
    """The branch of a case or if whose index is known."""
    if op.name not in ("stablehlo.case", "stablehlo.if"):
        return None
    index = constant_of(op.operands[0])
    if index is None:
        return None
    if op.name == "stablehlo.if":
        return op.regions[0 if index.item() else 1]
    number = index.item()
    return op.regions[number if 0 <= number < len(op.regions) else -1]


def _is_splat(value: Value, number: float) -> bool:
    splat = splat_of(value)
    if splat is None or value.dtype.kind == "complex":
        return False
    same = float(splat) == number
    return same and bool(np.signbit(float(splat)) == np.signbit(number))


def _reshape(value: Value, type: TensorType, op: Op) -> Op:
    return Op("stablehlo.reshape", [value], [type], loc=op.loc)


def _add(op: Op) -> Value | None:
    zero = -0.0 if op.result.dtype.is_float else 0.0
    for x, y in (op.operands, reversed(op.operands)):
        if _is_splat(y, zero):
            return x
    return None


def _subtract(op: Op) -> Value | None:
    x, y = op.operands
    return x if _is_splat(y, 0.0) else None


def _multiply(op: Op) -> Value | None:
    for x, y in (op.operands, reversed(op.operands)):
        if _is_splat(y, 1.0):
            return x
        if op.result.dtype.is_integer and _is_splat(y, 0.0):
            return y
    return None


def _divide(op: Op) -> Value | None:
    x, y = op.operands
    return x if _is_splat(y, 1.0) else None


def _and(op: Op) -> Value | None:
    return _logical(op, neutral=True)


def _or(op: Op) -> Value | None:
    return _logical(op, neutral=False)


def _logical(op: Op, neutral: bool) -> Value | None:
    x, y = op.operands
    if x is y:
        return x
    if op.result.dtype.kind != "pred":
        return None
    for a, b in ((x, y), (y, x)):
        splat = splat_of(b)
        if splat is not None:
            return a if bool(splat) is neutral else b
    return None


def _select(op: Op) -> Value | None:
    pred, x, y = op.operands
    if x is y:
        return x
    splat = splat_of(pred)
    return None if splat is None else (x if bool(splat) else y)


def _convert(op: Op) -> Value | None:
    return op.operands[0] if op.operands[0].type == op.result.type else None


def _broadcast_in_dim(op: Op) -> Value | Op | None:
    (x,) = op.operands
    dims = op.attrs["broadcast_dimensions"]
    if x.type == op.result.type and dims == tuple(range(len(dims))):
        return x
    if x.type.size == op.result.type.size and list(dims) == sorted(dims):
        return _reshape(x, op.result.type, op)
    producer = x.op
    if producer is not None and producer.name == op.name:
        through = tuple(dims[d] for d in producer.attrs["broadcast_dimensions"])
        attrs = {"broadcast_dimensions": through}
        return Op(op.name, list(producer.operands), [op.result.type], attrs, loc=op.loc)
    return None


def _reshape_rule(op: Op) -> Value | Op | None:
    (x,) = op.operands
    if x.type == op.result.type:
        return x
    if x.op is not None and x.op.name == "stablehlo.reshape":
        return _reshape(x.op.operands[0], op.result.type, op)
    return None


def _transpose(op: Op) -> Value | Op | None:
    (x,) = op.operands
    permutation = op.attrs["permutation"]
    if permutation == tuple(range(len(permutation))):
        return x
    long = [d for d in permutation if x.shape[d] != 1]
    if long == sorted(long):
        return _reshape(x, op.result.type, op)
    if x.op is not None and x.op.name == op.name:
        composed = tuple(x.op.attrs["permutation"][d] for d in permutation)
        attrs = {"permutation": composed}
        return Op(op.name, list(x.op.operands), [op.result.type], attrs, loc=op.loc)
    return None


def _slice(op: Op) -> Value | None:
    return op.operands[0] if op.operands[0].type == op.result.type else None


def _pad(op: Op) -> Value | None:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return None if any(any(op.attrs[n]) for n in names) else op.operands[0]


def _concatenate(op: Op) -> Value | Op | None:
    parts = [v for v in op.operands if v.type.size > 0]
    if len(parts) == 1:
        return parts[0]
    if parts and len(parts) < len(op.operands):
        return Op(op.name, parts, [op.result.type], op.attrs, loc=op.loc)
    return None


def _dynamic_slice(op: Op) -> Value | Op | None:
    x, *starts = op.operands
    if x.type == op.result.type:
        return x
    known = [constant_of(v) for v in starts]
    if any(k is None for k in known):
        return None
    sizes = op.result.shape
    begin = tuple(min(max(k.item(), 0), n - s) for k, n, s in zip(known, x.shape, sizes, strict=True) if k is not None)
    attrs = {
        "start_indices": begin,
        "limit_indices": tuple(b + s for b, s in zip(begin, sizes, strict=True)),
        "strides": (1,) * len(begin),
    }
    return Op("stablehlo.slice", [x], [op.result.type], attrs, loc=op.loc)


def starts_from_identity(op: Op) -> bool:
    """Whether a reduction of one operand by a known monoid starts from a constant that changes nothing."""
    if len(op.operands) != 2 or (monoid := monoid_of(op)) is None:
        return False
    splat = splat_of(op.operands[1])
    return splat is not None and splat.dtype.kind != "c" and splat.item() == identity(monoid, op.result.dtype)


def _reduce(op: Op) -> Op | None:
    """A reduction over dimensions of one element is a reshape, if it starts from the identity."""
    x = op.operands[0]
    if not starts_from_identity(op) or any(x.shape[d] != 1 for d in op.attrs["dimensions"]):
        return None
    return _reshape(x, op.result.type, op)


_RULES: dict[str, Rule] = {
    "stablehlo.add": _add,
    "stablehlo.and": _and,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.convert": _convert,
    "stablehlo.divide": _divide,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.multiply": _multiply,
    "stablehlo.or": _or,
    "stablehlo.pad": _pad,
    "stablehlo.reduce": _reduce,
    "stablehlo.reshape": _reshape_rule,
    "stablehlo.select": _select,
    "stablehlo.slice": _slice,
    "stablehlo.subtract": _subtract,
    "stablehlo.transpose": _transpose,
}
