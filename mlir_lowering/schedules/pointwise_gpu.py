"""The pointwise schedule on a GPU: a thread an element, or a few elements that lie next to one another.

An elementwise chain over contiguous arrays is one loop whose length is a launch argument, so that every shape shares
the kernel. Other nests walk up to three grid axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Value
from mlir_lowering.index import ZERO, Index, Ix, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.schedules import grid
from mlir_lowering.schedules.loops import elementwise_call, loop_index, store

# Neighbours that one thread computes: with f32, 16 bytes, the widest access of a thread.
VECTOR = 4
# Elements from which on vectors pay: below, more threads are worth more than fewer instructions.
VECTOR_SIZE = 1 << 16


def emit(group: Group, emitter: Emitter, starts: list[int], extents: list[int]) -> KernelCall:
    """The kernel for loops `extents` over the outputs' shape, merged as `starts` says; `emitter` is empty."""
    shape = group.outputs[0].shape
    if not shape:
        store(emitter, group.outputs, (), ZERO)
        return elementwise_call(emitter, group, "One thread computes a scalar.", (1, 1, 1), ZERO)
    walk = grid.axes(extents)
    # What a head binds has loops of its own, which several elements would only prolong.
    vectors = group.head is None and extents[-1] % VECTOR == 0 and math.prod(shape) >= VECTOR_SIZE
    if walk.lengths[1:] == (1, 1):
        return _flat(group, emitter, starts, extents, vectors)
    x, y, z = walk.lengths
    if not vectors:
        position = walk.position(emitter, "tid")
        offset = linearize(position, extents)
        store(emitter, group.outputs, loop_index(shape, starts, position), offset)
        return elementwise_call(
            emitter, group, f"Pointwise over {x} by {y} by {z}, a thread an element.", (x, y, z), offset
        )
    emitter.line(f"const int first = int(tid.x) * {VECTOR};")
    position = (*walk.position(emitter, "tid")[:-1], variable("i", extents[-1]))
    offset = linearize(position, extents)
    _several(emitter, group.outputs, loop_index(shape, starts, position), offset)
    comment = f"Pointwise over {x} by {y} by {z}; a thread computes {VECTOR} neighbours."
    return elementwise_call(emitter, group, comment, (x // VECTOR, y, z), offset)


def _flat(group: Group, emitter: Emitter, starts: Sequence[int], extents: Sequence[int], vectors: bool) -> KernelCall:
    """One loop over all elements."""
    shape = group.outputs[0].shape
    size = math.prod(shape)
    i = variable("i", size)
    variables = [i] if len(starts) == 1 else delinearize(i, extents)
    index = loop_index(shape, starts, variables)
    step = VECTOR if vectors else 1
    emitter.line(f"const int {'first' if vectors else 'i'} = int(tid.x){f' * {VECTOR}' if vectors else ''};")
    emitter.line(f"if ({'first' if vectors else 'i'} >= n) return;")
    if vectors:
        _several(emitter, group.outputs, index, i)
    else:
        store(emitter, group.outputs, index, i)
    comment = f"Pointwise over n elements, {step} a thread."
    return elementwise_call(emitter, group, comment, (size // step, 1, 1), i, size)


def _several(emitter: Emitter, values: Sequence[Value], index: Index, offset: Ix) -> None:
    """Computes the elements at i = first up to first + VECTOR, then writes them: outputs may share memory with
    inputs."""

    def over(body: Callable[[], None]) -> None:
        with emitter.block(f"for (int i = first; i < first + {VECTOR}; ++i)", trips=VECTOR):
            body()

    def compute() -> None:
        for number, expr in enumerate([emitter.load(value, index) for value in values]):
            emitter.line(f"result{number}[i - first] = {expr};")

    def write() -> None:
        for number in range(len(values)):
            emitter.line(f"out{number}[{offset}] = result{number}[i - first];")

    for number, value in enumerate(values):
        emitter.use(value.dtype)
        emitter.line(f"{value.dtype.msl} result{number}[{VECTOR}];")
    over(compute)
    over(write)
