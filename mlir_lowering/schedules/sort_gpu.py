"""The sort schedule on a GPU: a stable merge sort of each row's permutation, then the operands in that order.

A thread sorts a short run of positions by insertion; then runs are merged pairwise, one launch a doubling, until a row
is one run. In a merge each thread writes a few neighbouring positions: a binary search finds where its part of both
runs begins. A comparator that is no order (it may say anything of NaNs) gives some order, and never a wrong address.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from mlir_lowering.dtypes import I32, PRED
from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Op, Region, TensorType, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, kernel_call
from mlir_lowering.schedules import grid
from mlir_lowering.schedules.loops import unravel
from mlir_lowering.targets import Target

# Positions that a thread sorts by insertion, and positions that a thread merges (a divisor of it).
RUN = 16
MERGED = 4


def emit(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    sort = _Sort(op, group, target)
    calls, order = sort.permutation()
    return [*calls, sort.gather(order)]


def permutation(keys: Value, target: Target) -> tuple[list[KernelCall], Value]:
    """The calls that sort the numbers `keys` of shape (n,), stably and ascending, and what holds the positions, of
    shape (1, n), when they have run."""
    a, b = (Value(TensorType((), keys.dtype)) for _ in range(2))
    less = Op("stablehlo.compare", [a, b], [TensorType((), PRED)], {"comparison_direction": "LT"})
    region = Region([a, b], [less], [less.result])
    op = Op("stablehlo.sort", [keys], [keys.type], {"dimension": 0}, [region])
    return _Sort(op, Group(op.results, set(), op), target).permutation()


class _Sort:
    def __init__(self, op: Op, group: Group, target: Target) -> None:
        self.op = op
        self.group = group
        self.target = target
        self.shape = op.operands[0].shape
        self.dimension = op.attrs.get("dimension", len(self.shape) - 1) % max(len(self.shape), 1)
        self.n = self.shape[self.dimension]
        self.others = [extent for d, extent in enumerate(self.shape) if d != self.dimension]
        self.rows = math.prod(self.others)

    def permutation(self) -> tuple[list[KernelCall], Value]:
        order = self._permutation()
        calls = [self._runs(order)]
        width = RUN
        while width < self.n:
            merged = self._permutation()
            calls.append(self._merge(order, merged, width))
            order, width = merged, 2 * width
        return calls, order

    def _permutation(self) -> Value:
        return Value(TensorType((self.rows, self.n), I32))

    def _at(self, emitter: Emitter, row: Ix) -> Callable[[Ix], Index]:
        """The operands' index of a position in a row."""
        others = unravel(emitter, row, self.others)
        return lambda position: (*others[: self.dimension], position, *others[self.dimension :])

    def _before(self, emitter: Emitter, at: Callable[[Ix], Index], p: str, q: str) -> str:
        """Whether element p goes strictly before element q."""
        arguments = [
            emitter.load(operand, at(variable(name, self.n))) for operand in self.op.operands for name in (p, q)
        ]
        (before,) = emitter.region(self.op.regions[0], arguments)
        return str(before)

    def _runs(self, order: Value) -> KernelCall:
        """Sorts runs by insertion; a thread each."""
        emitter = self.group.emitter(self.target)
        row = variable("int(tid.y)", self.rows)
        at = self._at(emitter, row)
        emitter.line(f"const int begin = int(tid.x) * {RUN};")
        emitter.line(f"const int length = min({RUN}, {self.n} - begin);")
        emitter.line(f"int order[{RUN}];")
        with emitter.block("for (int i = 0; i < length; ++i)", trips=RUN):
            emitter.line("const int p = begin + i;")
            emitter.line("int j = i;")
            with emitter.block("for (; j > 0; --j)", trips=RUN):
                emitter.line("const int q = order[j - 1];")
                emitter.line(f"if (!{self._before(emitter, at, 'p', 'q')}) break;")
                emitter.line("order[j] = q;")
            emitter.line("order[j] = p;")
        with emitter.block("for (int i = 0; i < length; ++i)", trips=RUN):
            emitter.line(f"out0[{row} * {self.n} + begin + i] = order[i];")
        threads = (-(-self.n // RUN), self.rows, 1)
        what = f"Sorts runs of {RUN} of {self.rows} rows of {self.n} elements, a run a thread."
        return kernel_call(emitter, [order], what, threads)

    def _merge(self, order: Value, merged: Value, width: int) -> KernelCall:
        """Merges pairs of runs of `width`, a few positions a thread."""
        emitter = self.group.emitter(self.target)
        row = variable("int(tid.y)", self.rows)
        at = self._at(emitter, row)
        runs = emitter.input(order)
        emitter.line(f"device const int* from = {runs} + {row} * {self.n};")
        emitter.line(f"const int begin = int(tid.x) * {MERGED};")
        emitter.line("const int low = begin / (2 * width) * (2 * width);")
        emitter.line(f"const int middle = min(low + width, {self.n}), high = min(middle + width, {self.n});")
        emitter.line("const int before = begin - low;")
        # How many of the elements before ours come from the left run: at least `left`, at most `most`.
        emitter.line("int left = max(0, before - (high - middle)), most = min(before, middle - low);")
        with emitter.block("while (left < most)", trips=width.bit_length() + 1):
            emitter.line("const int half_way = (left + most) / 2;")
            emitter.line("const int q = from[low + half_way], p = from[middle + before - half_way - 1];")
            test = self._before(emitter, at, "p", "q")
            emitter.line(f"if ({test}) most = half_way;")
            emitter.line("else left = half_way + 1;")
        emitter.line("int right = middle + before - left;")
        emitter.line("left += low;")
        with emitter.block(f"for (int i = begin; i < min(begin + {MERGED}, high); ++i)", trips=MERGED):
            emitter.line("bool take_right = left >= middle;")
            with emitter.block("if (left < middle && right < high)"):
                emitter.line("const int p = from[right], q = from[left];")
                emitter.line(f"take_right = {self._before(emitter, at, 'p', 'q')};")
            emitter.line(f"out0[{row} * {self.n} + i] = take_right ? from[right++] : from[left++];")
        comment = f"Merges runs of `width` of {self.rows} rows of {self.n}; a thread writes {MERGED} positions."
        threads = (-(-self.n // MERGED), self.rows, 1)
        args = ("constant int& width", struct.pack("<i", width))
        return kernel_call(emitter, [merged], comment, threads, args=args)

    def gather(self, order: Value) -> KernelCall:
        """The operands in order."""
        emitter = self.group.emitter(self.target)
        walk = grid.axes(self.shape)
        index = walk.position(emitter, "tid")
        others = (*index[: self.dimension], *index[self.dimension + 1 :])
        row = linearize(others, self.others)
        source = emitter.load_input(order, row * self.n + index[self.dimension])
        at = (*others[: self.dimension], variable(source.code, self.n), *others[self.dimension :])
        values = [emitter.load(operand, at) for operand in self.op.operands]
        offset = linearize(index, self.shape)
        for number, value in enumerate(values):
            emitter.line(f"out{number}[{offset}] = {value};")
        what = f"Puts {self.rows} rows of {self.n} elements in order."
        return kernel_call(emitter, self.op.results, what, walk.lengths)


def _reads(op: Op, i: int) -> float | None:
    return None


SCHEDULE = ScheduleDef(emit, _reads)
