"""The sort schedule: a stable merge sort of each row's permutation, then the operands in that order.

A thread sorts whole rows (a row: all positions along the sorted dimension). The permutation lives in a temporary
of two halves, between which the merge passes go back and forth.
"""

from __future__ import annotations

import math

from mlir_lowering.dtypes import I32
from mlir_lowering.graph import Op, TensorType, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, kernel_call
from mlir_lowering.schedules.loops import unravel
from mlir_lowering.targets import Target


def emit(group: Group, target: Target) -> list[KernelCall]:
    """One kernel: a thread a row."""
    op = group.head
    assert op is not None
    shape = op.operands[0].shape
    dimension = op.attrs.get("dimension", len(shape) - 1) % max(len(shape), 1)
    n = shape[dimension]
    others = [extent for d, extent in enumerate(shape) if d != dimension]
    rows = math.prod(others)
    permutation = Value(TensorType((rows, 2, n), I32))

    emitter = group.emitter(target)
    row = unravel(emitter, variable("int(tid.x)", rows), others)

    def at(position: Ix) -> Index:
        return (*row[:dimension], position, *row[dimension:])

    emitter.line(f"device int* from = out{len(op.results)} + int(tid.x) * {2 * n};")
    emitter.line(f"device int* to = from + {n};")
    emitter.line(f"for (int i = 0; i < {n}; ++i) from[i] = i;")
    with emitter.block(f"for (int width = 1; width < {n}; width *= 2)"):
        # Of a width, the runs' loops walk the row once.
        with emitter.block(f"for (int low = 0; low < {n}; low += 2 * width)", trips=1):
            emitter.line(f"const int middle = min(low + width, {n}), high = min(middle + width, {n});")
            emitter.line("int left = low, right = middle;")
            with emitter.block("for (int i = low; i < high; ++i)", trips=n):
                emitter.line("bool take_right = left >= middle;")
                with emitter.block("if (left < middle && right < high)"):
                    # Stable: the right element goes first only if it compares strictly before the left.
                    emitter.line("const int p = from[right], q = from[left];")
                    arguments = [
                        emitter.load(operand, at(variable(name, n))) for operand in op.operands for name in ("p", "q")
                    ]
                    (before,) = emitter.region(op.regions[0], arguments)
                    emitter.line(f"take_right = {before};")
                emitter.line("to[i] = take_right ? from[right++] : from[left++];")
        emitter.line("device int* other = from;")
        emitter.line("from = to;")
        emitter.line("to = other;")
    with emitter.block(f"for (int i = 0; i < {n}; ++i)"):
        emitter.line("const int s = from[i];")
        values = [emitter.load(operand, at(variable("s", n))) for operand in op.operands]
        offset = linearize(at(variable("i", n)), shape)
        for number, value in enumerate(values):
            emitter.line(f"out{number}[{offset}] = {value};")
    comment = f"Sorts {rows} rows of {n} elements, one a thread."
    return [kernel_call(emitter, [*op.results, permutation], comment, (rows, 1, 1))]


def _reads(op: Op, i: int) -> float | None:
    return None


SCHEDULE = ScheduleDef(emit, _reads)
