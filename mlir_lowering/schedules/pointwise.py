"""The pointwise schedule: every output element is computed on its own.

On the software device (pointwise_gpu.py has the GPU's nests) loops that every access walks as one are merged: an
elementwise chain over contiguous arrays becomes one loop whose length is a launch argument, so that the same kernel
serves every shape. Otherwise rows (the outer loops) are dealt to threads and the innermost loop is left for the
compiler to vectorize.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlir_lowering.emit import Emitter
from mlir_lowering.index import ZERO, Index, Ix, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.schedules import pointwise_gpu
from mlir_lowering.schedules.loops import elementwise_call, loop_index, merge_loops, merged_extents, store, unravel
from mlir_lowering.targets import Target

# Elements a software thread computes: long enough that a dispatch costs little, short enough to share out.
STRIP = 16384
# An innermost loop shorter than this is merged with its neighbours although that costs divisions.
SHORT_LOOP = 8


def emit(group: Group, target: Target, prepare: Callable[[Emitter], None] = lambda emitter: None) -> list[KernelCall]:
    """One kernel for outputs that all have one shape.

    `prepare` may bind a head's result: a head whose elements are computed on their own needs no other nest.
    """
    shape = group.outputs[0].shape

    def new_emitter() -> Emitter:
        emitter = group.emitter(target)
        prepare(emitter)
        return emitter

    def visit(index: Index) -> set[Ix]:
        probe = new_emitter()
        for value in group.outputs:
            probe.load(value, index)
        return probe.accesses | {linearize(index, shape)}

    emitter = new_emitter()
    if not target.is_software:
        starts = merge_loops(shape, visit)
        return [pointwise_gpu.emit(group, emitter, starts, merged_extents(shape, starts))]
    if not shape:
        store(emitter, group.outputs, (), ZERO)
        return [elementwise_call(emitter, group, "One thread computes a scalar.", (1, 1, 1), ZERO)]
    starts = merge_loops(shape, visit)
    extents = merged_extents(shape, starts)
    if len(starts) == 1 or extents[-1] < SHORT_LOOP:
        return [_flat(group, emitter, starts, extents)]
    return [_rows(group, emitter, starts, extents)]


def _flat(group: Group, emitter: Emitter, starts: list[int], extents: list[int]) -> KernelCall:
    shape = group.outputs[0].shape
    size = math.prod(shape)
    i = variable("i", size)
    variables = [i] if len(starts) == 1 else delinearize(i, extents)
    emitter.line(f"const int begin = int(tid.x) * {STRIP};")
    emitter.line(f"const int end = min(begin + {STRIP}, n);")
    emitter.line("PJRT_INDEPENDENT")
    with emitter.block("for (int i = begin; i < end; ++i)", trips=min(STRIP, size)):
        store(emitter, group.outputs, loop_index(shape, starts, variables), i)
    comment = f"Pointwise over n elements; thread t computes elements {STRIP}*t up to {STRIP}*(t+1)."
    return elementwise_call(emitter, group, comment, (-(-size // STRIP), 1, 1), i, size)


def _rows(group: Group, emitter: Emitter, starts: list[int], extents: list[int]) -> KernelCall:
    shape = group.outputs[0].shape
    inner = extents[-1]
    rows = math.prod(extents[:-1])
    chunks = -(-inner // STRIP)
    rows_each = max(1, STRIP // inner)
    strips = -(-rows // rows_each)

    emitter.line(f"const int strip = int(tid.x){f' / {chunks}' if chunks > 1 else ''};")
    bounds = f"0; j < {inner}"
    if chunks > 1:
        emitter.line(f"const int begin = int(tid.x) % {chunks} * {STRIP};")
        emitter.line(f"const int end = min(begin + {STRIP}, {inner});")
        bounds = "begin; j < end"
    row_bounds = f"int r = strip * {rows_each}; r < min((strip + 1) * {rows_each}, {rows})"
    with emitter.block(f"for ({row_bounds}; ++r)", trips=rows_each):
        row = unravel(emitter, variable("r", rows), extents[:-1])
        j = variable("j", inner)
        emitter.line("PJRT_INDEPENDENT")
        with emitter.block(f"for (int j = {bounds}; ++j)", trips=min(STRIP, inner)):
            offset = linearize((*row, j), extents)
            store(emitter, group.outputs, loop_index(shape, starts, [*row, j]), offset)
    comment = f"Pointwise over {rows} rows of {inner}: a thread computes {rows_each} rows" + (
        f", {STRIP} elements of each." if chunks > 1 else "."
    )
    return elementwise_call(emitter, group, comment, (strips * chunks, 1, 1), offset)
