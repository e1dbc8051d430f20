"""The reduce schedule: a fold of one or more operands over some of their dimensions.

Three nests on the software device, chosen by which dimension is innermost:
- rows: the innermost dimension is reduced by one of the known monoids; the compiler keeps a vector of partial results;
- columns: the innermost dimension is kept; a strip of accumulators takes in one row after another;
- any body: a plain loop an output element, applying the op's region (arg-max, user-defined reductions).
Large reductions to few elements come here in two stages already (passes/split_reduce.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlir_lowering.dtypes import BY_NAME, F32, DType
from mlir_lowering.emit import Binding, Emitter, Expr, arithmetic_type, literal, wrap
from mlir_lowering.graph import Op, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, kernel_call
from mlir_lowering.monoids import identity, monoid_of
from mlir_lowering.schedules.loops import (
    assign,
    loop_index,
    merge_loops,
    merged_extents,
    nested,
    store,
    unravel,
)
from mlir_lowering.targets import Target

# Elements that one thread folds before it pays to give another thread the rest.
WORK = 32768
# Columns that one thread accumulates at a time: 8 KiB of f32, well inside the first-level cache.
COLUMNS = 2048


@dataclass(frozen=True)
class _Monoid:
    """How `accumulator = accumulator (+) x` is written so that the compiler may keep many accumulators."""

    pragma: str  # the operator in PJRT_SIMD's reduction clause
    step: str  # the new accumulator, from {a} and {x}
    propagates_nan: bool = False


_MONOIDS = {
    "stablehlo.add": _Monoid("+", "{w}({a}) + {w}({x})"),
    "stablehlo.multiply": _Monoid("*", "{w}({a}) * {w}({x})"),
    "stablehlo.maximum": _Monoid("max", "({x} > {a} ? {x} : {a})", propagates_nan=True),
    "stablehlo.minimum": _Monoid("min", "({x} < {a} ? {x} : {a})", propagates_nan=True),
    "stablehlo.and": _Monoid("&", "({a} & {x})"),
    "stablehlo.or": _Monoid("|", "({a} | {x})"),
    "stablehlo.xor": _Monoid("^", "({a} ^ {x})"),
}
_COMPLEX_MONOIDS = _MONOIDS | {"stablehlo.multiply": _Monoid("", "pjrt_complex_multiply({a}, {x})")}


@dataclass
class _Accumulator:
    """One monoid reduction under way: `dtype` it accumulates in, the C names of its value and NaN flag."""

    op: Op
    monoid: _Monoid
    dtype: DType
    name: str
    identity: str

    @property
    def nan(self) -> str:
        return f"{self.name}_nan"

    @property
    def tracks_nan(self) -> bool:
        return self.monoid.propagates_nan and self.dtype.is_float

    def _apply(self, a: str, x: str) -> str:
        return self.monoid.step.format(a=a, x=x, w=arithmetic_type(self.dtype))

    def step(self, emitter: Emitter, x: Expr, at: str = "") -> None:
        """Folds `x` into the accumulator (its element `at`)."""
        a = f"{self.name}{at}"
        value = x.code if x.dtype is self.dtype else f"{self.dtype.msl}({x})"
        emitter.line(f"{a} = {self.dtype.msl}({self._apply(a, value)});")
        if self.tracks_nan:
            emitter.line(f"{self.nan}{at} |= int({value} != {value});")

    def result(self, emitter: Emitter, at: str = "") -> str:
        """The folded value, the initial value and NaNs taken in."""
        init = emitter.load(self.op.operands[1], ())
        value = f"{self.dtype.msl}({init})"
        folded = self._apply(value, f"{self.name}{at}")
        if self.tracks_nan:
            nan = f"({self.nan}{at} != 0 || {value} != {value})"
            folded = f"({nan} ? {self.dtype.msl}(NAN) : {folded})"
        return wrap(f"{self.op.result.dtype.msl}({folded})", self.op.result.dtype)


def _accumulation(monoid: str, dtype: DType) -> DType:
    """16-bit floats are accumulated in f32, as XLA does; sums and products of signed integers without sign.

    They wrap either way, but g++ 12 leaves most terms out when it vectorizes `a[j] = long(ulong(a[j]) + ulong(x))` over
    the rows of a few columns.
    """
    if dtype.kind == "int" and monoid in ("stablehlo.add", "stablehlo.multiply"):
        return BY_NAME[f"u{dtype.name}"]
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def emit(group: Group, target: Target) -> list[KernelCall]:
    heads = [op for op in (group.head, *group.siblings) if op is not None]
    monoids = [monoid_of(op) for op in heads]
    if all(monoids) and all(len(op.operands) == 2 for op in heads):
        return [Nest(group, target, heads).kernel()]
    return [_any_body(group, target, heads[0])]


class Nest:
    """Reductions of one iteration space. Loops: outer kept, reduced, and the innermost (either)."""

    def __init__(self, group: Group, target: Target, heads: list[Op]) -> None:
        self.group = group
        self.target = target
        self.heads = heads
        shape = heads[0].operands[0].shape
        self.shape = shape
        reduced = set(heads[0].attrs["dimensions"])

        def visit(index: Index) -> set[Ix]:
            probe = group.emitter(target)
            for op in heads:
                for operand in op.operands[: len(op.operands) // 2]:
                    probe.load(operand, index)
            kept = tuple(ix for d, ix in enumerate(index) if d not in reduced)
            return probe.accesses | {linearize(kept, heads[0].results[0].shape)}

        def apart(d: int) -> bool:
            return (d in reduced) != (d - 1 in reduced)

        self.starts = merge_loops(shape, visit, apart)
        self.extents = merged_extents(shape, self.starts)
        self.is_reduced = [s in reduced for s in self.starts]
        self.kept = [n for n, r in zip(self.extents, self.is_reduced, strict=True) if not r]
        self.folded = [n for n, r in zip(self.extents, self.is_reduced, strict=True) if r]
        self.columns = bool(self.extents) and not self.is_reduced[-1]

    def accumulators(self, emitter: Emitter) -> list[_Accumulator]:
        found = []
        for i, op in enumerate(self.heads):
            name = monoid_of(op)
            assert name is not None
            dtype = _accumulation(name, op.result.dtype)
            emitter.use(dtype)
            monoids = _COMPLEX_MONOIDS if dtype.is_complex else _MONOIDS
            found.append(_Accumulator(op, monoids[name], dtype, f"acc{i}", literal(identity(name, dtype), dtype)))
        return found

    def kernel(self) -> KernelCall:
        emitter = self.group.emitter(self.target)
        accumulators = self.accumulators(emitter)
        threads = self._columns(emitter, accumulators) if self.columns else self._rows(emitter, accumulators)
        return kernel_call(emitter, self.group.outputs, self.comment(), (threads, 1, 1))

    def comment(self) -> str:
        names = ", ".join(f"{monoid_of(op)}" for op in self.heads)
        nest = " x ".join(f"{n}{' folded' if r else ''}" for n, r in zip(self.extents, self.is_reduced, strict=True))
        how = "columns" if self.columns else "rows"
        return f"Folds {names} over {nest}; by {how}."

    def index(self, kept: Sequence[Ix], folded: Sequence[Ix]) -> Index:
        kept_iter, folded_iter = iter(kept), iter(folded)
        variables = [next(folded_iter) if r else next(kept_iter) for r in self.is_reduced]
        return loop_index(self.shape, self.starts, variables)

    def kept_index(self, kept: Sequence[Ix]) -> Index:
        """The results' index."""
        shape = self.heads[0].results[0].shape
        reduced = set(self.heads[0].attrs["dimensions"])
        starts = []
        seen = 0
        begins = dict.fromkeys(self.starts)
        for d in range(len(self.shape)):
            if d not in reduced:
                if d in begins:
                    starts.append(seen)
                seen += 1
        return loop_index(shape, starts, list(kept)) if shape else ()

    def _rows(self, emitter: Emitter, accumulators: list[_Accumulator]) -> int:
        """One output element after another; the innermost reduced loop keeps a vector of accumulators."""
        outputs = math.prod(self.kept)
        work = max(1, math.prod(self.folded))
        each = max(1, min(outputs, WORK // work))
        bounds = f"int o = int(tid.x) * {each}; o < min((int(tid.x) + 1) * {each}, {outputs})"
        with emitter.block(f"for ({bounds}; ++o)", trips=each):
            o = variable("o", outputs)
            kept = unravel(emitter, o, self.kept)
            for acc in accumulators:
                emitter.line(f"{acc.dtype.msl} {acc.name} = {acc.dtype.msl}({acc.identity});")
                if acc.tracks_nan:
                    emitter.line(f"int {acc.nan} = 0;")
            self._fold(emitter, accumulators, kept, "")
            self._store(emitter, accumulators, kept, o, "")
        return -(-outputs // each)

    def _fold(self, emitter: Emitter, accumulators: list[_Accumulator], kept: Index, at: str) -> None:
        """The reduced loops, outer to inner; with `at` the innermost kept loop is inside them."""
        names = [f"k{i}" for i in range(len(self.folded))]
        loops = list(zip(names, self.folded, strict=True))
        folded = [variable(n, e) for n, e in loops]

        def step() -> None:
            for acc in accumulators:
                x = emitter.load(acc.op.operands[0], self.index(kept, folded))
                acc.step(emitter, x, at)

        def columns() -> None:
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block("for (int j = 0; j < columns; ++j)", trips=self._strip()):
                step()

        if at:
            nested(emitter, loops, columns)
            return
        clauses = " ".join(
            f"reduction({a.monoid.pragma}:{a.name})" + (f" reduction(|:{a.nan})" if a.tracks_nan else "")
            for a in accumulators
        )
        # OpenMP's clauses name numbers only.
        vectors = all(a.dtype.kind not in ("pred", "complex") for a in accumulators)
        nested(emitter, loops, step, f"PJRT_SIMD({clauses})" if vectors else "")

    def _strip(self) -> int:
        """Columns a thread accumulates at once; the last strip of a row may be shorter."""
        return min(self.extents[-1], COLUMNS)

    def _columns(self, emitter: Emitter, accumulators: list[_Accumulator]) -> int:
        """A strip of columns a thread: rows are added to it one after another."""
        strip = self._strip()
        inner = self.extents[-1]
        outer = self.kept[:-1]
        blocks = -(-inner // strip)
        threads = math.prod(outer) * blocks
        t = variable("int(tid.x)", threads)
        position = unravel(emitter, t, (*outer, blocks))
        kept = (*position[:-1], position[-1] * strip + variable("j", strip))
        # A constant where it can be one.
        last = f"min({strip}, {inner} - {position[-1] * strip})" if inner % strip else str(strip)
        emitter.line(f"const int columns = {last};")
        for acc in accumulators:
            emitter.line(f"{acc.dtype.msl} {acc.name}[{strip}];")
            if acc.tracks_nan:
                emitter.line(f"int {acc.nan}[{strip}];")
        with emitter.block("for (int j = 0; j < columns; ++j)", trips=strip):
            for acc in accumulators:
                emitter.line(f"{acc.name}[j] = {acc.dtype.msl}({acc.identity});")
                if acc.tracks_nan:
                    emitter.line(f"{acc.nan}[j] = 0;")
        self._fold(emitter, accumulators, kept, "[j]")
        emitter.line("PJRT_INDEPENDENT")
        with emitter.block("for (int j = 0; j < columns; ++j)", trips=strip):
            self._store(emitter, accumulators, kept, linearize(kept, self.kept), "[j]")
        return threads

    def _store(
        self,
        emitter: Emitter,
        accumulators: list[_Accumulator],
        kept: Index,
        offset: Ix,
        at: str,
    ) -> None:
        index = self.kept_index(kept)
        for acc in accumulators:
            value = acc.op.result
            expr = emitter.let(value.dtype, acc.result(emitter, at))
            emitter.bind(value, constantly(expr))
        store(emitter, self.group.outputs, index, offset)


def constantly(expr: Expr) -> Binding:
    """A value whose element is `expr` wherever it is asked for."""
    return lambda _: expr


def _any_body(group: Group, target: Target, head: Op) -> KernelCall:
    """Any body: one output element after another, folded in order with the region."""
    count = len(head.operands) // 2
    operands, inits = head.operands[:count], head.operands[count:]
    shape = operands[0].shape
    reduced = set(head.attrs["dimensions"])
    emitter = group.emitter(target)
    kept_shape = [n for d, n in enumerate(shape) if d not in reduced]
    outputs = math.prod(kept_shape)
    work = math.prod(shape) // outputs
    each = max(1, min(outputs, WORK // max(work, 1)))
    bounds = f"int o = int(tid.x) * {each}; o < min((int(tid.x) + 1) * {each}, {outputs})"
    with emitter.block(f"for ({bounds}; ++o)", trips=each):
        o = variable("o", outputs)
        kept = unravel(emitter, o, kept_shape)
        accs = []
        for i, (init, result) in enumerate(zip(inits, head.results, strict=True)):
            emitter.use(result.dtype)
            emitter.line(f"{result.dtype.msl} acc{i} = {emitter.load(init, ())};")
            accs.append(Expr(f"acc{i}", result.dtype))
        kept_iter = iter(kept)
        index = tuple(variable(f"k{d}", n) if d in reduced else next(kept_iter) for d, n in enumerate(shape))
        loops = [(f"k{d}", shape[d]) for d in sorted(reduced)]
        nested(emitter, loops, lambda: _apply(emitter, head, accs, operands, index))
        for acc, result in zip(accs, head.results, strict=True):
            emitter.bind(result, constantly(acc))
        store(emitter, group.outputs, kept, o)
    comment = f"Folds {shape} over dimensions {sorted(reduced)}; a thread computes {each} elements."
    return kernel_call(emitter, group.outputs, comment, (-(-outputs // each), 1, 1))


def _apply(emitter: Emitter, head: Op, accs: list[Expr], operands: list[Value], index: Index) -> None:
    values = [emitter.load(v, index) for v in operands]
    assign(emitter, [acc.code for acc in accs], emitter.region(head.regions[0], [*accs, *values]))


SCHEDULE = ScheduleDef(emit, lambda op, i: 1.0, epilogue=True)
