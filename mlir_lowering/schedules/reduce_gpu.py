"""The reduce schedule on a GPU: what a reduction's threads fold, and with what."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlir_lowering.dtypes import F32, DType
from mlir_lowering.emit import Emitter, Expr, literal, wrap
from mlir_lowering.graph import Op, Value
from mlir_lowering.index import Index, linearize
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef
from mlir_lowering.monoids import identity, monoid_of
from mlir_lowering.schedules.fold_gpu import Accumulator, Fold
from mlir_lowering.schedules.loops import assign, store
from mlir_lowering.schedules.reduce import Nest, constantly
from mlir_lowering.targets import Target


@dataclass(frozen=True)
class _Monoid:
    """`{a} (+) {b}` of two values and of a SIMD group's, for floats and integers alike."""

    pair: str
    simd: str


_MONOIDS = {
    "stablehlo.add": _Monoid("{a} + {b}", "simd_sum({a})"),
    "stablehlo.multiply": _Monoid("{a} * {b}", "simd_product({a})"),
    "stablehlo.maximum": _Monoid("max({a}, {b})", "simd_max({a})"),
    "stablehlo.minimum": _Monoid("min({a}, {b})", "simd_min({a})"),
    "stablehlo.and": _Monoid("{a} & {b}", "simd_and({a})"),
    "stablehlo.or": _Monoid("{a} | {b}", "simd_or({a})"),
    "stablehlo.xor": _Monoid("{a} ^ {b}", "simd_xor({a})"),
}
# A NaN anywhere makes the result NaN; MSL's max and min drop it.
_FLOAT_MONOIDS = _MONOIDS | {
    "stablehlo.maximum": _Monoid("pjrt_max({a}, {b})", "(simd_any({a} != {a}) ? float(NAN) : simd_max({a}))"),
    "stablehlo.minimum": _Monoid("pjrt_min({a}, {b})", "(simd_any({a} != {a}) ? float(NAN) : simd_min({a}))"),
}
_LONG_MONOIDS = _MONOIDS | {
    "stablehlo.maximum": _Monoid("pjrt_larger({a}, {b})", ""),
    "stablehlo.minimum": _Monoid("pjrt_smaller({a}, {b})", ""),
}
_COMPLEX_MONOIDS = _MONOIDS | {"stablehlo.multiply": _Monoid("pjrt_complex_multiply({a}, {b})", "")}
_MONOIDS_OF_KIND = {"float": _FLOAT_MONOIDS, "complex": _COMPLEX_MONOIDS}


def carrier(dtype: DType, monoid: str) -> str:
    """The type that threads fold in: 32 bits for what is narrower; unsigned where signed overflow could occur."""
    if dtype.is_complex:
        return dtype.msl
    if dtype.is_float:
        return "float"
    ordered = monoid in ("stablehlo.maximum", "stablehlo.minimum")
    signed = dtype.kind == "int" and ordered
    if dtype.bits == 64:
        return "long" if signed else "ulong"
    return "int" if signed else "uint"


def monoid_accumulator(name: str, dtype: DType, monoid: str) -> Accumulator:
    """An accumulator called `name` for elements of type `dtype`."""
    type = carrier(dtype, monoid)
    integers = _LONG_MONOIDS if dtype.bits == 64 else _MONOIDS
    rules = _MONOIDS_OF_KIND.get(dtype.kind, integers)[monoid]

    def combine(emitter: Emitter, a: list[str], b: list[str]) -> None:
        emitter.line(f"{a[0]} = {rules.pair.format(a=a[0], b=b[0])};")

    return Accumulator(
        ((name, type),),
        (literal(identity(monoid, dtype), F32 if dtype.is_float else dtype),),
        combine,
        (lambda text: rules.simd.format(a=text)) if dtype.bits < 64 else None,
        8 if dtype.bits == 64 else 4,
    )


def emit(group: Group, target: Target) -> list[KernelCall]:
    heads = [op for op in (group.head, *group.siblings) if op is not None]
    if all(monoid_of(op) and len(op.operands) == 2 for op in heads):
        return [_monoids(group, target, heads)]
    return [_any_body(group, target, heads[0])]


def _monoids(group: Group, target: Target, heads: list[Op]) -> KernelCall:
    nest = Nest(group, target, heads)
    emitter = group.emitter(target)
    names = [monoid_of(op) or "" for op in heads]
    accumulators = [
        monoid_accumulator(f"acc{i}", op.result.dtype, name)
        for i, (op, name) in enumerate(zip(heads, names, strict=True))
    ]

    def elements(kept: Index, folded: Index) -> list[list[str]]:
        index = nest.index(kept, folded)
        found = []
        for op, acc in zip(heads, accumulators, strict=True):
            ((_, type),) = acc.variables
            found.append([f"{type}({emitter.load(op.operands[0], index)})"])
        return found

    def finish(kept: Index) -> None:
        for op, acc in zip(heads, accumulators, strict=True):
            ((name, type),) = acc.variables
            value = op.result
            acc.combine(emitter, [name], [f"{type}({emitter.load(op.operands[1], ())})"])
            emitter.bind(value, constantly(emitter.let(value.dtype, wrap(f"{value.dtype.msl}({name})", value.dtype))))
        store(emitter, group.outputs, nest.kept_index(kept), linearize(kept, nest.kept))

    what = nest.comment()
    return Fold(emitter, group, what, nest.kept, nest.folded, nest.columns, accumulators, elements, finish).call()


def _any_body(group: Group, target: Target, head: Op) -> KernelCall:
    """Any body, as long as it is associative and commutative (StableHLO leaves the order to the implementation).

    Threads start from elements and the initial value comes in once, so it need not be the body's identity.
    """
    nest = Nest(group, target, [head])
    emitter = group.emitter(target)
    count = len(head.operands) // 2
    operands, inits = head.operands[:count], head.operands[count:]
    for result in head.results:
        emitter.use(result.dtype)

    def combine(emitter: Emitter, a: list[str], b: list[str]) -> None:
        left, right = _exprs(a, head.results), _exprs(b, head.results)
        assign(emitter, a, emitter.region(head.regions[0], [*left, *right]))

    accumulator = Accumulator(
        tuple((f"acc{i}", result.dtype.msl) for i, result in enumerate(head.results)),
        None,
        combine,
        None,
        sum(result.dtype.bytes for result in head.results),
    )

    def elements(kept: Index, folded: Index) -> list[list[str]]:
        index = nest.index(kept, folded)
        return [[str(emitter.load(operand, index)) for operand in operands]]

    def finish(kept: Index) -> None:
        start = [str(emitter.load(init, ())) for init in inits]
        if math.prod(nest.folded):
            combine(emitter, accumulator.names, start)
        else:
            for name, text in zip(accumulator.names, start, strict=True):
                emitter.line(f"{name} = {text};")
        for name, result in zip(accumulator.names, head.results, strict=True):
            emitter.bind(result, constantly(Expr(name, result.dtype)))
        store(emitter, group.outputs, nest.kept_index(kept), linearize(kept, nest.kept))

    what = f"Folds {operands[0].shape} over dimensions {sorted(head.attrs['dimensions'])}"
    return Fold(emitter, group, what, nest.kept, nest.folded, nest.columns, [accumulator], elements, finish).call()


def _exprs(names: list[str], values: list[Value]) -> list[Expr]:
    return [Expr(name, value.dtype) for name, value in zip(names, values, strict=True)]


SCHEDULE = ScheduleDef(emit, lambda op, i: 1.0, epilogue=True)
