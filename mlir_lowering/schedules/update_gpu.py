"""Partial updates on a GPU: dynamic_update_slice and scatter, deterministic without atomics.

Updates that meet in one element are applied by one thread, in row-major order. How rows and elements are shared out
depends on where updates can meet:
- nowhere (one row a place in the batch, or indices declared unique): a thread an element of each row's window;
- only at one place in windows that begin together, of few rows: a thread takes one place in the window and the windows
  that begin in its share of the operand;
- anywhere, of few rows: a thread an element of the operand looks for the windows that cover it;
- many rows: they are sorted by where they go (scatter_sorted_gpu.py).
"""

from __future__ import annotations

import math
from dataclasses import replace

from mlir_lowering.emit import Expr, wrap
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.schedules import grid, scatter_sorted_gpu
from mlir_lowering.schedules.loops import assign, loop_index, merge_loops, merged_extents
from mlir_lowering.schedules.update import DYNAMIC_UPDATE_SLICE as SOFTWARE_SLICE
from mlir_lowering.schedules.update import SCATTER as SOFTWARE_SCATTER
from mlir_lowering.schedules.update import Scatter, slice_offsets, update_calls
from mlir_lowering.targets import Target

# Threads among which the rows of a scatter are shared out: each looks at every row's indices.
SHARERS = 4096
# Rows from which on they are sorted: below, the launches of a sort cost more than looking at every row.
MANY_ROWS = 1024
# Tests of elements against windows (each element of the operand looks at every row) up to which nothing is sorted.
FEW_TESTS = 1 << 20


def _emit_dynamic_update_slice(group: Group, target: Target) -> list[KernelCall]:
    """A thread an element of the update."""
    op = group.head
    assert op is not None
    operand, update, *_ = op.operands
    shape = update.shape
    if not update.type.size:
        # Its loop does nothing; the buffer plan has given the result the operand's elements.
        return SOFTWARE_SLICE.emit(group, target)

    def visit(index: Index) -> set[Ix]:
        probe = group.emitter(target)
        probe.load(update, index)
        return probe.accesses | {linearize(index, operand.shape)}

    starts = merge_loops(shape, visit)
    walk = grid.axes(merged_extents(shape, starts))
    emitter = group.emitter(target)
    offsets = slice_offsets(emitter, op)
    index = loop_index(shape, starts, walk.position(emitter, "tid")) if shape else ()
    value = emitter.load(update, index)
    at = linearize(tuple(ix + offset for ix, offset in zip(index, offsets, strict=True)), operand.shape)
    emitter.line(f"out0[{at}] = {value};")
    return update_calls(emitter, op, walk.lengths, f"Writes {update.type.size} elements, a thread each.")


def _emit_scatter(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    scatter = Scatter(op)
    if not scatter.rows * scatter.window:
        # Its loops do nothing; the buffer plan has given the results the operands' elements.
        return SOFTWARE_SCATTER.emit(group, target)
    if scatter.meeting_rows == 1 or op.attrs.get("unique_indices"):
        return _apart(group, target, scatter)
    if scatter.covers_scattered and math.prod(scatter.shape) * scatter.rows <= FEW_TESTS:
        return _by_element(group, target, scatter)
    if not scatter.covers_scattered and scatter.rows <= MANY_ROWS:
        return _by_share(group, target, scatter)
    return scatter_sorted_gpu.emit(group, target, scatter)


def _apart(group: Group, target: Target, scatter: Scatter) -> list[KernelCall]:
    emitter = group.emitter(target)
    count = len(scatter.scatter_extents)
    walk = grid.axes([*scatter.scatter_extents, *scatter.window_extents])
    position = walk.position(emitter, "tid")
    row, inner = position[:count], position[count:]
    with scatter.if_inside(emitter, row) as base:
        scatter.apply(emitter, base, row, inner)
    what = f"Scatters {scatter.rows} windows that do not meet, a thread each of their {scatter.window} elements."
    return update_calls(emitter, scatter.op, walk.lengths, what)


def _by_share(group: Group, target: Target, scatter: Scatter) -> list[KernelCall]:
    emitter = group.emitter(target)
    numbers = scatter.numbers
    # Windows begin together if they agree in these dimensions.
    telling = [*numbers.scattered_dims_to_operand_dims, *numbers.input_batching_dims]
    beginnings = [scatter.shape[d] for d in telling]
    most = min(math.prod(beginnings), scatter.rows, max(SHARERS // scatter.window, 1))
    shares = 1 << (most.bit_length() - 1)
    walk = grid.axes([shares, *scatter.window_extents] if scatter.window >= 32 else [*scatter.window_extents, shares])
    position = walk.position(emitter, "tid")
    share, inner = (position[0], position[1:]) if scatter.window >= 32 else (position[-1], position[:-1])
    with scatter.each_row(emitter) as (row, base):
        beginning = linearize(tuple(base[d] for d in telling), beginnings)
        with emitter.block(f"if ({beginning % shares} == {share})" if shares > 1 else ""):
            scatter.apply(emitter, base, row, inner)
    what = f"Scatters {scatter.rows} windows of {scatter.window} elements; a thread applies one of {shares} shares."
    return update_calls(emitter, scatter.op, walk.lengths, what)


def _by_element(group: Group, target: Target, scatter: Scatter) -> list[KernelCall]:
    emitter = group.emitter(target)
    walk = grid.axes(scatter.shape)
    element = walk.position(emitter, "tid")
    offset = linearize(element, scatter.shape)
    current = []
    for k, result in enumerate(scatter.op.results):
        emitter.use(result.dtype)
        emitter.line(f"{result.dtype.msl} current{k} = {wrap(f'out{k}[{offset}]', result.dtype)};")
        current.append(Expr(f"current{k}", result.dtype))
    with scatter.each_row(emitter) as (row, base):
        inner: list[Ix] = []
        tests = []
        for d, (at, begin) in enumerate(zip(element, base, strict=True)):
            extent = scatter.extent(d)
            name = emitter.fresh("inner")
            emitter.line(f"const int {name} = {at - begin};")
            tests.append(f"{name} >= 0 && {name} < {extent}")
            if d in scatter.window_operand_dims:
                inner.append(variable(name, extent))
        with emitter.block(f"if ({' && '.join(tests)})"):
            new = scatter.combine(emitter, current, row, tuple(inner))
            assign(emitter, [expr.code for expr in current], new)
    for k, expr in enumerate(current):
        emitter.line(f"out{k}[{offset}] = {expr};")
    what = f"Scatters {scatter.rows} windows; a thread an element of {scatter.shape} applies those that cover it."
    return update_calls(emitter, scatter.op, walk.lengths, what)


DYNAMIC_UPDATE_SLICE = replace(SOFTWARE_SLICE, emit=_emit_dynamic_update_slice)
SCATTER = replace(SOFTWARE_SCATTER, emit=_emit_scatter)
