"""Contractions too small or too thin for packed tiles, on the software device: each output is a
plain sum.

Two nests: where neighbouring outputs read neighbouring elements, a strip of them is accumulated
together, one step of k after another; else each output is a dot product whose partial sums fill a
vector.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mlir_lowering.emit import Expr
from mlir_lowering.index import Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, kernel_call
from mlir_lowering.schedules.contraction import (
    Access,
    Contraction,
    Nest,
    conditions,
    element,
    finished,
    probe,
)
from mlir_lowering.schedules.loops import nested, store, unravel
from mlir_lowering.targets import Target

# Multiply-adds below which packing costs more than it saves.
SMALL_WORK = 20_000
# Multiply-adds a thread should have: some 20 microseconds of work.
TASK_WORK = 1 << 16
# Most outputs accumulated together.
STRIP = 256


def is_direct(contraction: Contraction) -> bool:
    rows, columns = math.prod(contraction.rows), math.prod(contraction.columns)
    batch, folded = math.prod(contraction.batch), math.prod(contraction.folded)
    return (
        batch * rows * columns * folded <= SMALL_WORK
        or rows == 1
        or columns == 1
        or folded <= 2
        or (batch > 1 and columns <= 2)
    )


def emit(nest: Nest, group: Group, target: Target) -> KernelCall:
    return _Direct(nest, group, target).call()


class _Direct:
    def __init__(self, nest: Nest, group: Group, target: Target) -> None:
        self.nest = nest
        self.group = group
        self.emitter = group.emitter(target)
        self.dtype = nest.contraction.accumulator
        self.emitter.use(self.dtype)
        b, m, n = (
            nest.batch.variables("b"),
            nest.rows.variables("m"),
            nest.columns.variables("n"),
        )
        self.k = nest.folded.variables("k")
        self.extents = [*nest.batch.extents, *nest.rows.extents, *nest.columns.extents]
        self.names = [f"{s}{i}" for s, v in (("b", b), ("m", m), ("n", n)) for i in range(len(v))]
        self.parts = (len(b), len(b) + len(m))
        self.shape = nest.contraction.op.result.shape
        self.offset = linearize(nest.result(b, m, n), self.shape)
        self.a_reads, self.b_reads, _ = probe(nest, group, target, (b, m, self.k, n))
        self.along = self._strip_loop()

    def _unit(self, name: str) -> tuple[bool, bool]:
        """Whether some input is read in steps of one along a loop, and whether some is in other
        steps."""
        steps = {
            offset.coefficient(name)
            for reads in (self.a_reads.reads, self.b_reads.reads)
            for offsets in reads.values()
            for offset in offsets
        }
        return 1 in steps, bool(steps - {0, 1})

    def _strip_loop(self) -> int | None:
        """Which output loop is accumulated as a strip; None for dot products."""
        found = next((i for i, name in enumerate(self.names) if self.offset.coefficient(name) == 1), None)
        if found is None:
            return None
        unit, strided = self._unit(self.names[found])
        if strided and self.k:
            k_unit, k_strided = self._unit(f"k{len(self.k) - 1}")
            if k_unit and not k_strided:
                return None
            return found if unit or not k_unit else None
        return found

    def call(self) -> KernelCall:
        along = self.along
        folded = max(self.nest.folded.size, 1)
        others = [n for i, n in enumerate(self.extents) if i != along]
        outer = math.prod(others)
        strip = strips = 1
        if along is not None:
            extent = self.extents[along]
            # A long strip is cut so that threads have something to share.
            share = extent if outer * extent * folded <= TASK_WORK else max(64, extent // 8)
            strip = min(extent, STRIP, -(-share // 64) * 64)
            strips = -(-extent // strip)
        each = max(1, min(outer, TASK_WORK // (folded * strip)))
        threads = -(-outer // each) * strips

        emitter = self.emitter
        emitter.line(f"const int strip = int(tid.x) % {strips};")
        emitter.line(f"const int first = int(tid.x) / {strips} * {each};")
        with emitter.block(f"for (int o = first; o < min(first + {each}, {outer}); ++o)", trips=each):
            position = list(unravel(emitter, variable("o", outer), others))
            if along is None:
                self._dot(position)
            else:
                self._strip(position, along, strip)
        comment = f"{self.nest.contraction.op.signature()}: {each} times {strip} sums a thread."
        return kernel_call(emitter, self.group.outputs, comment, (threads, 1, 1))

    def _split(self, position: list[Ix]) -> tuple[list[Ix], list[Ix], list[Ix]]:
        first, second = self.parts
        return position[:first], position[first:second], position[second:]

    def _accesses(self, position: list[Ix]) -> tuple[Access, Access]:
        b, m, n = self._split(position)
        return self.nest.a(b, m, self.k), self.nest.b(b, self.k, n)

    def _over_k(self, body: Callable[[], None], pragma: str = "") -> None:
        loops = [(f"k{depth}", extent) for depth, extent in enumerate(self.nest.folded.extents)]
        nested(self.emitter, loops, body, pragma)

    def _store(self, position: list[Ix], total: str) -> None:
        finished(self.emitter, self.nest, total)
        index = self.nest.result(*self._split(position))
        store(self.emitter, self.group.outputs, index, linearize(index, self.shape))

    def _sum(self, total: str, x: Expr, y: Expr) -> str:
        """total + x * y; floats in one instruction, which compilers make only where they are asked for it."""
        return f"software::madd({x}, {y}, {total})" if self.dtype.is_float else f"{total} + {x} * {y}"

    def _dot(self, position: list[Ix]) -> None:
        emitter = self.emitter
        emitter.line(f"{self.dtype.msl} total = 0;")
        a, b = self._accesses(position)

        def body() -> None:
            x = element(emitter, a, self.dtype, conditions(emitter, a.tests)[0])
            y = element(emitter, b, self.dtype, conditions(emitter, b.tests)[0])
            emitter.line(f"total = {self._sum('total', x, y)};")

        self._over_k(body, "PJRT_SIMD(reduction(+:total))")
        self._store(position, "total")

    def _strip(self, position: list[Ix], along: int, strip: int) -> None:
        emitter = self.emitter
        extent = self.extents[along]
        name = self.names[along]
        position = [*position[:along], variable(name, extent), *position[along:]]
        whole = extent % strip == 0
        last = f"begin + {strip}" if whole else f"min(begin + {strip}, {extent})"
        loop = f"for (int {name} = begin; {name} < {last}; ++{name})"
        emitter.line(f"const int begin = strip * {strip};")
        emitter.line(f"{self.dtype.msl} total[{strip}];")
        emitter.line(f"for (int j = 0; j < {strip}; ++j) total[j] = 0;")
        a, b = self._accesses(position)

        def body() -> None:
            outside, inside = conditions(emitter, a.taps, (name,))
            with emitter.block(f"if ({' && '.join(outside)})" if outside else ""):
                self._add_products(a, b, name, loop, strip, inside)

        self._over_k(body)
        emitter.line("PJRT_INDEPENDENT")
        with emitter.block(loop, trips=strip):
            self._store(position, f"total[{name} - begin]")

    def _add_products(self, a: Access, b: Access, name: str, loop: str, strip: int, taps: list[str]) -> None:
        """The terms of one k, for all of a strip. `taps`: tests that depend on the place in it."""
        emitter = self.emitter
        outside, inside = conditions(emitter, a.padding, (name,))

        def factor(access: Access, tests: list[str]) -> Callable[[], Expr]:
            # What does not depend on the strip is evaluated once for all of it.
            if any(test in (*taps, *inside) for test in tests) or any(ix.mentions(name) for ix in access.index):
                return lambda: element(emitter, access, self.dtype, tests)
            once = element(emitter, access, self.dtype, tests)
            return lambda: once

        def add(x: Callable[[], Expr], y: Callable[[], Expr]) -> None:
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block(loop, trips=strip):
                total = f"total[{name} - begin]"
                emitter.line(f"{total} = {self._sum(total, x(), y())};")

        weight = factor(b, taps)
        if not outside or not any(ix.mentions(name) for ix in a.index):
            add(factor(a, [*outside, *taps, *inside]), weight)
            return
        with emitter.block(f"if ({' && '.join(outside)})"):
            add(factor(a, [*taps, *inside]), weight)
        if self.dtype.is_float:  # padding: zeros, which infinite weights make NaN
            with emitter.block("else"):
                add(lambda: emitter.constant(0, self.dtype), weight)


def reads(contraction: Contraction, i: int) -> float:
    """How often an element of operand `i` is evaluated: once for every output that takes it."""
    other = contraction.columns if i == 0 else contraction.rows
    return float(math.prod(other))
