"""Folds on a GPU: what reductions and thin contractions share, whatever is folded.

Four ways to share an output's elements out among threads, chosen by shape:
- thread: a thread an output, where outputs are plenty or elements few;
- simd: a SIMD group an output, its lanes striding along the innermost folded loop;
- rows: a threadgroup an output: SIMD groups fold their parts, the first one folds those through threadgroup memory;
- tree: WIDTH columns (the innermost kept loop) by HEIGHT threads that share each one's elements, whose partial
  results are folded pairwise in threadgroup memory. It needs no SIMD functions, which MSL has for 32 bits only.
Which thread folds what depends on shapes alone, so results are the same in every run and on every GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from mlir_lowering.emit import Emitter
from mlir_lowering.index import Index, Ix, variable
from mlir_lowering.kernel import Group, KernelCall, kernel_call
from mlir_lowering.schedules import grid
from mlir_lowering.schedules.loops import nested, unravel

# Threads of a threadgroup that folds together.
THREADS = 256
LANES = 32
# Elements of an output up to which a single thread folds them, and up to which a SIMD group does.
THREAD_WORK = 16
SIMD_WORK = 1024
# Outputs that occupy a GPU with a thread each, as long as each folds no more than this.
MANY_OUTPUTS = 1 << 15
MANY_WORK = 64


@dataclass(frozen=True)
class Accumulator:
    """What a thread folds into: one variable, or several that one region folds together.

    `variables`: C names and types. `identity`: the variables' initial texts; None if there is none and a thread starts
    from its first element. `combine(emitter, a, b)` writes lines that fold the values b into the variables a, `a`
    coming first. `simd(text)` is the fold over a SIMD group; None if MSL has none.
    """

    variables: tuple[tuple[str, str], ...]
    identity: tuple[str, ...] | None
    combine: Callable[[Emitter, list[str], list[str]], None]
    simd: Callable[[str], str] | None
    bytes: int

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.variables]


@dataclass
class Fold:
    """A fold to be scheduled. Loops `kept` and `folded`, outer to inner.

    `columns`: neighbours along the innermost kept loop lie together in memory, else those along the innermost folded
    loop do. `elements(kept, folded)` gives each accumulator's element as texts; `finish(kept)` stores the results.
    """

    emitter: Emitter
    group: Group
    what: str
    kept: list[int]
    folded: list[int]
    columns: bool
    accumulators: list[Accumulator]
    elements: Callable[[Index, Index], list[list[str]]]
    finish: Callable[[Index], None]

    @property
    def _size(self) -> int:
        return math.prod(self.folded)

    @property
    def _outputs(self) -> int:
        return math.prod(self.kept)

    def call(self) -> KernelCall:
        has_simd = all(acc.simd is not None for acc in self.accumulators)
        plenty = self._outputs >= MANY_OUTPUTS and self._size <= MANY_WORK
        if self._size <= THREAD_WORK or (plenty and self.columns):
            return self._thread()
        if self.columns:
            columns = self.kept[-1]
            # A power of two, so that the rest of the threadgroup is one too.
            return self._tree(min(LANES, 1 << (columns - 1).bit_length()))
        if not has_simd:
            return self._tree(1)
        return self._simd() if self._size <= SIMD_WORK else self._rows()

    # The four nests.

    def _thread(self) -> KernelCall:
        walk = grid.axes(self.kept)
        kept = walk.position(self.emitter, "tid")
        self._declare()
        loops = [variable(f"k{i}", n) for i, n in enumerate(self.folded)]

        if all(acc.identity is not None for acc in self.accumulators):
            names = [f"k{i}" for i in range(len(self.folded))]
            extents = list(zip(names, self.folded, strict=True))
            nested(self.emitter, extents, lambda: self._step(kept, tuple(loops), None))
        else:
            self._strided(kept, "0", 1)
        self.finish(kept)
        return kernel_call(self.emitter, self.group.outputs, f"{self.what}; a thread an output.", walk.lengths)

    def _simd(self) -> KernelCall:
        emitter, outputs = self.emitter, self._outputs
        each = THREADS // LANES
        emitter.line(f"const int o = int(place.x) * {each} + int(group);")
        if outputs % each:
            emitter.line(f"if (o >= {outputs}) return;")
        kept = unravel(emitter, variable("o", outputs), self.kept)
        self._declare()
        self._strided(kept, "int(lane)", LANES)
        self._fold_simd()
        with emitter.block("if (lane == 0)"):
            self.finish(kept)
        threads = (-(-outputs // each) * THREADS, 1, 1)
        builtins = (grid.PLACE, grid.LANE, grid.SIMD)
        return kernel_call(
            emitter,
            self.group.outputs,
            f"{self.what}; a SIMD group an output.",
            threads,
            per_threadgroup=(THREADS, 1, 1),
            builtins=builtins,
        )

    def _rows(self) -> KernelCall:
        emitter = self.emitter
        simds = THREADS // LANES
        walk = grid.axes(self.kept)
        kept = walk.position(emitter, "place")
        for name, type in self._variables():
            emitter.line(f"threadgroup {type} {name}_parts[{simds}];")
        self._declare()
        self._strided(kept, "int(local.x)", THREADS)
        self._fold_simd()
        with emitter.block("if (lane == 0)"):
            for name, _ in self._variables():
                emitter.line(f"{name}_parts[group] = {name};")
        emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
        with emitter.block("if (group == 0)"):
            for acc in self.accumulators:
                assert acc.identity is not None
                for name, identity in zip(acc.names, acc.identity, strict=True):
                    emitter.line(f"{name} = {identity};")
                    emitter.line(f"if (lane < {simds}) {name} = {name}_parts[lane];")
            self._fold_simd()
            with emitter.block("if (lane == 0)"):
                self.finish(kept)
        x, y, z = walk.lengths
        builtins = (grid.PLACE, grid.LOCAL, grid.LANE, grid.SIMD)
        what = f"{self.what}; {THREADS} threads an output."
        threads = (x * THREADS, y, z)
        return kernel_call(
            emitter, self.group.outputs, what, threads, per_threadgroup=(THREADS, 1, 1), builtins=builtins
        )

    def _tree(self, width: int) -> KernelCall:
        emitter = self.emitter
        room = grid.THREADGROUP_BYTES // sum(acc.bytes for acc in self.accumulators)
        height = max(1, min(THREADS // width, _power_below(self._size), _power_below(room // width)))
        kept = list(self.kept) if self.columns else [*self.kept, 1]
        columns = kept[-1]
        walk = grid.columns(kept)
        emitter.line(f"const int c = int(place.x) * {width} + int(local.x);")
        position = walk.position(emitter, "place", x="c")
        for name, type in self._variables():
            emitter.line(f"threadgroup {type} {name}_parts[{width * height}];")
        self._declare()
        # Threads past the last column take part in barriers, and in nothing else.
        inside = [f"c < {columns}"] if columns % width else []
        at = f"local.y * {width} + local.x"
        own = position if self.columns else position[:-1]
        with emitter.block(f"if ({inside[0]})" if inside else ""):
            self._strided(own, "int(local.y)", height)
            for name, _ in self._variables():
                emitter.line(f"{name}_parts[{at}] = {name};")
        with emitter.block(f"for (uint half_height = {height // 2}; half_height > 0; half_height /= 2)"):
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            with emitter.block(f"if ({' && '.join(['local.y < half_height', *inside])})"):
                for acc in self.accumulators:
                    there = [f"{name}_parts[{at} + half_height * {width}]" for name in acc.names]
                    acc.combine(emitter, acc.names, there)
                    for name in acc.names:
                        emitter.line(f"{name}_parts[{at}] = {name};")
        with emitter.block(f"if ({' && '.join(['local.y == 0', *inside])})"):
            self.finish(own)
        x, y, z = walk.lengths
        threads = (-(-x // width) * width, y * height, z)
        what = f"{self.what}; {height} threads share each of {width} columns."
        builtins = (grid.PLACE, grid.LOCAL)
        return kernel_call(
            emitter, self.group.outputs, what, threads, per_threadgroup=(width, height, 1), builtins=builtins
        )

    # Parts.

    def _variables(self) -> list[tuple[str, str]]:
        return [pair for acc in self.accumulators for pair in acc.variables]

    def _declare(self) -> None:
        for acc in self.accumulators:
            for i, (name, type) in enumerate(acc.variables):
                self.emitter.line(f"{type} {name} = {type}({acc.identity[i] if acc.identity else ''});")

    def _fold_simd(self) -> None:
        for acc in self.accumulators:
            assert acc.simd is not None
            for name in acc.names:
                self.emitter.line(f"{name} = {acc.simd(name)};")

    def _step(self, kept: Index, folded: Index, first: str | None) -> None:
        """Folds one element in; `first` is the condition of the thread's first one."""
        emitter = self.emitter
        for acc, element in zip(self.accumulators, self.elements(kept, folded), strict=True):
            if acc.identity is not None:
                acc.combine(emitter, acc.names, element)
                continue
            with emitter.block(f"if ({first})"):
                for name, text in zip(acc.names, element, strict=True):
                    emitter.line(f"{name} = {text};")
            with emitter.block("else"):
                acc.combine(emitter, acc.names, element)

    def _strided(self, kept: Index, number: str, threads: int) -> None:
        """Folds the elements of thread `number` of `threads`: every so many along one loop, if one is long enough,
        else along all of them as one."""
        emitter, folded = self.emitter, self.folded
        lengths = [n for n in folded if n >= threads]
        has_identity = all(acc.identity is not None for acc in self.accumulators)
        along = None
        if has_identity and lengths and (self.columns or folded[-1] >= threads):
            along = folded.index(max(lengths)) if self.columns else len(folded) - 1
        if along is None:
            with emitter.block(f"for (int f = {number}; f < {self._size}; f += {threads})"):
                loops = unravel(emitter, variable("f", self._size), folded)
                self._step(kept, loops, f"f == {number}")
            return

        def nest(depth: int, loops: tuple[Ix, ...]) -> None:
            if depth == len(folded):
                self._step(kept, loops, None)
                return
            name = f"k{depth}"
            start, step = (number, f"{name} += {threads}") if depth == along else ("0", f"++{name}")
            with emitter.block(f"for (int {name} = {start}; {name} < {folded[depth]}; {step})"):
                nest(depth + 1, (*loops, variable(name, folded[depth])))

        nest(0, ())


def _power_below(n: int) -> int:
    """The largest power of two that is at most n."""
    return 1 << max(n.bit_length() - 1, 0)
