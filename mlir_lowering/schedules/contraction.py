"""The canonical form of dot_general and convolution, and the schedule that starts from it.

    out[b, m, n] = epilogue(sum over k of A(b, m, k) * B(b, k, n))

b, m, k and n each stand for several dimensions (a batch of matrices or feature groups; kept dimensions of the left
operand, or batch and output positions; contracted dimensions, or kernel positions and input features; kept dimensions
of the right operand, or output features). A and B are index functions: where they read an operand, and the tests
under which they do not read padding or the holes of a dilation, which are zero. Gradients of convolutions are
convolutions with other dimension numbers, so they need no form of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlir_lowering.dtypes import F32, F64, I32, I64, DType
from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.errors import unsupported
from mlir_lowering.graph import ConvDimensionNumbers, DotDimensionNumbers, Op, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group
from mlir_lowering.schedules.pointwise import loop_index, merge_loops, merged_extents
from mlir_lowering.targets import Target


class Test(NamedTuple):
    """Holds if lo <= ix < hi."""

    ix: Ix
    lo: int
    hi: int


@dataclass(frozen=True)
class Access:
    """An element of A or B: `value[index]` where every test holds, else zero."""

    value: Value
    index: Index
    tests: tuple[Test, ...] = ()


AccessFunction = Callable[[Index, Index, Index], Access]


@dataclass(frozen=True)
class Contraction:
    """An op in canonical form: extents of what b, m, k and n stand for, outer to inner, and the index functions
    a(b, m, k), b(b, k, n) and result(b, m, n)."""

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
    """The type of the sums: 16-bit floats are summed in f32, integers modulo 2^32 or 2^64."""
    dtypes = [v.dtype for v in (*op.operands, *op.results)]
    for dtype in dtypes:
        if not dtype.msl:
            raise unsupported(
                f"{op.signature()}", op.loc, f"convert {dtype.name} operands to f32 first"
            )
    if any(dtype.is_float for dtype in dtypes):
        return F64 if F64 in dtypes else F32
    return I64 if op.result.dtype.bits == 64 else I32


def canonical(op: Op) -> Contraction:
    return _dot(op) if op.name == "stablehlo.dot_general" else _convolution(op)


def _dot(op: Op) -> Contraction:
    lhs, rhs = op.operands
    numbers: DotDimensionNumbers = op.attrs["dot_dimension_numbers"]
    lhs_batch, rhs_batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    # Contracted dimensions may be walked in any order: the left operand's, for long runs in it.
    pairs = sorted(
        zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True)
    )
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
class _Window:
    """One spatial dimension of a convolution."""

    size: int  # of the input
    kernel: int
    stride: int
    low: int  # padding in front
    input_dilation: int
    kernel_dilation: int
    reversed: bool

    def input(self, output: Ix, k: Ix) -> tuple[Ix, tuple[Test, ...]]:
        """The input position that kernel position `k` meets at an output position."""
        at = output * self.stride + k * self.kernel_dilation - self.low
        dilated = (self.size - 1) * self.input_dilation + 1 if self.size else 0
        inside = Test(at, 0, dilated)
        if self.input_dilation == 1:
            return at, (inside,)
        return at // self.input_dilation, (inside, Test(at % self.input_dilation, 0, 1))

    def weight(self, k: Ix) -> Ix:
        return k * -1 + (self.kernel - 1) if self.reversed else k


def _windows(op: Op, numbers: ConvDimensionNumbers) -> list[_Window]:
    lhs, rhs = op.operands
    count = len(numbers.input_spatial_dimensions)
    padding = op.attrs.get("padding")
    pads = np.zeros((count, 2), np.int64) if padding is None else np.asarray(padding)
    strides = _attribute(op, "window_strides", 1, count)
    input_dilations = _attribute(op, "lhs_dilation", 1, count)
    kernel_dilations = _attribute(op, "rhs_dilation", 1, count)
    reversals = _attribute(op, "window_reversal", 0, count)
    return [
        _Window(
            lhs.shape[numbers.input_spatial_dimensions[i]],
            rhs.shape[numbers.kernel_spatial_dimensions[i]],
            strides[i],
            int(pads.reshape(count, 2)[i, 0]),
            input_dilations[i],
            kernel_dilations[i],
            bool(reversals[i]),
        )
        for i in range(count)
    ]


def _convolution(op: Op) -> Contraction:
    """m: batch and output positions in the result's order; k: kernel positions and input features in the order of the
    left operand's dimensions; n: output features of a group; b: the group."""
    lhs, rhs = op.operands
    out = op.result
    numbers: ConvDimensionNumbers = op.attrs["dimension_numbers"]
    windows = _windows(op, numbers)
    feature_groups = int(op.attrs.get("feature_group_count", 1))
    batch_groups = int(op.attrs.get("batch_group_count", 1))
    groups = max(feature_groups, batch_groups)
    columns = rhs.shape[numbers.kernel_output_feature_dimension] // groups
    out_batch = numbers.output_batch_dimension
    out_spatial = numbers.output_spatial_dimensions
    # -1 is the batch (in m) or the input feature (in k); others number the spatial dimensions.
    row_dims = sorted(
        range(-1, len(windows)), key=lambda i: out_spatial[i] if i >= 0 else out_batch
    )
    folded_dims = sorted(
        range(-1, len(windows)),
        key=lambda i: (
            numbers.input_spatial_dimensions[i] if i >= 0 else numbers.input_feature_dimension
        ),
    )
    features = rhs.shape[numbers.kernel_input_feature_dimension]

    def a(b: Index, m: Index, k: Index) -> Access:
        row, fold = dict(zip(row_dims, m, strict=True)), dict(zip(folded_dims, k, strict=True))
        at = {
            numbers.input_batch_dimension: row[-1]
            + (b[0] * (lhs.shape[numbers.input_batch_dimension] // groups) if batch_groups > 1 else 0),
            numbers.input_feature_dimension: fold[-1]
            + (b[0] * features if feature_groups > 1 else 0),
        }
        tests: list[Test] = []
        for i, window in enumerate(windows):
            ix, conditions = window.input(row[i], fold[i])
            at[numbers.input_spatial_dimensions[i]] = ix
            tests += conditions
        return Access(lhs, tuple(at[d] for d in range(lhs.type.rank)), tuple(tests))

    def weights(b: Index, k: Index, n: Index) -> Access:
        fold = dict(zip(folded_dims, k, strict=True))
        at = {
            numbers.kernel_input_feature_dimension: fold[-1],
            numbers.kernel_output_feature_dimension: b[0] * columns + n[0],
        }
        for i, window in enumerate(windows):
            at[numbers.kernel_spatial_dimensions[i]] = window.weight(fold[i])
        return Access(rhs, tuple(at[d] for d in range(rhs.type.rank)))

    def result(b: Index, m: Index, n: Index) -> Index:
        row = dict(zip(row_dims, m, strict=True))
        at = {out_batch: row[-1], numbers.output_feature_dimension: b[0] * columns + n[0]}
        at |= {out_spatial[i]: row[i] for i in range(len(windows))}
        return tuple(at[d] for d in range(out.type.rank))

    return Contraction(
        op,
        batch=(groups,),
        rows=tuple(out.shape[out_spatial[i] if i >= 0 else out_batch] for i in row_dims),
        folded=tuple(windows[i].kernel if i >= 0 else features for i in folded_dims),
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
        return merged_extents(self.shape, self.starts) if self.starts else []

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
    """A contraction with the loops its accesses allow, those of the fused producers and consumers included.

    Methods take loop variables and put element expressions in the accumulator's type into the emitter's kernel.
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


def conditions(
    emitter: Emitter, access: Access, inner: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """The tests that must be made, as text: those that mention none of `inner`, and the others."""
    outside: list[str] = []
    inside: list[str] = []
    for test in access.tests:
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
        return emitter.let(value.dtype, f"{value.dtype.msl}({total})")

    emitter.bind(value, bound)


def probe(
    nest: Nest, group: Group, target: Target, b: Sequence[Ix], m: Sequence[Ix], k: Sequence[Ix], n: Sequence[Ix]
) -> tuple[Emitter, Emitter, Emitter]:
    """Throw-away emitters that evaluated A, B and the outputs at the given loop variables."""
    dtype = nest.contraction.accumulator
    emitters = tuple(group.emitter(target) for _ in range(3))
    for emitter, access in zip(emitters, (nest.a(b, m, k), nest.b(b, k, n)), strict=False):
        conditions(emitter, access)
        element(emitter, access, dtype)
    last = emitters[2]
    finished(last, nest, "total")
    for value in group.outputs:
        last.load(value, nest.result(b, m, n))
    return emitters[0], emitters[1], last


def merged(contraction: Contraction, group: Group, target: Target) -> Nest:
    """The loop nest with as few loops as the accesses allow."""
    shapes = (contraction.batch, contraction.rows, contraction.folded, contraction.columns)
    flat = [extent for shape in shapes for extent in shape]
    first = [0]
    for shape in shapes:
        first.append(first[-1] + len(shape))
    plain = Nest(contraction, *(Loops(shape, tuple(range(len(shape)))) for shape in shapes))

    def visit(index: Index) -> set[Ix]:
        b, m, k, n = (index[i:j] for i, j in zip(first, first[1:], strict=False))
        accesses = {linearize(plain.result(b, m, n), contraction.op.result.shape)}
        for emitter in probe(plain, group, target, b, m, k, n):
            accesses |= emitter.accesses
        return accesses

    starts = merge_loops(flat, visit, lambda d: d in first)
    loops = (
        Loops(shape, tuple(s - at for s in starts if at <= s < at + len(shape)))
        for shape, at in zip(shapes, first, strict=False)
    )
    return Nest(contraction, *loops)


def reads(op: Op, i: int) -> float:
    """How often, on average, an element of operand `i` is evaluated while tiles are packed."""
    if op.name == "stablehlo.dot_general" or i == 1:
        return 1.0
    contraction = canonical(op)
    evaluations = math.prod((*contraction.batch, *contraction.rows, *contraction.folded))
    return evaluations / max(op.operands[0].type.size, 1)
