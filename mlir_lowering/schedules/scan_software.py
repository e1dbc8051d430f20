"""Scans on the software device (see scan.py for what a scan is).

A thread has strips of neighbouring sequences, whose loop is vectorized, or, of sequences that
lie along the innermost dimension, a few blocks:

    sequence  | run | run | ... LANES runs make a chunk | run | ...     the runs of a chunk are scanned side by side,
              |<- chunk ------------------------------->|               then what came before each is folded into it

Where sequences are few, each is cut into at most BLOCKS blocks. A first launch folds every block; the second scans
a block from the fold of those before it. Blocks, chunks and runs depend on the shape alone, so results do not depend
on the number of threads; and no sum is longer than a run, a few lanes, a block's chunks and the blocks, so a long
f32 sum keeps its digits.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Value
from mlir_lowering.index import Index, Ix, constant, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, kernel_call
from mlir_lowering.schedules.loops import unravel
from mlir_lowering.schedules.scan import BLOCKS, Nests, Scan, blocks_of
from mlir_lowering.targets import Target

# Runs that are scanned side by side: a vector of f32 on the widest CPU.
LANES = 16
# Most elements of a run, and of what a strip adds up before it starts anew: a sum's error grows with its length.
RUN = 64
STRIP_RUN = 256
# Columns of a strip: 1 KiB of f32 each for the few arrays of a thread.
STRIP = 256
# Sequences (inside the scanned dimension) from which on strips of neighbours are scanned together.
NEIGHBOURS = 16
# Sequences up to this long are scanned side by side even if they lie along the innermost dimension.
SHORT = 128
# Threads that need no blocks, and the least elements of one.
THREADS = 16
WORK = 16384


def _numbered(emitter: Emitter, name: str, each: int, count: int) -> AbstractContextManager[None]:
    """A thread's numbers, `each` neighbours of `count`, one after the other as `name`."""
    if each == 1:
        emitter.line(f"const int {name} = int(tid.x);")
        return nullcontext()
    bounds = f"int {name} = int(tid.x) * {each}; {name} < min((int(tid.x) + 1) * {each}, {count})"
    return emitter.block(f"for ({bounds}; ++{name})", trips=each)


class _Strips:
    """Strips of neighbouring sequences: one position after another, all of the strip at each."""

    def __init__(self, scan: Scan, group: Group, target: Target) -> None:
        self.scan, self.group, self.target = scan, group, target
        # Sequences are (outer, inner); short ones inside few neighbours are numbered through.
        self.through = scan.inner < NEIGHBOURS
        self.outer, self.inner = (1, scan.outer * scan.inner) if self.through else (scan.outer, scan.inner)
        self.strip = min(self.inner, LANES if self.through else STRIP)
        self.strips = -(-self.inner // self.strip)
        threads = self.outer * self.strips
        wanted = 1 if threads >= THREADS else min(BLOCKS, scan.n * self.strip // WORK)
        self.blocks, self.length = blocks_of(scan.n, STRIP_RUN, wanted) if wanted > 1 else (1, scan.n)
        # Threads that have little to do take several strips.
        self.each = max(1, WORK // (self.strip * self.length)) if self.blocks == 1 else 1
        self._runs = -(-self.length // STRIP_RUN)

    def calls(self) -> list[KernelCall]:
        if self.blocks == 1:
            return [self._scan([])]
        totals = self.scan.totals((self.outer, self.blocks, self.inner))
        return [self._totals(totals), self._scan(totals)]

    def _open(self, emitter: Emitter, blocks: int) -> tuple[Ix, Ix, Ix]:
        """The outer index, the block and the first column of the strip numbered `strip`; declares `columns`."""
        number = variable("strip", self.outer * blocks * self.strips)
        outer, block, strip = unravel(emitter, number, (self.outer, blocks, self.strips))
        first = strip * self.strip
        rest = self.inner % self.strip
        emitter.line(f"const int columns = {f'min({self.strip}, {self.inner} - {first})' if rest else self.strip};")
        emitter.line(f"const int begin = {block * self.length};")
        emitter.line(f"const int end = min(begin + {self.length}, {self.scan.n});")
        return outer, block, first

    def _index(self, emitter: Emitter, outer: Ix, position: Ix, first: Ix) -> Index:
        column = first + variable("j", self.strip)
        if not self.through:
            return self.scan.index(emitter, outer, position, column)
        o, c = unravel(emitter, variable(str(column), self.inner), (self.scan.outer, self.scan.inner))
        return self.scan.index(emitter, o, position, c)

    def _columns(self, emitter: Emitter) -> AbstractContextManager[None]:
        emitter.line("PJRT_INDEPENDENT")
        return emitter.block("for (int j = 0; j < columns; ++j)", trips=self.strip)

    def _totals(self, totals: list[Value]) -> KernelCall:
        """The fold of each block but the last."""
        scan, emitter = self.scan, self.group.emitter(self.target)
        blocks = self.blocks - 1
        emitter.line("const int strip = int(tid.x);")
        outer, block, first = self._open(emitter, blocks)
        sums = scan.variables(emitter, "sum", self.strip)
        parts = scan.variables(emitter, "part", self.strip)
        with emitter.block(f"for (int run = begin; run < end; run += {STRIP_RUN})", trips=self._runs):
            self._run(emitter, outer, first, parts, None)
            self._advance(emitter, sums, parts)
        with self._columns(emitter):
            at = linearize((outer, block, first + variable("j", self.strip)), (self.outer, self.blocks, self.inner))
            for k, name in enumerate(sums):
                emitter.line(f"out{k}[{at}] = {name}[j];")
        comment = f"{scan.what}: folds {blocks} blocks of {self.length}; a thread takes {self.strip} columns of one."
        return kernel_call(emitter, totals, comment, (self.outer * blocks * self.strips, 1, 1))

    def _advance(self, emitter: Emitter, sums: list[str], parts: list[str]) -> None:
        """Folds a run's parts into the block's sums."""
        scan = self.scan
        with emitter.block("if (run == begin)"), self._columns(emitter):
            scan.assign(emitter, sums, scan.exprs(parts, "[j]"), "[j]")
        with emitter.block("else"), self._columns(emitter):
            folded = scan.fold(emitter, scan.exprs(sums, "[j]"), scan.exprs(parts, "[j]"))
            scan.assign(emitter, sums, folded, "[j]")

    def _run(self, emitter: Emitter, outer: Ix, first: Ix, parts: list[str], carry: list[str] | None) -> None:
        """Scans a run of positions from its own first element into `parts`; with `carry` what came before is folded in
        and the results are stored."""
        scan = self.scan

        def step(position: Ix, fresh: bool) -> None:
            with self._columns(emitter):
                index = self._index(emitter, outer, position, first)
                values = scan.elements(emitter, index)
                if not fresh:
                    values = scan.fold(emitter, scan.exprs(parts, "[j]"), values)
                scan.assign(emitter, parts, values, "[j]")
                if carry is not None:
                    folded = scan.fold(emitter, scan.exprs(carry, "[j]"), scan.exprs(parts, "[j]"))
                    scan.store(emitter, self.group, folded, index)

        step(variable("run", scan.n), True)
        with emitter.block(f"for (int p = run + 1; p < min(run + {STRIP_RUN}, end); ++p)", trips=STRIP_RUN):
            step(variable("p", scan.n), False)

    def _scan(self, totals: list[Value]) -> KernelCall:
        scan, emitter = self.scan, self.group.emitter(self.target)
        strips = self.outer * self.blocks * self.strips
        with _numbered(emitter, "strip", self.each, strips):
            self._strip(emitter, totals)
        comment = f"{scan.what}: a thread takes {self.each} strips of {self.strip} columns by {self.length}."
        return kernel_call(emitter, self.group.outputs, comment, (-(-strips // self.each), 1, 1))

    def _strip(self, emitter: Emitter, totals: list[Value]) -> None:
        scan = self.scan
        outer, block, first = self._open(emitter, self.blocks)
        carry = scan.variables(emitter, "carry", self.strip)
        start = scan.start(emitter)
        with self._columns(emitter):
            scan.assign(emitter, carry, start, "[j]")
        if totals:
            earlier = f"for (int before = 0; before < {block}; ++before)"
            with emitter.block(earlier, trips=self.blocks), self._columns(emitter):
                at = (outer, variable("before", self.blocks), first + variable("j", self.strip))
                found = [emitter.load(total, at) for total in totals]
                scan.assign(emitter, carry, scan.fold(emitter, scan.exprs(carry, "[j]"), found), "[j]")
        if scan.n <= STRIP_RUN:
            with emitter.block("for (int p = begin; p < end; ++p)", trips=self.length), self._columns(emitter):
                index = self._index(emitter, outer, variable("p", scan.n), first)
                folded = scan.fold(emitter, scan.exprs(carry, "[j]"), scan.elements(emitter, index))
                scan.assign(emitter, carry, folded, "[j]")
                scan.store(emitter, self.group, scan.exprs(carry, "[j]"), index)
            return
        # What came before the block and what it has so far are kept apart: see Scan.advance.
        base, sums, parts = (scan.variables(emitter, stem, self.strip) for stem in ("base", "sum", "part"))
        with self._columns(emitter):
            scan.assign(emitter, base, scan.exprs(carry, "[j]"), "[j]")
        with emitter.block(f"for (int run = begin; run < end; run += {STRIP_RUN})", trips=self._runs):
            self._run(emitter, outer, first, parts, carry)
            self._advance(emitter, sums, parts)
            with self._columns(emitter):
                folded = scan.fold(emitter, scan.exprs(base, "[j]"), scan.exprs(sums, "[j]"))
                scan.assign(emitter, carry, folded, "[j]")


class _Rows:
    """Long sequences along the innermost dimension (or among few neighbours): a thread scans blocks of one."""

    def __init__(self, scan: Scan, group: Group, target: Target) -> None:
        self.scan, self.group, self.target = scan, group, target
        self.rows = scan.outer * scan.inner
        self.run = max(8, min(RUN, 1 << (scan.n // LANES).bit_length() - 1))
        self.chunk = LANES * self.run
        wanted = 1 if self.rows >= THREADS else min(BLOCKS, scan.n // WORK)
        self.blocks, self.length = blocks_of(scan.n, self.chunk, wanted) if wanted > 1 else (1, scan.n)
        self.each = max(1, WORK // scan.n) if self.blocks == 1 else 1
        self._chunks = -(-self.length // self.chunk)

    def calls(self) -> list[KernelCall]:
        if self.blocks == 1:
            return [self._scan([])]
        totals = self.scan.totals((self.rows, self.blocks))
        return [self._totals(totals), self._scan(totals)]

    def _open(self, emitter: Emitter, blocks: int) -> tuple[Ix, Ix]:
        """The row and block of the part numbered `part`."""
        row, block = unravel(emitter, variable("part", self.rows * blocks), (self.rows, blocks))
        emitter.line(f"const int begin = {block * self.length};")
        emitter.line(f"const int end = min(begin + {self.length}, {self.scan.n});")
        return row, block

    def _index(self, emitter: Emitter, row: Ix, position: Ix) -> Index:
        outer, inner = unravel(emitter, row, (self.scan.outer, self.scan.inner))
        return self.scan.index(emitter, outer, position, inner)

    def _lanes(self, emitter: Emitter) -> AbstractContextManager[None]:
        emitter.line("PJRT_INDEPENDENT")
        return emitter.block(f"for (int j = 0; j < {LANES}; ++j)")

    def _position(self, step: Ix) -> Ix:
        return variable("first", self.scan.n) + variable("j", LANES) * self.run + step

    def _totals(self, totals: list[Value]) -> KernelCall:
        """The fold of each block but the last, which is not read. A block before the last one has whole chunks."""
        scan, emitter = self.scan, self.group.emitter(self.target)
        blocks = self.blocks - 1
        emitter.line("const int part = int(tid.x);")
        row, block = self._open(emitter, blocks)
        sums = scan.variables(emitter, "sum")
        lanes = scan.variables(emitter, "lane", LANES)
        with emitter.block(f"for (int first = begin; first < end; first += {self.chunk})", trips=self._chunks):
            with self._lanes(emitter):
                values = scan.elements(emitter, self._index(emitter, row, self._position(constant(0))))
                scan.assign(emitter, lanes, values, "[j]")
            with emitter.block(f"for (int i = 1; i < {self.run}; ++i)"), self._lanes(emitter):
                values = scan.elements(emitter, self._index(emitter, row, self._position(variable("i", self.run))))
                scan.assign(emitter, lanes, scan.fold(emitter, scan.exprs(lanes, "[j]"), values), "[j]")
            parts = scan.variables(emitter, "part_sum")
            scan.assign(emitter, parts, scan.exprs(lanes, "[0]"))
            with emitter.block(f"for (int j = 1; j < {LANES}; ++j)"):
                scan.assign(emitter, parts, scan.fold(emitter, scan.exprs(parts), scan.exprs(lanes, "[j]")))
            scan.advance(emitter, sums, scan.exprs(parts), "first == begin", None)
        at = linearize((row, block), (self.rows, self.blocks))
        for k, name in enumerate(sums):
            emitter.line(f"out{k}[{at}] = {name};")
        comment = f"{scan.what}: folds {blocks} blocks of {self.length}, one a thread."
        return kernel_call(emitter, totals, comment, (self.rows * blocks, 1, 1))

    def _scan(self, totals: list[Value]) -> KernelCall:
        scan, emitter = self.scan, self.group.emitter(self.target)
        parts = self.rows * self.blocks
        with _numbered(emitter, "part", self.each, parts):
            self._part(emitter, totals)
        comment = f"{scan.what}: a thread takes {self.each} blocks of {self.length}, by {LANES} runs of {self.run}."
        return kernel_call(emitter, self.group.outputs, comment, (-(-parts // self.each), 1, 1))

    def _part(self, emitter: Emitter, totals: list[Value]) -> None:
        scan = self.scan
        row, block = self._open(emitter, self.blocks)
        base, carry, inside = (scan.variables(emitter, stem) for stem in ("base", "carry", "inside"))
        scan.assign(emitter, base, scan.start(emitter))
        if totals:
            scan.fold_before(emitter, base, totals, str(block), (row, constant(0)))
        scan.assign(emitter, carry, scan.exprs(base))
        emitter.line("int first = begin;")
        with emitter.block(f"for (; first + {self.chunk} <= end; first += {self.chunk})", trips=self._chunks):
            chunk = self._chunk(emitter, row, carry)
            scan.advance(emitter, inside, scan.exprs(chunk), "first == begin", (carry, base))
        # The rest of the last block, one after another from nothing: its sum is as short as a chunk's.
        with emitter.block("if (first < end)"):
            rest = scan.variables(emitter, "rest")
            with emitter.block("for (int p = first; p < end; ++p)", trips=self.chunk):
                index = self._index(emitter, row, variable("p", scan.n))
                values = scan.elements(emitter, index)
                with emitter.block("if (p == first)"):
                    scan.assign(emitter, rest, values)
                with emitter.block("else"):
                    scan.assign(emitter, rest, scan.fold(emitter, scan.exprs(rest), values))
                folded = scan.fold(emitter, scan.exprs(carry), scan.exprs(rest))
                scan.store(emitter, self.group, folded, index)

    def _chunk(self, emitter: Emitter, row: Ix, carry: list[str]) -> list[str]:
        """LANES runs side by side: each is scanned from its first element, then what came before is folded in. The
        variables that hold the chunk's own fold."""
        scan = self.scan
        local = scan.variables(emitter, "local", self.chunk)
        with self._lanes(emitter):
            values = scan.elements(emitter, self._index(emitter, row, self._position(constant(0))))
            scan.assign(emitter, local, values, "[j]")
        with emitter.block(f"for (int i = 1; i < {self.run}; ++i)"), self._lanes(emitter):
            values = scan.elements(emitter, self._index(emitter, row, self._position(variable("i", self.run))))
            folded = scan.fold(emitter, scan.exprs(local, f"[i * {LANES} + j - {LANES}]"), values)
            scan.assign(emitter, local, folded, f"[i * {LANES} + j]")
        before = scan.variables(emitter, "before", LANES)
        chunk = scan.variables(emitter, "chunk")
        last = (self.run - 1) * LANES
        scan.assign(emitter, before, scan.exprs(carry), "[0]")
        scan.assign(emitter, chunk, scan.exprs(local, f"[{last}]"))
        with emitter.block(f"for (int j = 1; j < {LANES}; ++j)"):
            scan.assign(emitter, before, scan.exprs(chunk), "[j]")
            scan.assign(emitter, chunk, scan.fold(emitter, scan.exprs(chunk), scan.exprs(local, f"[{last} + j]")))
        emitter.line("PJRT_INDEPENDENT")
        with emitter.block(f"for (int j = 1; j < {LANES}; ++j)"):
            folded = scan.fold(emitter, scan.exprs(carry), scan.exprs(before, "[j]"))
            scan.assign(emitter, before, folded, "[j]")
        with emitter.block(f"for (int j = 0; j < {LANES}; ++j)"):
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block(f"for (int i = 0; i < {self.run}; ++i)"):
                index = self._index(emitter, row, self._position(variable("i", self.run)))
                folded = scan.fold(emitter, scan.exprs(before, "[j]"), scan.exprs(local, f"[i * {LANES} + j]"))
                scan.store(emitter, self.group, folded, index)
        return chunk


NESTS = Nests(_Strips, _Rows, NEIGHBOURS, SHORT)
