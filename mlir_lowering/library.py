"""Contractions that Apple's library (MPSGraph) can do: which they are, and when one is worth a kernel of its own.

A call needs operands that lie in memory, or differ from it by a transpose, a reshape or a reversed kernel, and a result
that nothing else is computed with: no prologue, no epilogue. Convolutions are told apart by their geometry: one whose
kernel is walked backwards is an input gradient, one whose kernel is larger than its result is a filter gradient. Only
what maps exactly is mapped; all else stays with our kernels. Which of the two runs is the runtime's choice
(PJRT_METAL_LIBRARY).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mlir_lowering.graph import ConvDimensionNumbers, DotDimensionNumbers, Op, Value
from mlir_lowering.index import ZERO, Index, Ix, variable
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.program import DataLayout, LibraryKind, LibraryOp, LibraryView, WeightsLayout
from mlir_lowering.registry import OPS
from mlir_lowering.schedules.contraction import CONTRACTIONS, Window, windows
from mlir_lowering.targets import Target

# Ops that only say where an operand's elements are in memory.
MOVES = frozenset(("stablehlo.transpose", "stablehlo.reshape", "stablehlo.reverse"))
# MPSGraph has bfloat from macOS 14, which is also what brought MSL 3.1.
_BFLOAT_LANGUAGE = 31

# Sizes at which MPSGraph was seen to give wrong results, with no error: pytorch/pytorch#195163 (sums over 32767 and
# more, M1 and M2, up to macOS 26), JuliaGPU/Metal.jl#381 (byte offsets beyond 2^31); of convolutions
# pytorch/pytorch#129207 and #96225 (dimensions above 2^16), #188335 (kernels of 256 positions and more).
_MAX_FOLDED = 32766
_MAX_SIDE = (1 << 16) - 1
_MAX_KERNEL = 255
_MAX_BYTES = 1 << 31

# What a Program's library calls may hold (csrc/runtime/library_op.cc).
_MAX_RANK = 16
_MAX_NUMBER = (1 << 31) - 1

# What lhs, rhs and result of a call are to the forward convolution.
_ROLES: dict[LibraryKind, tuple[str, str, str]] = {
    LibraryKind.CONVOLUTION: ("source", "weights", "result"),
    LibraryKind.DATA_GRADIENT: ("result", "weights", "source"),
    LibraryKind.WEIGHTS_GRADIENT: ("source", "result", "weights"),
}

# What an epilogue left unfused costs and gains, in arithmetic operations. Assumed, and measured on no GPU: a GPU does
# 32 f32 operations in the time that a byte takes (2.6 TFLOP/s and 68 GB/s of an M1 are 38, 13.6 and 400 of an M2 Max
# 34), 2 * 10^7 in that of one more launch, and the library's time for a large contraction is 3/4 of ours. If the
# library turns out slower, `auto` runs our kernel, and the extra pass over the result is lost: 1/4 is a low guess.
_OPERATIONS_PER_BYTE = 32
_OPERATIONS_PER_LAUNCH = 20_000_000
_TIME_SAVED = 1 / 4


@dataclass(eq=False)
class LibraryCall:
    """One call of the library with the kernels that do the same."""

    op: LibraryOp
    operands: tuple[Value, Value]
    result: Value
    kernels: list[KernelCall]


@dataclass(frozen=True)
class Match:
    """A contraction as the library does it; `operands`: what is read from memory."""

    op: LibraryOp
    operands: tuple[Value, Value]


def match(group: Group, target: Target) -> Match | None:
    """The library's form of a group that is one contraction and nothing else; None if there is none."""
    op = group.head
    if op is None or target.is_software or op.name not in CONTRACTIONS or group.outputs != [op.result]:
        return None
    if group.siblings or any(inner is not op and inner.name not in MOVES for inner in group.inlined):
        return None
    dtypes = {v.dtype.name for v in (*op.operands, op.result)}
    if len(dtypes) != 1 or not dtypes <= {"f32", "f16", "bf16"}:
        return None
    if "bf16" in dtypes and target.language < _BFLOAT_LANGUAGE:
        return None
    if any(v.type.size == 0 or v.type.bytes >= _MAX_BYTES for v in (*op.operands, op.result)):
        return None
    found = _dot(op, group, target) if op.name == "stablehlo.dot_general" else _convolution(op, group, target)
    if found is None or any(len(v.dims) > _MAX_RANK for v in (found.op.lhs, found.op.rhs, found.op.result)):
        return None
    return found if max((*found.op.stride, *found.op.dilation, *found.op.padding)) <= _MAX_NUMBER else None


def worth_unfusing(op: Op, users: dict[Value, list[Op]], target: Target) -> bool:
    """Whether to store the result of `op` rather than to evaluate an epilogue on it, so that the library may do it."""
    if target.is_software or op.name not in CONTRACTIONS:
        return False
    moves: set[Op] = set()
    for operand in op.operands:
        value, reader = operand, op
        while (producer := value.op) is not None and producer.name in MOVES:
            moves.add(producer)
            value, reader = producer.operands[0], producer
        computed = producer is not None and OPS[producer.name].element is not None
        if computed and users[value] == [reader]:
            return False  # it will be evaluated while tiles are packed
    found = match(Group([op.result], {op, *moves}, op), target)
    if found is None:
        return False
    saved = _operations(found.op) * _TIME_SAVED
    return saved > 2 * op.result.type.bytes * _OPERATIONS_PER_BYTE + _OPERATIONS_PER_LAUNCH


def _operations(op: LibraryOp) -> int:
    if op.kind is LibraryKind.MATMUL:
        return 2 * math.prod(op.lhs.shape) * op.result.shape[2]
    # Each position of the convolution's result meets each weight once.
    forward = dict(zip(_ROLES[op.kind], (op.lhs, op.rhs, op.result), strict=True))
    weights, result = forward["weights"], forward["result"]
    features = result.shape[1 if op.data_layout is DataLayout.NCHW else 3]
    return 2 * math.prod(result.shape) // features * math.prod(weights.shape)


# Where an operand's elements lie.


@dataclass(frozen=True)
class _Strides:
    """A value in memory and, for each dimension of a form of it, the distance between neighbours (0 if there are
    none; negative: backwards)."""

    source: Value
    steps: tuple[int, ...]

    def view(self, parts: Sequence[Sequence[int]]) -> LibraryView:
        """The memory as dimensions in the order of `steps`; `parts`: their extents, joined as the library sees them.

        Every element of memory is one of the value's, once, because MOVES are such: no dimension has gaps.
        """
        extents = [extent for part in parts for extent in part]
        owners = [i for i, part in enumerate(parts) for _ in part]
        shape = tuple(math.prod(part) for part in parts)
        dims = [d for d, extent in enumerate(extents) if extent > 1]
        order = sorted(dims, key=lambda d: -abs(self.steps[d]))
        if order == dims:
            return LibraryView(shape, tuple(range(len(shape))), shape)
        # Neighbours in memory that are neighbours in the form, and of one part, are one dimension.
        runs: list[list[int]] = []
        for d in order:
            follows = runs and dims.index(d) == dims.index(runs[-1][-1]) + 1 and owners[d] == owners[runs[-1][-1]]
            if follows:
                runs[-1].append(d)
            else:
                runs.append([d])
        wanted = sorted(range(len(runs)), key=lambda i: runs[i][0])
        return LibraryView(tuple(math.prod(extents[d] for d in run) for run in runs), tuple(wanted), shape)


def _one_read(
    group: Group, target: Target, value: Value, extents: Sequence[int], at: Callable[[Index], Index]
) -> tuple[Value, Ix] | None:
    """What in memory an element is, and where, by the variables i0, i1, ...; None if it is not just that."""
    emitter = group.emitter(target)
    emitter.load(value, at(tuple(variable(f"i{d}", extent) for d, extent in enumerate(extents))))
    reads = [(source, offset) for source, offsets in emitter.reads.items() for offset in offsets]
    return reads[0] if len(reads) == 1 else None


def _steps(offset: Ix, rank: int) -> tuple[int, ...]:
    """The distance between neighbours in each dimension; 0 also where one is walked in two steps."""
    return tuple(offset.coefficient(f"i{d}") or 0 for d in range(rank))


def _strides(
    group: Group, target: Target, value: Value, extents: Sequence[int], at: Callable[[Index], Index]
) -> _Strides | None:
    """How memory is walked; None if an element is not simply one element of memory."""
    read = _one_read(group, target, value, extents, at)
    if read is None or read[1].has_division:
        return None
    source, offset = read
    steps = _steps(offset, len(extents))
    start = sum(-step * (extent - 1) for step, extent in zip(steps, extents, strict=True) if step < 0)
    return _Strides(source, steps) if offset.const == start else None


def _forwards(found: _Strides | None) -> _Strides | None:
    return found if found is not None and min(found.steps, default=0) >= 0 else None


# The forms.


def _dot(op: Op, group: Group, target: Target) -> Match | None:
    lhs, rhs = op.operands
    numbers: DotDimensionNumbers = op.attrs["dot_dimension_numbers"]
    lhs_batch, rhs_batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    lhs_folded, rhs_folded = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    lhs_kept = [d for d in range(lhs.type.rank) if d not in (*lhs_batch, *lhs_folded)]
    rhs_kept = [d for d in range(rhs.type.rank) if d not in (*rhs_batch, *rhs_folded)]

    def view(value: Value, dims: Sequence[Sequence[int]]) -> tuple[Value, LibraryView] | None:
        order = [d for part in dims for d in part]
        extents = [value.shape[d] for d in order]
        found = _forwards(
            _strides(group, target, value, extents, lambda ix: tuple(ix[order.index(d)] for d in range(len(order))))
        )
        if found is None:
            return None
        return found.source, found.view([[value.shape[d] for d in part] for part in dims])

    a = view(lhs, (lhs_batch, lhs_kept, lhs_folded))
    b = view(rhs, (rhs_batch, rhs_folded, rhs_kept))
    if a is None or b is None:
        return None
    batch, rows, folded = a[1].shape
    columns = b[1].shape[2]
    if folded > _MAX_FOLDED or (rows + 2 * folded) * columns * op.result.dtype.bytes >= _MAX_BYTES:
        return None
    if min(rows, columns, folded) == 1:
        return None  # a vector's product is bound by memory: nothing to gain
    shape = (batch, rows, columns)
    result = LibraryView(shape, (0, 1, 2), shape)
    return Match(LibraryOp(LibraryKind.MATMUL, op.result.dtype.code, a[1], b[1], result), (a[0], b[0]))


@dataclass(frozen=True)
class _Geometry:
    """One spatial dimension of the forward convolution."""

    size: int
    kernel: int
    output: int
    stride: int
    dilation: int
    low: int

    @property
    def _reach(self) -> int:
        return (self.kernel - 1) * self.dilation + 1

    @property
    def high(self) -> int:
        """The padding behind that gives `output` positions, if any does."""
        return max(0, (self.output - 1) * self.stride + self._reach - self.size - self.low)

    @property
    def fits(self) -> bool:
        """Whether these paddings, which do not cut, give `output` positions."""
        positions = (self.size + self.low + self.high - self._reach) // self.stride + 1
        return self.low >= 0 and positions == self.output


_NO_WINDOW = _Geometry(1, 1, 1, 1, 1, 0)


def _geometry(kind: LibraryKind, window: Window, backwards: bool) -> _Geometry | None:
    """The forward convolution's dimension behind one of `kind`; None if there is none."""
    one = window.kernel == 1
    match kind:
        case LibraryKind.CONVOLUTION if window.input_dilation == 1 and (one or not backwards):
            return _Geometry(
                window.size, window.kernel, window.output, window.stride, window.kernel_dilation, window.low
            )
        case LibraryKind.DATA_GRADIENT if window.stride == 1 and (one or backwards):
            low = (window.kernel - 1) * window.kernel_dilation - window.low
            return _Geometry(
                window.output, window.kernel, window.size, window.input_dilation, window.kernel_dilation, low
            )
        case LibraryKind.WEIGHTS_GRADIENT if window.input_dilation == 1 and (one or not backwards):
            return _Geometry(
                window.size, window.output, window.kernel, window.kernel_dilation, window.stride, window.low
            )
    return None


def _kind(walked: Sequence[Window], backwards: Sequence[bool], batch_groups: int) -> LibraryKind:
    reversed = any(b and w.kernel > 1 for w, b in zip(walked, backwards, strict=True))
    if reversed or any(w.input_dilation > 1 for w in walked):
        return LibraryKind.DATA_GRADIENT
    if batch_groups > 1 or math.prod(w.kernel for w in walked) > math.prod(w.output for w in walked):
        return LibraryKind.WEIGHTS_GRADIENT
    return LibraryKind.CONVOLUTION


def _convolution(op: Op, group: Group, target: Target) -> Match | None:
    """A convolution over one or two dimensions; over one, the library gets a first dimension of one position."""
    numbers: ConvDimensionNumbers = op.attrs["dimension_numbers"]
    walked = windows(op, numbers)
    spatial = len(walked)
    if spatial not in (1, 2):
        return None
    kernel_dimensions = numbers.kernel_spatial_dimensions
    read = _one_read(group, target, op.operands[1], op.operands[1].shape, lambda index: index)
    if read is None:
        return None
    steps = _steps(read[1], op.operands[1].type.rank)
    backwards = [w.reversed != (steps[d] < 0) for w, d in zip(walked, kernel_dimensions, strict=True)]

    feature_groups = int(op.attrs.get("feature_group_count", 1))
    batch_groups = int(op.attrs.get("batch_group_count", 1))
    kind = _kind(walked, backwards, batch_groups)
    groups = batch_groups if kind is LibraryKind.WEIGHTS_GRADIENT else feature_groups
    if max(feature_groups, batch_groups) != groups:
        return None
    found = [_geometry(kind, w, b) for w, b in zip(walked, backwards, strict=True)]
    if any(g is None or not g.fits for g in found):
        return None
    rows, columns = [_NO_WINDOW] * (2 - spatial) + [g for g in found if g is not None]
    sides = [n for value in (*op.operands, op.result) for n in value.shape]
    if max(sides) > _MAX_SIDE or max(rows.kernel, columns.kernel) > _MAX_KERNEL:
        return None

    # By the op's own numbers: batch and feature, or output and input feature of the kernel; then the spatial ones.
    lhs = (numbers.input_batch_dimension, numbers.input_feature_dimension, numbers.input_spatial_dimensions)
    rhs = (numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension, kernel_dimensions)
    out = (numbers.output_batch_dimension, numbers.output_feature_dimension, numbers.output_spatial_dimensions)
    roles = _ROLES[kind]
    arrays: dict[str, _Array] = {}
    for role, value, (first, second, places) in zip(roles, (*op.operands, op.result), (lhs, rhs, out), strict=True):
        # A gradient folds what the forward convolution keeps.
        swapped = kind is LibraryKind.WEIGHTS_GRADIENT or (kind is LibraryKind.DATA_GRADIENT and role == "weights")
        arrays[role] = (value, (second, first, places) if swapped else (first, second, places))
    forms = _Forms(group, target, spatial, op.result)
    data_layout, data = forms.data({role: arrays[role] for role in roles if role != "weights"})
    split = groups if kind is LibraryKind.DATA_GRADIENT else 1
    weights_layout, weights = forms.weights(*arrays["weights"], split)
    if data is None or weights is None:
        return None
    views = data | {"weights": weights}
    (lhs_source, lhs_view), (rhs_source, rhs_view), (_, result_view) = (views[role] for role in roles)
    described = LibraryOp(
        kind,
        op.result.dtype.code,
        lhs_view,
        rhs_view,
        result_view,
        stride=(rows.stride, columns.stride),
        dilation=(rows.dilation, columns.dilation),
        padding=(rows.low, rows.high, columns.low, columns.high),
        groups=groups,
        data_layout=data_layout,
        weights_layout=weights_layout,
    )
    return Match(described, (lhs_source, rhs_source))


_T = TypeVar("_T")
_Dimensions = tuple[int, int, tuple[int, ...]]
_Array = tuple[Value, _Dimensions]
_Found = tuple[Value, LibraryView]


@dataclass(frozen=True)
class _Regrouped:
    """`groups` of them go from the input features, where they come first, to the output features."""

    input: int  # the features' dimensions
    output: int
    groups: int


class _Forms:
    """Views of a convolution's arrays in one of the library's layouts."""

    def __init__(self, group: Group, target: Target, spatial: int, result: Value) -> None:
        self.group = group
        self.target = target
        self.spatial = spatial
        self.result = result

    def data(self, arrays: dict[str, _Array]) -> tuple[DataLayout, dict[str, _Found] | None]:
        """Source and result in the layout that the first one's memory has, NHWC if it has neither."""
        best: tuple[DataLayout, dict[str, _Found] | None] = (DataLayout.NHWC, None)
        fewest: list[bool] = []
        for layout in (DataLayout.NHWC, DataLayout.NCHW):
            views = {}
            for role, (value, (batch, feature, spatial)) in arrays.items():
                dims = [batch, *spatial, feature] if layout is DataLayout.NHWC else [batch, feature, *spatial]
                found = self._view(value, dims, after=1 if layout is DataLayout.NHWC else 2)
                if found is not None:
                    views[role] = found
            if len(views) != len(arrays):
                continue
            moved = [_moves(view) for _, view in views.values()]
            if best[1] is None or moved < fewest:
                best, fewest = (layout, views), moved
        return best

    def weights(self, value: Value, dimensions: _Dimensions, split: int) -> tuple[WeightsLayout, _Found | None]:
        """`split`: the groups of an input gradient, whose operand has them with the input features."""
        output, input, spatial = dimensions
        regrouped = _Regrouped(input, output, split) if split > 1 else None
        best: tuple[WeightsLayout, _Found | None] = (WeightsLayout.HWIO, None)
        for layout in (WeightsLayout.HWIO, WeightsLayout.OIHW):
            dims = [*spatial, input, output] if layout is WeightsLayout.HWIO else [output, input, *spatial]
            after = 0 if layout is WeightsLayout.HWIO else 2
            found = self._view(value, dims, after, frozenset(spatial), regrouped)
            if found is not None and (best[1] is None or _moves(found[1]) < _moves(best[1][1])):
                best = (layout, found)
        return best

    def _view(
        self,
        value: Value,
        dims: list[int],
        after: int,
        backwards: frozenset[int] = frozenset(),
        regrouped: _Regrouped | None = None,
    ) -> _Found | None:
        """`dims`: the value's dimensions in the library's order; `after`: where a missing spatial dimension goes;
        `backwards`: those that may be walked so."""
        parts: list[list[int]] = []
        where: list[tuple[int, int]] = []  # of each variable: the dimension, and what a step of it means there
        for d in dims:
            part = [value.shape[d]]
            if regrouped is not None:
                of_group = value.shape[regrouped.input] // regrouped.groups
                if d == regrouped.input:
                    part = [of_group]
                elif d == regrouped.output:
                    part = [regrouped.groups, value.shape[d]]
                    where.append((regrouped.input, of_group))
            parts.append(part)
            where.append((d, 1))
        if self.spatial == 1:
            parts.insert(after, [1])

        def at(variables: Index) -> Index:
            index = [ZERO] * len(value.shape)
            present = variables if self.spatial == 2 else _without(variables, sum(map(len, parts[:after])))
            for ix, (d, step) in zip(present, where, strict=True):
                index[d] = index[d] + ix * step
            return tuple(index)

        extents = [extent for part in parts for extent in part]
        # The result is written where its own index says.
        group = Group([value], set()) if value is self.result else self.group
        found = _strides(group, self.target, value, extents, at)
        if found is None:
            return None
        present = found.steps if self.spatial == 2 else _without(found.steps, sum(map(len, parts[:after])))
        if any(step < 0 and d not in backwards for step, (d, _) in zip(present, where, strict=True)):
            return None
        return found.source, found.view(parts)


def _without(items: tuple[_T, ...], position: int) -> tuple[_T, ...]:
    return items[:position] + items[position + 1 :]


def _moves(view: LibraryView) -> bool:
    return view.permutation != tuple(range(len(view.permutation)))
