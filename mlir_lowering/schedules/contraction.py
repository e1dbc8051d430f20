"""The canonical form of dot_general and convolution, and the schedule that starts from it.

    out[b, m, n] = epilogue(sum over k of A(b, m, k) * B(b, k, n))

b, m, k and n each stand for several dimensions (a batch of matrices or feature groups; kept
dimensions of the left operand, or batch and output positions; contracted dimensions, or kernel
positions and input features; kept dimensions of the right operand, or output features). A and B
are index functions: where they read an operand, and the tests under which they do not read padding
or the holes of a dilation, which are zero. Gradients of convolutions are convolutions with other
dimension numbers, so they need no form of their own.

What is not a number multiplies as StableHLO says: a position of padding is a zero, and zero times an
infinite weight is NaN. A position that the kernel does not have is no term of the sum: neither
operand is read for it, and both are zero where something must stand in a packed tile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mlir_lowering.dtypes import F32, F64, U32, U64, DType
from mlir_lowering.emit import Emitter, Expr, wrap
from mlir_lowering.errors import unsupported
from mlir_lowering.graph import ConvDimensionNumbers, DotDimensionNumbers, Op, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.schedules import pointwise
from mlir_lowering.schedules.loops import loop_index, merge_loops, merged_extents
from mlir_lowering.targets import Target

CONTRACTIONS = ("stablehlo.dot_general", "stablehlo.convolution")


class Test(NamedTuple):
    """Holds if lo <= ix < hi."""

    ix: Ix
    lo: int
    hi: int


@dataclass(frozen=True)
class Access:
    """An element of A or B: `value[index]` where every test holds, else zero.

    `taps`: the tests that both A and B have: where one of them fails, the sum has no term.
    """

    value: Value
    index: Index
    padding: tuple[Test, ...] = ()
    taps: tuple[Test, ...] = ()

    @property
    def tests(self) -> tuple[Test, ...]:
        return self.padding + self.taps


AccessFunction = Callable[[Index, Index, Index], Access]


@dataclass(frozen=True)
class Contraction:
    """An op in canonical form: extents of what b, m, k and n stand for, outer to inner, and the
    index functions a(b, m, k), b(b, k, n) and result(b, m, n)."""

    op: Op
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    folded: tuple[int, ...]
    columns: tuple[int, ...]
    a: AccessFunction
    b: AccessFunction
    result: Callable[[Index, Index, Index], Index]

    @property
    def accumulator(self) -> DType:
        return accumulator_of(self.op)


def accumulator_of(op: Op) -> DType:
    """The type of the sums: 16-bit floats are summed in f32, integers modulo 2^32 or 2^64
    (unsigned: wraps)."""
    dtypes = [v.dtype for v in (*op.operands, *op.results)]
    for dtype in dtypes:
        if not dtype.msl:
            raise unsupported(op.signature(), str(op.loc), f"convert {dtype.name} operands to f32 first")
    if any(dtype.is_float for dtype in dtypes):
        return F64 if F64 in dtypes else F32
    return U64 if op.result.dtype.bits == 64 else U32


def empty_sums(group: Group, target: Target) -> list[KernelCall]:
    """A contraction with no k: zeros."""
    op = group.head
    assert op is not None

    def prepare(emitter: Emitter) -> None:
        emitter.bind(op.result, lambda _: emitter.constant(0, op.result.dtype))

    return pointwise.emit(group, target, prepare)


def canonical(op: Op) -> Contraction:
    return _dot(op) if op.name == "stablehlo.dot_general" else _convolution(op)


def _dot(op: Op) -> Contraction:
    lhs, rhs = op.operands
    numbers: DotDimensionNumbers = op.attrs["dot_dimension_numbers"]
    lhs_batch, rhs_batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    # Contracted dimensions may be walked in any order: the left operand's, for long runs in it.
    pairs = sorted(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True))
    lhs_folded = tuple(pair[0] for pair in pairs)
    rhs_folded = tuple(pair[1] for pair in pairs)
    lhs_kept = [d for d in range(lhs.type.rank) if d not in (*lhs_batch, *lhs_folded)]
    rhs_kept = [d for d in range(rhs.type.rank) if d not in (*rhs_batch, *rhs_folded)]

    def gather(value: Value, parts: Sequence[tuple[Sequence[int], Index]]) -> Access:
        at = {d: ix for dims, index in parts for d, ix in zip(dims, index, strict=True)}
        return Access(value, tuple(at[d] for d in range(value.type.rank)))

    return Contraction(
        op,
        batch=tuple(lhs.shape[d] for d in lhs_batch),
        rows=tuple(lhs.shape[d] for d in lhs_kept),
        folded=tuple(lhs.shape[d] for d in lhs_folded),
        columns=tuple(rhs.shape[d] for d in rhs_kept),
        a=lambda b, m, k: gather(lhs, ((lhs_batch, b), (lhs_kept, m), (lhs_folded, k))),
        b=lambda b, k, n: gather(rhs, ((rhs_batch, b), (rhs_folded, k), (rhs_kept, n))),
        result=lambda b, m, n: (*b, *m, *n),
    )


def _attribute(op: Op, name: str, default: int, count: int) -> tuple[int, ...]:
    found = op.attrs.get(name)
    return (default,) * count if found is None else tuple(int(x) for x in found)


@dataclass(frozen=True)
class Window:
    """One spatial dimension of a convolution.

    With `phases` > 1, output positions phase, phase + phases, ... meet kernel positions of one
    remainder only (the others fall into the holes of the input's dilation), so each phase is a
    smaller convolution without holes.
    """

    size: int  # of the input
    kernel: int
    output: int
    stride: int
    low: int  # padding in front
    input_dilation: int
    kernel_dilation: int
    reversed: bool

    @property
    def phases(self) -> int:
        d = self.input_dilation
        plain = self.stride == 1 and self.kernel_dilation == 1
        return d if plain and self.output % d == 0 and self.kernel > 1 else 1

    @property
    def positions(self) -> int:
        """Kernel positions that a phase meets, rounded up."""
        return -(-self.kernel // self.phases)

    def kernel_position(self, phase: Ix, k: Ix) -> Ix:
        return k * self.phases + (phase * -1 + self.low) % self.phases

    def output_position(self, phase: Ix, output: Ix) -> Ix:
        return output * self.phases + phase

    def kernel_tests(self, phase: Ix, k: Ix) -> tuple[Test, ...]:
        """That the kernel has the position; those of the last round it may not have."""
        if self.kernel % self.phases == 0:
            return ()
        return (Test(self.kernel_position(phase, k), 0, self.kernel),)

    def input(self, phase: Ix, output: Ix, k: Ix) -> tuple[Ix, tuple[Test, ...]]:
        """The input position that the k-th kernel position of a phase meets at its output-th
        position, and the tests that it is neither in the padding nor in a hole."""
        position = self.output_position(phase, output)
        at = position * self.stride - self.low
        at = at + self.kernel_position(phase, k) * self.kernel_dilation
        dilated = (self.size - 1) * self.input_dilation + 1 if self.size else 0
        inside = Test(at, 0, dilated)
        if self.phases > 1:
            # Never in a hole; the quotient's remainder is known to be zero.
            return at // self.input_dilation, (inside,)
        if self.input_dilation == 1:
            return at, (inside,)
        return at // self.input_dilation, (inside, Test(at % self.input_dilation, 0, 1))

    def weight(self, phase: Ix, k: Ix) -> Ix:
        at = self.kernel_position(phase, k)
        return at * -1 + (self.kernel - 1) if self.reversed else at


def windows(op: Op, numbers: ConvDimensionNumbers) -> list[Window]:
    lhs, rhs = op.operands
    count = len(numbers.input_spatial_dimensions)
    padding = op.attrs.get("padding")
    pads = np.zeros((count, 2), np.int64) if padding is None else np.asarray(padding)
    strides = _attribute(op, "window_strides", 1, count)
    input_dilations = _attribute(op, "lhs_dilation", 1, count)
    kernel_dilations = _attribute(op, "rhs_dilation", 1, count)
    reversals = _attribute(op, "window_reversal", 0, count)
    return [
        Window(
            lhs.shape[numbers.input_spatial_dimensions[i]],
            rhs.shape[numbers.kernel_spatial_dimensions[i]],
            op.result.shape[numbers.output_spatial_dimensions[i]],
            strides[i],
            int(pads.reshape(count, 2)[i, 0]),
            input_dilations[i],
            kernel_dilations[i],
            bool(reversals[i]),
        )
        for i in range(count)
    ]


def _convolution(op: Op) -> Contraction:
    """m: batch and output positions in the result's order; k: kernel positions and input features
    in the order of the left operand's dimensions; n: output features of a group; b: the group and
    the phases."""
    lhs, rhs = op.operands
    out = op.result
    numbers: ConvDimensionNumbers = op.attrs["dimension_numbers"]
    walked = windows(op, numbers)
    feature_groups = int(op.attrs.get("feature_group_count", 1))
    batch_groups = int(op.attrs.get("batch_group_count", 1))
    groups = max(feature_groups, batch_groups)
    columns = rhs.shape[numbers.kernel_output_feature_dimension] // groups
    out_batch = numbers.output_batch_dimension
    out_spatial = numbers.output_spatial_dimensions
    # -1 is the batch (in m) or the input feature (in k); others number the spatial dimensions.
    row_dims = sorted(range(-1, len(walked)), key=lambda i: out_spatial[i] if i >= 0 else out_batch)
    folded_dims = sorted(
        range(-1, len(walked)),
        key=lambda i: numbers.input_spatial_dimensions[i] if i >= 0 else numbers.input_feature_dimension,
    )
    features = rhs.shape[numbers.kernel_input_feature_dimension]
    images = out.shape[out_batch]

    def taps(b: Index, fold: dict[int, Ix]) -> tuple[Test, ...]:
        return tuple(test for i, window in enumerate(walked) for test in window.kernel_tests(b[1 + i], fold[i]))

    def a(b: Index, m: Index, k: Index) -> Access:
        row, fold = dict(zip(row_dims, m, strict=True)), dict(zip(folded_dims, k, strict=True))
        at = {
            numbers.input_batch_dimension: row[-1] + b[0] * (images if batch_groups > 1 else 0),
            numbers.input_feature_dimension: fold[-1] + b[0] * (features if feature_groups > 1 else 0),
        }
        padding: list[Test] = []
        for i, window in enumerate(walked):
            ix, conditions = window.input(b[1 + i], row[i], fold[i])
            at[numbers.input_spatial_dimensions[i]] = ix
            padding += conditions
        return Access(lhs, tuple(at[d] for d in range(lhs.type.rank)), tuple(padding), taps(b, fold))

    def weights(b: Index, k: Index, n: Index) -> Access:
        fold = dict(zip(folded_dims, k, strict=True))
        at = {
            numbers.kernel_input_feature_dimension: fold[-1],
            numbers.kernel_output_feature_dimension: b[0] * columns + n[0],
        }
        for i, window in enumerate(walked):
            at[numbers.kernel_spatial_dimensions[i]] = window.weight(b[1 + i], fold[i])
        return Access(rhs, tuple(at[d] for d in range(rhs.type.rank)), taps=taps(b, fold))

    def result(b: Index, m: Index, n: Index) -> Index:
        row = dict(zip(row_dims, m, strict=True))
        at = {out_batch: row[-1], numbers.output_feature_dimension: b[0] * columns + n[0]}
        for i, window in enumerate(walked):
            at[out_spatial[i]] = window.output_position(b[1 + i], row[i])
        return tuple(at[d] for d in range(out.type.rank))

    return Contraction(
        op,
        batch=(groups, *(window.phases for window in walked)),
        rows=tuple(walked[i].output // walked[i].phases if i >= 0 else out.shape[out_batch] for i in row_dims),
        folded=tuple(walked[i].positions if i >= 0 else features for i in folded_dims),
        columns=(columns,),
        a=a,
        b=weights,
        result=result,
    )


@dataclass(frozen=True)
class Loops:
    """The loops over one of b, m, k, n: dimensions that every access walks as one are merged."""

    shape: tuple[int, ...]
    starts: tuple[int, ...]

    @property
    def extents(self) -> list[int]:
        return merged_extents(self.shape, self.starts)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def inner(self) -> int:
        """The length of the innermost loop."""
        return self.extents[-1] if self.starts else 1

    def index(self, variables: Sequence[Ix]) -> Index:
        return loop_index(self.shape, self.starts, variables) if self.starts else ()

    def variables(self, stem: str) -> list[Ix]:
        return [variable(f"{stem}{i}", n) for i, n in enumerate(self.extents)]


@dataclass(frozen=True)
class Nest:
    """A contraction with the loops its accesses allow, those of the fused producers and consumers
    included.

    Methods take loop variables.
    """

    contraction: Contraction
    batch: Loops
    rows: Loops
    folded: Loops
    columns: Loops

    @property
    def work(self) -> int:
        """Multiply-adds."""
        return self.batch.size * self.rows.size * self.folded.size * self.columns.size

    def a(self, b: Sequence[Ix], m: Sequence[Ix], k: Sequence[Ix]) -> Access:
        return self.contraction.a(self.batch.index(b), self.rows.index(m), self.folded.index(k))

    def b(self, b: Sequence[Ix], k: Sequence[Ix], n: Sequence[Ix]) -> Access:
        return self.contraction.b(self.batch.index(b), self.folded.index(k), self.columns.index(n))

    def result(self, b: Sequence[Ix], m: Sequence[Ix], n: Sequence[Ix]) -> Index:
        index = self.contraction.result
        return index(self.batch.index(b), self.rows.index(m), self.columns.index(n))


def convert(emitter: Emitter, expr: Expr, dtype: DType) -> Expr:
    if expr.dtype is dtype:
        return expr
    emitter.use(dtype)
    return Expr(f"{dtype.msl}({expr})", dtype)


def conditions(emitter: Emitter, tests: Iterable[Test], inner: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """The tests that must be made, as text: those that mention none of `inner`, and the others."""
    outside: list[str] = []
    inside: list[str] = []
    for test in tests:
        text = emitter.in_range(*test)
        if text is not None:
            mentions = any(test.ix.mentions(name) for name in inner)
            (inside if mentions else outside).append(text)
    return outside, inside


def element(emitter: Emitter, access: Access, dtype: DType, tests: Sequence[str] = ()) -> Expr:
    """The element as `dtype`; zero unless `tests` hold."""
    if not tests:
        return convert(emitter, emitter.load(access.value, access.index), dtype)
    return emitter.guarded(
        " && ".join(tests),
        lambda: convert(emitter, emitter.load(access.value, access.index), dtype),
        emitter.constant(0, dtype),
    )


def finished(emitter: Emitter, nest: Nest, total: str) -> None:
    """Binds the op's result to the sum whose text is `total`."""
    value = nest.contraction.op.result

    def bound(index: Index) -> Expr:
        return emitter.let(value.dtype, wrap(f"{value.dtype.msl}({total})", value.dtype))

    emitter.bind(value, bound)


def probe(nest: Nest, group: Group, target: Target, at: Sequence[Sequence[Ix]]) -> list[Emitter]:
    """Throw-away emitters that evaluated A, B and the outputs at loop variables of b, m, k and
    n."""
    b, m, k, n = at
    emitters = [group.emitter(target) for _ in range(3)]
    for emitter, access in zip(emitters, (nest.a(b, m, k), nest.b(b, k, n)), strict=False):
        conditions(emitter, access.tests)
        element(emitter, access, nest.contraction.accumulator)
    finished(emitters[2], nest, "total")
    for value in group.outputs:
        emitters[2].load(value, nest.result(b, m, n))
    return emitters


def merged(contraction: Contraction, group: Group, target: Target) -> Nest:
    """The loop nest with as few loops as the accesses allow."""
    shapes = (contraction.batch, contraction.rows, contraction.folded, contraction.columns)
    flat = [extent for shape in shapes for extent in shape]
    first = [0]
    for shape in shapes:
        first.append(first[-1] + len(shape))
    plain = Nest(contraction, *(Loops(shape, tuple(range(len(shape)))) for shape in shapes))

    def visit(index: Index) -> set[Ix]:
        at = [index[i:j] for i, j in pairwise(first)]
        result = plain.result(at[0], at[1], at[3])
        accesses = {linearize(result, contraction.op.result.shape)}
        for emitter in probe(plain, group, target, at):
            accesses |= emitter.accesses
        return accesses

    starts = merge_loops(flat, visit, lambda d: d in first)
    loops = (
        Loops(shape, tuple(s - at for s in starts if at <= s < at + len(shape)))
        for shape, at in zip(shapes, first, strict=False)
    )
    return Nest(contraction, *loops)


def packed_reads(op: Op, i: int) -> float:
    """How often, on average, an element of operand `i` is evaluated while tiles are packed."""
    if op.name == "stablehlo.dot_general":
        return 1.0
    contraction = canonical(op)
    kept = contraction.rows if i == 0 else contraction.columns
    evaluations = math.prod((*contraction.batch, *kept, *contraction.folded))
    return evaluations / max(op.operands[i].type.size, 1)
