"""Partial updates of an array in place: dynamic_update_slice and scatter.

The kernel writes only what changes; the buffer plan sees to it that the result's memory holds the operand before
(the same memory where the operand is not needed any more, else a copy).
"""

from __future__ import annotations

import math

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Op, ScatterDimensionNumbers
from mlir_lowering.index import Index, Ix, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, make_kernel
from mlir_lowering.schedules.pointwise import STRIP, name_indices
from mlir_lowering.targets import Target


def _emit_dynamic_update_slice(group: Group, target: Target) -> list[KernelCall]:
    """One thread a strip of the update's elements."""
    op = group.head
    assert op is not None
    operand, update, *starts = op.operands
    emitter = group.emitter(target)
    offsets = []
    for d, start in enumerate(starts):
        expr = emitter.load(start, ())
        offsets.append(emitter.dynamic_index(expr, 0, operand.shape[d] - update.shape[d]))
    size = math.prod(update.shape)
    emitter.line(f"const int end = min(int(tid.x + 1) * {STRIP}, {size});")
    emitter.line("PJRT_INDEPENDENT")
    with emitter.block(f"for (int i = int(tid.x) * {STRIP}; i < end; ++i)"):
        index = delinearize(variable("i", size), update.shape)
        value = emitter.load(update, index)
        at = linearize(tuple(ix + offset for ix, offset in zip(index, offsets, strict=True)), operand.shape)
        emitter.line(f"out0[{at}] = {value};")
    return _calls(group, emitter, op, -(-size // STRIP), f"Writes {size} elements, {STRIP} a thread.")


def _emit_scatter(group: Group, target: Target) -> list[KernelCall]:
    """Applies the updates in row-major order, so that colliding ones combine deterministically.

    An update's index splits into scatter dimensions (which row of indices) and window dimensions. If the window
    covers no scattered dimension, different window elements never meet: threads share out the window, and each
    applies all rows to its part. Otherwise one thread applies everything.
    """
    op = group.head
    assert op is not None
    count = (len(op.operands) - 1) // 2
    operands, updates = op.operands[:count], op.operands[count + 1 :]
    indices = op.operands[count]
    numbers: ScatterDimensionNumbers = op.attrs["scatter_dimension_numbers"]
    shape, update_shape = operands[0].shape, updates[0].shape
    emitter = group.emitter(target)

    window_dims = numbers.update_window_dims
    scatter_dims = [d for d in range(len(update_shape)) if d not in window_dims]
    fixed = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    window_operand_dims = [d for d in range(len(shape)) if d not in fixed]
    scatter_extents = [update_shape[d] for d in scatter_dims]
    window_extents = [update_shape[d] for d in window_dims]
    rows, window = math.prod(scatter_extents), math.prod(window_extents)
    covers_scattered = any(
        d in numbers.scattered_dims_to_operand_dims and update_shape[w] > 1
        for w, d in zip(window_dims, window_operand_dims, strict=True)
    )
    strip = window if covers_scattered else min(window, max(64, -(-window // 16)))
    threads = -(-window // strip)

    with emitter.block(f"for (int row = 0; row < {rows}; ++row)"):
        scatter = delinearize(variable("row", rows), scatter_extents)
        scatter = name_indices(emitter, scatter, scatter_extents)
        starts = _starts(emitter, op, indices.shape, numbers, scatter, len(shape))
        conditions = []
        for d, start in enumerate(starts):
            if start is None:
                continue
            extent = 1
            if d in window_operand_dims:
                extent = window_extents[window_operand_dims.index(d)]
            conditions.append(f"{start} >= 0 && {start} <= {shape[d] - extent}")
        with emitter.block(f"if ({' && '.join(conditions)})" if conditions else ""):
            base: list[Ix] = []
            for d, start in enumerate(starts):
                if start is None:
                    base.append(_batch_index(numbers, scatter, scatter_dims, d))
                    continue
                name = emitter.fresh("at")
                emitter.line(f"const int {name} = int({start});")
                base.append(variable(name, shape[d]))
            emitter.line(f"const int end = min(int(tid.x + 1) * {strip}, {window});")
            if not covers_scattered:
                emitter.line("PJRT_INDEPENDENT")
            with emitter.block(f"for (int i = int(tid.x) * {strip}; i < end; ++i)"):
                inner = delinearize(variable("i", window), window_extents)
                where = list(base)
                for w, d in enumerate(window_operand_dims):
                    where[d] = where[d] + inner[w]
                update_index = _interleave(scatter_dims, scatter, window_dims, inner)
                offset = linearize(tuple(where), shape)
                old = []
                for k, result in enumerate(op.results):
                    emitter.use(result.dtype)
                    name = emitter.fresh("old")
                    emitter.line(f"const {result.dtype.msl} {name} = out{k}[{offset}];")
                    old.append(Expr(name, result.dtype))
                new = [emitter.load(update, update_index) for update in updates]
                for k, value in enumerate(emitter.region(op.regions[0], [*old, *new])):
                    emitter.line(f"out{k}[{offset}] = {value};")
    return _calls(
        group,
        emitter,
        op,
        threads,
        f"Scatters {rows} windows of {window} elements; a thread applies all rows to {strip} of them.",
    )


def _starts(
    emitter: Emitter,
    op: Op,
    indices_shape: tuple[int, ...],
    numbers: ScatterDimensionNumbers,
    scatter: Index,
    rank: int,
) -> list[Expr | None]:
    """Each operand dimension's start as a run-time number (64-bit, so that no test wraps); None: not scattered."""
    count = (len(op.operands) - 1) // 2
    indices = op.operands[count]
    starts: list[Expr | None] = [None] * rank
    vector = numbers.index_vector_dim
    for component, d in enumerate(numbers.scattered_dims_to_operand_dims):
        index = list(scatter)
        if vector < len(indices_shape):
            index.insert(vector, Ix((), component))
        value = emitter.load(indices, tuple(index))
        name = emitter.fresh("start")
        emitter.line(f"const long {name} = long({value});")
        starts[d] = Expr(name, value.dtype)
    return starts


def _batch_index(numbers: ScatterDimensionNumbers, scatter: Index, scatter_dims: list[int], d: int) -> Ix:
    """Where a dimension that is not scattered starts: at the batch index, or at 0."""
    if d not in numbers.input_batching_dims:
        return Ix(())
    dim = numbers.scatter_indices_batching_dims[numbers.input_batching_dims.index(d)]
    # Scatter dimensions are the indices' dimensions without the index vector's.
    position = dim - (1 if numbers.index_vector_dim < dim else 0)
    assert position < len(scatter_dims)
    return scatter[position]


def _interleave(scatter_dims: list[int], scatter: Index, window_dims: tuple[int, ...], window: Index) -> Index:
    """The update's index from its scatter and window parts."""
    by_dim = dict(zip(scatter_dims, scatter, strict=True)) | dict(zip(window_dims, window, strict=True))
    return tuple(by_dim[d] for d in range(len(by_dim)))


def _calls(group: Group, emitter: Emitter, op: Op, threads: int, comment: str) -> list[KernelCall]:
    kernel = make_kernel(
        emitter,
        [(f"out{i}", value) for i, value in enumerate(op.results)],
        comment=comment,
        restrict=False,
    )
    return [
        KernelCall(
            kernel,
            [*emitter.inputs, *op.results],
            b"",
            (max(threads, 1), 1, 1),
            updates=dict(zip(op.results, op.operands, strict=False)),
        )
    ]


def _slice_reads(op: Op, i: int) -> float | None:
    return None if i == 0 else 1.0


def _scatter_reads(op: Op, i: int) -> float | None:
    return None if i < (len(op.operands) - 1) // 2 else 1.0


DYNAMIC_UPDATE_SLICE = ScheduleDef(_emit_dynamic_update_slice, _slice_reads)
SCATTER = ScheduleDef(_emit_scatter, _scatter_reads)
