"""The GPU's schedule of a contraction: tiles in threadgroup memory, multiplied by SIMD groups.

A threadgroup of four SIMD groups computes one tile of the result. For each block of k it packs its rows of A and its
columns of B into threadgroup memory as f32 (im2col, padding and fused producers are evaluated there; what lies outside
is zero), and each SIMD group multiplies a quarter of the tile as 8 x 8 matrices. The sums go through threadgroup memory
once more, so that the epilogue is evaluated with one thread a result, neighbours next to one another.

Where tiles are few and k is long, several threadgroups share a tile's k, and a second kernel adds their sums in order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlir_lowering.dtypes import F32
from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Op, TensorType, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, kernel_call
from mlir_lowering.schedules import contraction_thin, grid
from mlir_lowering.schedules.contraction import (
    Access,
    Loops,
    Nest,
    canonical,
    conditions,
    element,
    empty_sums,
    finished,
    merged,
    packed_reads,
    probe,
)
from mlir_lowering.schedules.loops import store, unravel
from mlir_lowering.targets import Target

# Threads of a threadgroup: four SIMD groups, two by two over the tile.
THREADS = 128
# k of a block, and elements between rows in threadgroup memory that are not used, so that rows fall into different
# banks.
DEPTH = 16
SPARE = 4
# Tiles from which on a GPU is busy; with fewer, smaller tiles or shares of k give more threadgroups work.
FEW_TILES = 32
BUSY_TILES = 64
# k that a threadgroup should have at least when several share a tile.
SHARE = 256


@dataclass(frozen=True)
class _Plan:
    """A threadgroup's part: `rows` by `columns` of the result, `share` of k."""

    rows: int
    columns: int
    share: int
    shares: int


def _tile(extent: int) -> int:
    return 64 if extent > 32 else 32 if extent > 16 else 16


def _plan(batch: int, rows: int, columns: int, folded: int) -> _Plan:
    def tiles(tile_rows: int, tile_columns: int) -> int:
        return batch * -(-rows // tile_rows) * -(-columns // tile_columns)

    r, c = _tile(rows), _tile(columns)
    if tiles(r, c) < BUSY_TILES:
        r, c = min(r, 32), min(c, 32)
    count = tiles(r, c)
    shares = 1
    if count < FEW_TILES:
        shares = max(1, min(-(-BUSY_TILES // count), folded // SHARE))
    share = -(-folded // (shares * DEPTH)) * DEPTH
    return _Plan(r, c, share, -(-folded // share))


def emit(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    contraction = canonical(op)
    if math.prod(contraction.folded) == 0:
        return empty_sums(group, target)
    nest = merged(contraction, group, target)
    if contraction_thin.is_thin(contraction):
        return [contraction_thin.emit(nest, group, target)]
    return _Tiled(nest, group, target).calls()


def reads(op: Op, i: int) -> float:
    """How often an element of operand `i` is evaluated: once for every tile that needs it."""
    contraction = canonical(op)
    rows, columns = math.prod(contraction.rows), math.prod(contraction.columns)
    if contraction_thin.is_thin(contraction):
        return float(columns if i == 0 else rows)
    plan = _plan(math.prod(contraction.batch), rows, columns, math.prod(contraction.folded))
    tiles = -(-columns // plan.columns) if i == 0 else -(-rows // plan.rows)
    return packed_reads(op, i) * tiles


@dataclass(frozen=True)
class _Side:
    """How one operand's tile is packed. `lines`: the number of its rows (of A) or columns (of B); `along_k`:
    neighbouring threads take neighbouring k, and so do the elements in threadgroup memory."""

    lines: int
    along_k: bool
    first: int  # where its tile begins in threadgroup memory

    @property
    def step(self) -> int:
        """The distance between lines (along k) or between steps of k."""
        return (DEPTH if self.along_k else self.lines) + SPARE

    @property
    def size(self) -> int:
        return (self.lines if self.along_k else DEPTH) * self.step


class _Tiled:
    def __init__(self, nest: Nest, group: Group, target: Target) -> None:
        self.nest = nest
        self.group = group
        self.target = target
        self.plan = _plan(nest.batch.size, nest.rows.size, nest.columns.size, nest.folded.size)
        b, m, k, n = (
            loops.variables(stem)
            for loops, stem in ((nest.batch, "b"), (nest.rows, "m"), (nest.folded, "k"), (nest.columns, "n"))
        )
        a_reads, b_reads, _ = probe(nest, group, target, (b, m, k, n))
        self.a = _Side(self.plan.rows, _along_k(a_reads, m, k, nest.rows, nest.folded), 0)
        self.b = _Side(self.plan.columns, _along_k(b_reads, n, k, nest.columns, nest.folded), self.a.size)
        shape = nest.contraction.op.result.shape
        offset = linearize(nest.result(b, m, n), shape)
        # Whether results of neighbouring rows, rather than columns, are neighbours in memory.
        self.rows_inside = bool(m) and offset.coefficient(f"m{len(m) - 1}") == 1 and nest.rows.inner > 1

    def calls(self) -> list[KernelCall]:
        if self.plan.shares == 1:
            return [self._multiply(None)]
        nest = self.nest
        sums = Value(TensorType((self.plan.shares, nest.batch.size, nest.rows.size, nest.columns.size), F32))
        return [self._multiply(sums), self._add_shares(sums)]

    def _multiply(self, sums: Value | None) -> KernelCall:
        nest, plan, a, b = self.nest, self.plan, self.a, self.b
        emitter = self.group.emitter(self.target)
        half = plan.rows // 2
        size = max(a.size + b.size, half * (plan.columns + SPARE))
        emitter.line(f"threadgroup float shared[{size}];")
        emitter.line("const int t = int(local.x);")
        emitter.line(f"const int m0 = int(place.y) * {plan.rows};")
        emitter.line(f"const int n0 = int(place.x) * {plan.columns};")
        # The quarter of the tile that is this SIMD group's.
        emitter.line(f"const int quarter_row = int(group) / 2 * {half};")
        emitter.line(f"const int quarter_column = int(group) % 2 * {plan.columns // 2};")
        z = variable("int(place.z)", nest.batch.size * plan.shares)
        batch = unravel(emitter, z // plan.shares, nest.batch.extents)
        begin, end = "0", str(nest.folded.size)
        if plan.shares > 1:
            emitter.line(f"const int begin = {z % plan.shares} * {plan.share};")
            emitter.line(f"const int end = min(begin + {plan.share}, {nest.folded.size});")
            begin, end = "begin", "end"
        matrices = [(i, j) for i in range(half // 8) for j in range(plan.columns // 16)]
        for i, j in matrices:
            emitter.line(f"simdgroup_float8x8 sum{i}_{j} = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);")
        trips = -(-plan.share // DEPTH) if plan.shares > 1 else None
        with emitter.block(f"for (int k0 = {begin}; k0 < {end}; k0 += {DEPTH})", trips=trips):
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            self._pack(emitter, a, "m", nest.rows, lambda line, k: nest.a(batch, line, k))
            self._pack(emitter, b, "n", nest.columns, lambda line, k: nest.b(batch, k, line))
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            with emitter.block(f"for (int kk = 0; kk < {DEPTH}; kk += 8)"):
                self._load(emitter, a, "left", "quarter_row", half // 8, transposed=not a.along_k)
                self._load(emitter, b, "right", "quarter_column", plan.columns // 16, transposed=b.along_k)
                for i, j in matrices:
                    total = f"sum{i}_{j}"
                    emitter.line(f"simdgroup_multiply_accumulate({total}, left{i}, right{j}, {total});")
        self._write(emitter, batch, sums)
        outputs = self.group.outputs if sums is None else [sums]
        threads = (
            -(-nest.columns.size // plan.columns) * THREADS,
            -(-nest.rows.size // plan.rows),
            nest.batch.size * plan.shares,
        )
        shared = f", {plan.shares} of them sharing k" if plan.shares > 1 else ""
        tile = f"{plan.rows} rows by {plan.columns} columns{shared}"
        comment = f"{nest.contraction.op.signature()}: a threadgroup computes {tile}."
        builtins = (grid.PLACE, grid.LOCAL, grid.SIMD)
        return kernel_call(emitter, outputs, comment, threads, per_threadgroup=(THREADS, 1, 1), builtins=builtins)

    def _pack(
        self, emitter: Emitter, side: _Side, stem: str, loops: Loops, access: Callable[[Index, Index], Access]
    ) -> None:
        """One block of k of A or B into threadgroup memory."""
        near = DEPTH if side.along_k else side.lines
        far_step = THREADS // near
        with emitter.block(""):
            emitter.line(f"const int near = t % {near};")
            fixed = self._coordinate(emitter, "near", stem, loops, side.along_k)
            with emitter.block(f"for (int far = t / {near}; far < {side.size // side.step}; far += {far_step})"):
                moving = self._coordinate(emitter, "far", stem, loops, not side.along_k)
                at, k = (moving, fixed) if side.along_k else (fixed, moving)
                tests = []
                if loops.size % side.lines:
                    tests.append(f"{stem} < {loops.size}")
                if self.nest.folded.size % DEPTH:
                    tests.append(f"k < {self.nest.folded.size}")
                found = access(at, k)
                tests += conditions(emitter, found.tests)[0]
                value = element(emitter, found, F32, tests)
                emitter.line(f"shared[{side.first} + far * {side.step} + near] = {value};")

    def _coordinate(self, emitter: Emitter, number: str, stem: str, loops: Loops, is_k: bool) -> Index:
        """Names k or the line at position `number` of the tile; returns its loops' variables."""
        name, start, over = ("k", "k0", self.nest.folded) if is_k else (stem, f"{stem}0", loops)
        emitter.line(f"const int {name} = {start} + {number};")
        return unravel(emitter, variable(name, over.size), over.extents)

    def _load(self, emitter: Emitter, side: _Side, name: str, start: str, count: int, transposed: bool) -> None:
        """Matrices at kk from threadgroup memory."""
        for i in range(count):
            line = f"({start} + {i * 8})"
            at = f"{line} * {side.step} + kk" if side.along_k else f"kk * {side.step} + {line}"
            emitter.line(f"simdgroup_float8x8 {name}{i};")
            source = f"shared + {side.first} + {at}"
            rest = ", ulong2(0ul), true" if transposed else ""
            emitter.line(f"simdgroup_load({name}{i}, {source}, {side.step}ul{rest});")

    def _write(self, emitter: Emitter, batch: Index, sums: Value | None) -> None:
        """The tile's upper half, then its lower one, through threadgroup memory to results."""
        nest, plan = self.nest, self.plan
        half, step = plan.rows // 2, plan.columns + SPARE
        with emitter.block("for (int lower = 0; lower < 2; ++lower)"):
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            with emitter.block("if (int(group) / 2 == lower)"):
                for i in range(half // 8):
                    for j in range(plan.columns // 16):
                        to = f"shared + {i * 8 * step + j * 8} + quarter_column"
                        emitter.line(f"simdgroup_store(sum{i}_{j}, {to}, {step}ul);")
            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")
            with emitter.block(f"for (int e = t; e < {half * plan.columns}; e += {THREADS})"):
                if self.rows_inside:
                    emitter.line(f"const int i = e % {half}, j = e / {half};")
                else:
                    emitter.line(f"const int i = e / {plan.columns}, j = e % {plan.columns};")
                emitter.line(f"const int m = m0 + lower * {half} + i, n = n0 + j;")
                tests = []
                if nest.rows.size % plan.rows:
                    tests.append(f"m < {nest.rows.size}")
                if nest.columns.size % plan.columns:
                    tests.append(f"n < {nest.columns.size}")
                total = f"shared[i * {step} + j]"
                with emitter.block(f"if ({' && '.join(tests)})" if tests else ""):
                    if sums is None:
                        self._store(emitter, batch, total)
                    else:
                        matrix = f"(int(place.z) % {plan.shares} * {nest.batch.size} + int(place.z) / {plan.shares})"
                        row = f"{matrix} * {nest.rows.size} + m"
                        emitter.line(f"out0[({row}) * {nest.columns.size} + n] = {total};")

    def _store(self, emitter: Emitter, batch: Index, total: str) -> None:
        """Result m, n from its sum, through the epilogue."""
        nest = self.nest
        m = unravel(emitter, variable("m", nest.rows.size), nest.rows.extents)
        n = unravel(emitter, variable("n", nest.columns.size), nest.columns.extents)
        _store(emitter, self.group, nest, (batch, m, n), total)

    def _add_shares(self, sums: Value) -> KernelCall:
        """Adds the shares of each result, first to last."""
        nest, plan = self.nest, self.plan
        emitter = self.group.emitter(self.target)
        extents = [*nest.batch.extents, *nest.rows.extents, *nest.columns.extents]
        walk = grid.axes(extents)
        position = walk.position(emitter, "tid")
        at = linearize(position, extents)
        emitter.line("float total = 0.0f;")
        with emitter.block(f"for (int s = 0; s < {plan.shares}; ++s)"):
            part = emitter.load_input(sums, variable("s", plan.shares) * math.prod(extents) + at)
            emitter.line(f"total += {part};")
        first, second = len(nest.batch.extents), len(nest.batch.extents) + len(nest.rows.extents)
        parts = (position[:first], position[first:second], position[second:])
        _store(emitter, self.group, nest, parts, "total")
        return kernel_call(emitter, self.group.outputs, f"Adds {plan.shares} shares of each sum.", walk.lengths)


def _store(emitter: Emitter, group: Group, nest: Nest, at: tuple[Index, Index, Index], total: str) -> None:
    finished(emitter, nest, total)
    index = nest.result(*at)
    store(emitter, group.outputs, index, linearize(index, nest.contraction.op.result.shape))


def _along_k(emitter: Emitter, lines: Sequence[Ix], k: Sequence[Ix], outer: Loops, folded: Loops) -> bool:
    """Whether an operand's neighbours in memory lie along k rather than along its rows or columns."""

    def unit(variables: Sequence[Ix]) -> bool:
        names = [str(v) for v in variables[-1:] if not v.is_const]
        steps = {offset.coefficient(n) for offsets in emitter.reads.values() for offset in offsets for n in names}
        return 1 in steps

    along_k, along_lines = unit(k), unit(lines)
    if along_k and along_lines:
        return folded.inner > outer.inner
    return along_k


SCHEDULE = ScheduleDef(emit, reads, epilogue=True)
