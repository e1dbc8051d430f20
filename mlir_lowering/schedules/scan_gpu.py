"""Scans on a GPU (see scan.py for what a scan is), in O(n) and the same in every run.

- strips: a thread walks a sequence, or a block of one; neighbours in the innermost dimension are neighbours in x;
- rows: a threadgroup walks a sequence that lies along the innermost dimension, tile after tile. A thread scans EACH
  elements one after another, then the threads' folds are scanned: over a SIMD group by shuffles where MSL has them for
  the type, over the threadgroup in its memory.

Few long sequences are cut into at most BLOCKS blocks: one launch folds each block, the next scans a block from the
fold of those before it.
"""

from __future__ import annotations

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Value
from mlir_lowering.index import Index, Ix, constant, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, kernel_call
from mlir_lowering.schedules import grid
from mlir_lowering.schedules.loops import unravel
from mlir_lowering.schedules.scan import BLOCKS, Nests, Scan, blocks_of
from mlir_lowering.targets import Target

# Elements of a row that a thread scans on its own, and threads that scan a tile of a row together.
EACH = 8
THREADS = 256
LANES = 32
# Sequences this short, or that have this many neighbours, are walked by a thread each.
SHORT = 64
NEIGHBOURS = 32
# Threads that occupy a GPU, and the least positions of a block.
MANY = 1 << 14
STRIP = 256


class _Strips:
    def __init__(self, scan: Scan, group: Group, target: Target) -> None:
        self.scan, self.group, self.target = scan, group, target
        sequences = scan.outer * scan.inner
        wanted = min(BLOCKS, MANY // sequences, scan.n // STRIP)
        self.blocks, self.length = blocks_of(scan.n, STRIP, wanted) if wanted > 1 else (1, scan.n)

    def calls(self) -> list[KernelCall]:
        if self.blocks == 1:
            return [self._call([], [], 1)]
        totals = self.scan.totals((*self.scan.outer_shape, self.blocks, *self.scan.inner_shape))
        return [self._call(totals, [], self.blocks - 1), self._call([], totals, self.blocks)]

    def _call(self, into: list[Value], totals: list[Value], blocks: int) -> KernelCall:
        """Folds blocks into `into`, or scans each from what `totals` say came before it."""
        scan, emitter = self.scan, self.group.emitter(self.target)
        rank = len(scan.outer_shape)
        walk = grid.axes([*scan.outer_shape, blocks, *scan.inner_shape])
        position = walk.position(emitter, "tid")
        outer, block, inner = position[:rank], position[rank], position[rank + 1 :]
        emitter.line(f"const int begin = {block * self.length};")
        emitter.line(f"const int end = min(begin + {self.length}, {scan.n});")

        def index(at: Ix) -> Index:
            return (*outer, at * -1 + (scan.n - 1) if scan.direction.reverse else at, *inner)

        base, carry, inside = (scan.variables(emitter, stem) for stem in ("base", "carry", "inside"))
        if not into:
            scan.assign(emitter, base, scan.start(emitter))
            if totals:
                with emitter.block(f"for (int before = 0; before < {block}; ++before)", trips=BLOCKS):
                    found = [emitter.load(t, (*outer, variable("before", BLOCKS), *inner)) for t in totals]
                    scan.assign(emitter, base, scan.fold(emitter, scan.exprs(base), found))
            scan.assign(emitter, carry, scan.exprs(base))
        # A run is folded from its own first element, so that no sum is long.
        part = scan.variables(emitter, "part")
        with emitter.block(f"for (int run = begin; run < end; run += {STRIP})", trips=-(-self.length // STRIP)):
            strip = min(STRIP, self.length)
            with emitter.block(f"for (int p = run; p < min(run + {STRIP}, end); ++p)", trips=strip):
                where = index(variable("p", scan.n))
                values = scan.elements(emitter, where)
                with emitter.block("if (p == run)"):
                    scan.assign(emitter, part, values)
                with emitter.block("else"):
                    scan.assign(emitter, part, scan.fold(emitter, scan.exprs(part), values))
                if not into:
                    folded = scan.fold(emitter, scan.exprs(carry), scan.exprs(part))
                    scan.store(emitter, self.group, folded, where)
            after = None if into else (carry, base)
            scan.advance(emitter, inside, scan.exprs(part), "run == begin", after)
        if into:
            at = linearize((*outer, block, *inner), into[0].shape)
            for k, name in enumerate(inside):
                emitter.line(f"out{k}[{at}] = {name};")
        does = "folds" if into else "scans"
        comment = f"{scan.what}: a thread {does} {self.length} positions of a sequence."
        return kernel_call(emitter, into or self.group.outputs, comment, walk.lengths)


class _Rows:
    def __init__(self, scan: Scan, group: Group, target: Target) -> None:
        self.scan, self.group, self.target = scan, group, target
        self.rows = scan.outer * scan.inner
        threads = LANES
        # As many threads as the elements need, in whole SIMD groups, and as their folds leave room for.
        bytes_each = sum(dtype.bytes for dtype in scan.dtypes)
        most = min(THREADS, grid.THREADGROUP_BYTES // (2 * bytes_each))
        while threads < most and threads * EACH < scan.n:
            threads *= 2
        self.threads = threads
        self.tile = threads * EACH
        wanted = min(BLOCKS, BLOCKS // self.rows, -(-scan.n // self.tile))
        self.blocks, self.length = blocks_of(scan.n, self.tile, wanted) if wanted > 1 else (1, scan.n)
        # MSL shuffles numbers of up to 32 bits.
        self.shuffles = all(dtype.msl in ("float", "int", "uint", "half") for dtype in scan.dtypes)

    def calls(self) -> list[KernelCall]:
        if self.blocks == 1:
            return [self._call([], [], 1)]
        totals = self.scan.totals((self.rows, self.blocks))
        return [self._call(totals, [], self.blocks - 1), self._call([], totals, self.blocks)]

    def _call(self, into: list[Value], totals: list[Value], blocks: int) -> KernelCall:
        """Folds blocks into `into`, or scans each from what `totals` say came before it."""
        scan, emitter = self.scan, self.group.emitter(self.target)
        row, block = variable("int(place.y)", self.rows), variable("int(place.x)", blocks)
        outer, inner = unravel(emitter, row, (scan.outer, scan.inner))
        emitter.line(f"const int begin = {block * self.length};")
        emitter.line(f"const int end = min(begin + {self.length}, {scan.n});")
        emitter.line("const int t = int(local.x);")
        shared = [f"shared{k}" for k in range(len(scan.dtypes))]
        room = self.threads // LANES if self.shuffles else self.threads
        for name, dtype in zip(shared, scan.dtypes, strict=True):
            emitter.line(f"threadgroup {dtype.msl} {name}[{room}];")
        # A thread without elements has the initial value, which nothing reads.
        start = scan.start(emitter)
        base, carry, inside = (scan.variables(emitter, stem) for stem in ("base", "carry", "inside"))
        scan.assign(emitter, base, start)
        if totals:
            scan.fold_before(emitter, base, totals, str(block), (row, constant(0)))
        scan.assign(emitter, carry, scan.exprs(base))
        tiles = -(-self.length // self.tile)
        with emitter.block(f"for (int tile = begin; tile < end; tile += {self.tile})", trips=tiles):
            emitter.line(f"const int first = tile + t * {EACH};")
            emitter.line(f"const int last = min(first + {EACH}, end);")
            local = scan.variables(emitter, "local", EACH)
            fold = scan.variables(emitter, "fold")
            scan.assign(emitter, fold, start)
            with emitter.block("for (int p = first; p < last; ++p)", trips=EACH):
                values = scan.elements(emitter, scan.index(emitter, outer, variable("p", scan.n), inner))
                with emitter.block("if (p == first)"):
                    scan.assign(emitter, fold, values)
                with emitter.block("else"):
                    scan.assign(emitter, fold, scan.fold(emitter, scan.exprs(fold), values))
                scan.assign(emitter, local, scan.exprs(fold), "[p - first]")
            before, total = scan.variables(emitter, "prior"), scan.variables(emitter, "total")
            self._scan_threads(emitter, fold, before, total, shared)
            if not into:
                with emitter.block("if (t > 0)"):
                    scan.assign(emitter, before, scan.fold(emitter, scan.exprs(carry), scan.exprs(before)))
                with emitter.block("else"):
                    scan.assign(emitter, before, scan.exprs(carry))
                with emitter.block("for (int p = first; p < last; ++p)", trips=EACH):
                    index = scan.index(emitter, outer, variable("p", scan.n), inner)
                    folded = scan.fold(emitter, scan.exprs(before), scan.exprs(local, "[p - first]"))
                    scan.store(emitter, self.group, folded, index)
            scan.advance(emitter, inside, scan.exprs(total), "tile == begin", None if into else (carry, base))
        if into:
            with emitter.block("if (t == 0)"):
                at = linearize((row, block), into[0].shape)
                for k, name in enumerate(inside):
                    emitter.line(f"out{k}[{at}] = {name};")
        does = "fold" if into else "scan"
        how = "SIMD groups" if self.shuffles else "halves"
        comment = f"{scan.what}: {self.threads} threads {does} {self.length} positions of a row, by {how}."
        return kernel_call(
            emitter,
            into or self.group.outputs,
            comment,
            (self.threads * blocks, self.rows, 1),
            per_threadgroup=(self.threads, 1, 1),
            builtins=(grid.PLACE, grid.LOCAL, *((grid.LANE, grid.SIMD) if self.shuffles else ())),
        )

    def _scan_threads(
        self, emitter: Emitter, fold: list[str], before: list[str], total: list[str], shared: list[str]
    ) -> None:
        """From each thread's `fold`: `before`, what the tile has before the thread (nothing before the first), and
        `total`, the fold of the tile."""
        scan = self.scan
        if not self.shuffles:
            self._halves(emitter, fold, shared)
            with emitter.block("if (t > 0)"):
                scan.assign(emitter, before, scan.exprs(shared, "[t - 1]"))
            scan.assign(emitter, total, scan.exprs(shared, f"[{self.threads - 1}]"))
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            return
        self._shuffles(emitter, fold, before)
        with emitter.block(f"if (lane == {LANES - 1})"):
            for k, name in enumerate(fold):
                emitter.line(f"{shared[k]}[group] = {name};")
        emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
        # SIMD groups are few: every thread folds them all.
        ahead = scan.variables(emitter, "ahead")
        scan.assign(emitter, total, scan.exprs(shared, "[0]"))
        with emitter.block(f"for (uint g = 1; g < {self.threads // LANES}; ++g)"):
            with emitter.block("if (g == group)"):
                scan.assign(emitter, ahead, scan.exprs(total))
            scan.assign(emitter, total, scan.fold(emitter, scan.exprs(total), scan.exprs(shared, "[g]")))
        emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
        with emitter.block("if (group > 0)"):
            with emitter.block("if (lane == 0)"):
                scan.assign(emitter, before, scan.exprs(ahead))
            with emitter.block("else"):
                scan.assign(emitter, before, scan.fold(emitter, scan.exprs(ahead), scan.exprs(before)))

    def _shuffles(self, emitter: Emitter, fold: list[str], before: list[str]) -> None:
        """Scans `fold` over the SIMD group; `before` becomes the lane's neighbour's."""
        scan = self.scan
        with emitter.block(f"for (ushort distance = 1; distance < {LANES}; distance *= 2)"):
            there = []
            for name, dtype in zip(fold, scan.dtypes, strict=True):
                text = emitter.fresh("there")
                emitter.line(f"const {dtype.msl} {text} = simd_shuffle_up({name}, distance);")
                there.append(Expr(text, dtype))
            with emitter.block("if (lane >= distance)"):
                scan.assign(emitter, fold, scan.fold(emitter, there, scan.exprs(fold)))
        for name, value in zip(before, fold, strict=True):
            emitter.line(f"{name} = simd_shuffle_up({value}, ushort(1));")

    def _halves(self, emitter: Emitter, fold: list[str], shared: list[str]) -> None:
        """Scans the threads' folds in threadgroup memory."""
        scan = self.scan
        for k, name in enumerate(fold):
            emitter.line(f"{shared[k]}[t] = {name};")
        emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
        with emitter.block(f"for (int distance = 1; distance < {self.threads}; distance *= 2)"):
            sums = scan.variables(emitter, "sum")
            scan.assign(emitter, sums, scan.exprs(shared, "[t]"))
            with emitter.block("if (t >= distance)"):
                folded = scan.fold(emitter, scan.exprs(shared, "[t - distance]"), scan.exprs(sums))
                scan.assign(emitter, sums, folded)
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            for k, name in enumerate(sums):
                emitter.line(f"{shared[k]}[t] = {name};")
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")


NESTS = Nests(_Strips, _Rows, NEIGHBOURS, SHORT)
