"""Partial updates of an array in place: dynamic_update_slice and scatter.

The kernel writes only what changes; the buffer plan sees to it that the result's memory holds the operand before
(the same memory where the operand is not needed any more, else a copy).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from mlir_lowering.emit import Emitter, Expr, wrap
from mlir_lowering.graph import Op, ScatterDimensionNumbers
from mlir_lowering.index import Index, Ix, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, kernel_call
from mlir_lowering.schedules.loops import unravel
from mlir_lowering.schedules.pointwise import STRIP
from mlir_lowering.targets import Target


def slice_offsets(emitter: Emitter, op: Op) -> Index:
    """Where a dynamic_update_slice's update begins."""
    operand, update, *starts = op.operands
    return tuple(
        emitter.dynamic_index(emitter.load(start, ()), 0, operand.shape[d] - update.shape[d])
        for d, start in enumerate(starts)
    )


def _emit_dynamic_update_slice(group: Group, target: Target) -> list[KernelCall]:
    """One thread a strip of the update's elements."""
    op = group.head
    assert op is not None
    operand, update, *_ = op.operands
    emitter = group.emitter(target)
    offsets = slice_offsets(emitter, op)
    size = math.prod(update.shape)
    emitter.line(f"const int end = min(int(tid.x + 1) * {STRIP}, {size});")
    emitter.line("PJRT_INDEPENDENT")
    with emitter.block(f"for (int i = int(tid.x) * {STRIP}; i < end; ++i)", trips=min(STRIP, size)):
        index = delinearize(variable("i", size), update.shape)
        value = emitter.load(update, index)
        at = linearize(tuple(ix + offset for ix, offset in zip(index, offsets, strict=True)), operand.shape)
        emitter.line(f"out0[{at}] = {value};")
    return update_calls(emitter, op, (-(-size // STRIP), 1, 1), f"Writes {size} elements, {STRIP} a thread.")


class Scatter:
    """How updates meet elements. An update's index splits into scatter dimensions (which row of indices) and window
    dimensions."""

    def __init__(self, op: Op) -> None:
        count = (len(op.operands) - 1) // 2
        self.op = op
        self.updates = op.operands[count + 1 :]
        self.indices = op.operands[count]
        self.numbers: ScatterDimensionNumbers = op.attrs["scatter_dimension_numbers"]
        self.shape = op.operands[0].shape
        update_shape = self.updates[0].shape
        self.window_dims = self.numbers.update_window_dims
        self.scatter_dims = [d for d in range(len(update_shape)) if d not in self.window_dims]
        fixed = {*self.numbers.inserted_window_dims, *self.numbers.input_batching_dims}
        self.window_operand_dims = [d for d in range(len(self.shape)) if d not in fixed]
        self.scatter_extents = [update_shape[d] for d in self.scatter_dims]
        self.window_extents = [update_shape[d] for d in self.window_dims]
        self.rows, self.window = math.prod(self.scatter_extents), math.prod(self.window_extents)
        # Rows of one place in the batch: only these can meet.
        batch = math.prod(self.shape[d] for d in self.numbers.input_batching_dims)
        self.meeting_rows = self.rows // max(batch, 1)
        # Else different elements of windows never meet.
        self.covers_scattered = any(
            d in self.numbers.scattered_dims_to_operand_dims and update_shape[w] > 1
            for w, d in zip(self.window_dims, self.window_operand_dims, strict=True)
        )

    def extent(self, d: int) -> int:
        """How far a window reaches along an operand's dimension."""
        return self.window_extents[self.window_operand_dims.index(d)] if d in self.window_operand_dims else 1

    @contextmanager
    def each_row(self, emitter: Emitter) -> Iterator[tuple[Index, Index]]:
        """A loop over the rows of indices whose windows lie inside the operand, in row-major order: a row's index, and
        where its window begins."""
        with emitter.block(f"for (int row = 0; row < {self.rows}; ++row)"):
            row = unravel(emitter, variable("row", self.rows), self.scatter_extents)
            with self.if_inside(emitter, row) as base:
                yield row, base

    @contextmanager
    def if_inside(self, emitter: Emitter, scatter: Index) -> Iterator[Index]:
        """A block that runs if a row's window lies inside the operand; where the window begins."""
        starts = self.starts(emitter, scatter)
        inside = self.inside(starts)
        with emitter.block(f"if ({inside})" if inside else ""):
            yield self.base(emitter, scatter, starts)

    def starts(self, emitter: Emitter, scatter: Index) -> list[Expr | None]:
        """Each operand dimension's start as a run-time number (64-bit, so that no test wraps); None: not scattered."""
        starts: list[Expr | None] = [None] * len(self.shape)
        vector = self.numbers.index_vector_dim
        for component, d in enumerate(self.numbers.scattered_dims_to_operand_dims):
            index = list(scatter)
            if vector < len(self.indices.shape):
                index.insert(vector, Ix((), component))
            value = emitter.load(self.indices, tuple(index))
            name = emitter.fresh("start")
            emitter.line(f"const long {name} = long({value});")
            starts[d] = Expr(name, value.dtype)
        return starts

    def inside(self, starts: list[Expr | None]) -> str:
        """The condition that the window lies inside the operand ("" if it always does)."""
        tests = [
            f"{start} >= 0 && {start} <= {self.shape[d] - self.extent(d)}"
            for d, start in enumerate(starts)
            if start is not None
        ]
        return " && ".join(tests)

    def base(self, emitter: Emitter, scatter: Index, starts: list[Expr | None]) -> Index:
        """Where a window inside the operand begins: at the starts, at the batch index, or at 0."""
        base: list[Ix] = []
        for d, start in enumerate(starts):
            if start is None:
                base.append(self._batch_index(scatter, d))
                continue
            name = emitter.fresh("at")
            emitter.line(f"const int {name} = int({start});")
            base.append(variable(name, self.shape[d]))
        return tuple(base)

    def _batch_index(self, scatter: Index, d: int) -> Ix:
        if d not in self.numbers.input_batching_dims:
            return Ix(())
        dim = self.numbers.scatter_indices_batching_dims[self.numbers.input_batching_dims.index(d)]
        # Scatter dimensions are the indices' dimensions without the index vector's.
        position = dim - (1 if self.numbers.index_vector_dim < dim else 0)
        assert position < len(self.scatter_dims)
        return scatter[position]

    def elements(self, emitter: Emitter, scatter: Index, inner: Index) -> list[Expr]:
        """The updates' elements `inner` of the window of row `scatter`."""
        dims = (*self.scatter_dims, *self.window_dims)
        by_dim = dict(zip(dims, (*scatter, *inner), strict=True))
        index = tuple(by_dim[d] for d in range(len(by_dim)))
        return [emitter.load(update, index) for update in self.updates]

    def combine(self, emitter: Emitter, old: list[Expr], scatter: Index, inner: Index) -> list[Expr]:
        """The new elements, where element `inner` of the window of row `scatter` meets `old`."""
        return emitter.region(self.op.regions[0], [*old, *self.elements(emitter, scatter, inner)])

    def apply(self, emitter: Emitter, base: Index, scatter: Index, inner: Index) -> None:
        """Changes the element under `inner` of a window that begins at `base`."""
        where = list(base)
        for w, d in enumerate(self.window_operand_dims):
            where[d] = where[d] + inner[w]
        offset = linearize(tuple(where), self.shape)
        old = []
        for k, result in enumerate(self.op.results):
            emitter.use(result.dtype)
            name = emitter.fresh("old")
            emitter.line(f"const {result.dtype.msl} {name} = {wrap(f'out{k}[{offset}]', result.dtype)};")
            old.append(Expr(name, result.dtype))
        for k, value in enumerate(self.combine(emitter, old, scatter, inner)):
            emitter.line(f"out{k}[{offset}] = {value};")


def _emit_scatter(group: Group, target: Target) -> list[KernelCall]:
    """Applies the updates in row-major order, so that colliding ones combine deterministically.

    If different elements of windows never meet, threads share out the window, and each applies all rows to its part.
    Otherwise one thread applies everything.
    """
    op = group.head
    assert op is not None
    scatter = Scatter(op)
    emitter = group.emitter(target)
    rows, window = scatter.rows, scatter.window
    strip = window if scatter.covers_scattered else min(window, max(64, -(-window // 16)))
    with scatter.each_row(emitter) as (row, base):
        emitter.line(f"const int end = min(int(tid.x + 1) * {strip}, {window});")
        if not scatter.covers_scattered:
            emitter.line("PJRT_INDEPENDENT")
        with emitter.block(f"for (int i = int(tid.x) * {strip}; i < end; ++i)", trips=strip):
            scatter.apply(emitter, base, row, delinearize(variable("i", window), scatter.window_extents))
    return update_calls(
        emitter,
        op,
        (max(-(-window // strip), 1), 1, 1),
        f"Scatters {rows} windows of {window} elements; a thread applies all rows to {strip} of them.",
    )


def update_calls(emitter: Emitter, op: Op, threads: tuple[int, int, int], comment: str) -> list[KernelCall]:
    """The launch of a kernel that changes op's operands in part."""
    updates = dict(zip(op.results, op.operands, strict=False))
    return [kernel_call(emitter, op.results, comment, threads, restrict=False, updates=updates)]


def _slice_reads(op: Op, i: int) -> float | None:
    return None if i == 0 else 1.0


def _scatter_reads(op: Op, i: int) -> float | None:
    return None if i < (len(op.operands) - 1) // 2 else 1.0


DYNAMIC_UPDATE_SLICE = ScheduleDef(_emit_dynamic_update_slice, _slice_reads)
SCATTER = ScheduleDef(_emit_scatter, _scatter_reads)
