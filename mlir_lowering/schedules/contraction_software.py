"""The software device's schedule of a contraction: packed tiles and a register-blocked micro-kernel.

B is packed into panels of as many columns as the micro-kernel holds (csrc/software/include/software_gemm.h), by a kernel
of its own if several tasks share it. A task owns some tiles of rows and some panels of one batch element; for each block
of k it packs its rows of A, which is where im2col, padding and fused producers are evaluated, and runs the micro-kernel
over its panels. After the last block the epilogue is evaluated where sums become results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mlir_lowering.dtypes import DType
from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Op, TensorType, Value
from mlir_lowering.index import Ix, bounded, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, make_kernel
from mlir_lowering.schedules import contraction_direct, pointwise
from mlir_lowering.schedules.contraction import (
    Loops,
    Nest,
    canonical,
    conditions,
    element,
    finished,
    merged,
    probe,
    reads as packed_reads,
)
from mlir_lowering.schedules.pointwise import name_indices, store
from mlir_lowering.targets import Target

# Rows of a tile: with two vectors of columns, 24 sums in registers.
TILE_ROWS = 12
# Elements of k in a block: a panel of 32 f32 columns is then as large as a first-level cache.
BLOCK = 256
# Bounds of a task: A's tiles and the sums of a task stay in a second-level cache (and on a thread's stack).
TASK_TILES = 8
TASK_PANELS = 16
# How many tasks there should be, and the multiply-adds below which a task is not worth cutting.
TASKS = 16
TASK_WORK = 1 << 18
# Elements of B that one thread packs.
PACK_WORK = 1 << 15
# B is used where it stands up to this many elements: larger strides miss the translation buffers.
IN_PLACE = 1 << 16


@dataclass(frozen=True)
class _Plan:
    """Sizes of the nest. Row tiles do not cross the boundary of `tiled_rows`, the innermost row loops."""

    tile_rows: int
    lanes: int
    vectors: int  # of a panel
    outer_rows: tuple[int, ...]
    tiled_rows: tuple[int, ...]
    a_by_row: bool  # whether a packed tile is [row][k] rather than [k][row]
    b_by_row: bool  # whether B's rows are contiguous
    b_in_place: bool
    b_local: bool  # every task packs its own panels
    tiles: int  # of a task
    panels: int  # of a task
    positions: int  # of the outer k loops in a block
    chunk: int  # of the innermost k loop in a block

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    @property
    def depth(self) -> int:
        """Elements of k in a block."""
        return self.positions * self.chunk


def emit(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    contraction = canonical(op)
    if op.result.type.size == 0:
        return []
    if math.prod(contraction.folded) == 0:
        zero = contraction.accumulator

        def prepare(emitter: Emitter) -> None:
            emitter.bind(op.result, lambda _: emitter.constant(0, op.result.dtype))

        emitter_type = zero.msl
        assert emitter_type
        return pointwise.emit(group, target, prepare)
    nest = merged(contraction, group, target)
    if contraction_direct.is_direct(contraction):
        return [contraction_direct.emit(nest, group, target)]
    return _Tiled(nest, group, target).calls()


def reads(op: Op, i: int) -> float:
    contraction = canonical(op)
    if contraction_direct.is_direct(contraction):
        return contraction_direct.reads(contraction, op, i)
    return packed_reads(op, i)


def _even_blocks(extent: int, most: int) -> int:
    """The size of blocks that cut `extent` into as few parts of at most `most` as possible, alike in size."""
    return -(-extent // -(-extent // most))


def _tile_rows(extent: int) -> int:
    """Rows of a tile: a divisor of `extent` close to the largest if there is one, so that no tile is cut."""
    if extent <= TILE_ROWS:
        return extent
    if extent <= 16 * TILE_ROWS:
        for rows in range(TILE_ROWS, 6, -1):
            if extent % rows == 0:
                return rows
    return TILE_ROWS


class _Tiled:
    def __init__(self, nest: Nest, group: Group, target: Target) -> None:
        self.nest = nest
        self.group = group
        self.target = target
        self.dtype: DType = nest.contraction.accumulator
        self.k_outer = nest.folded.extents[:-1]
        self.k_inner = nest.folded.inner
        self.plan = self._plan()
        self.tiles = math.prod(self.plan.outer_rows) * self._tiles_inner
        self.panel_count = -(-nest.columns.size // self.plan.width)

    # Decisions.

    @property
    def _tiled_size(self) -> int:
        return math.prod(self.plan.tiled_rows)

    @property
    def _tiles_inner(self) -> int:
        return -(-self._tiled_size // self.plan.tile_rows)

    def _plan(self) -> _Plan:
        nest = self.nest
        b, m = nest.batch.variables("b"), nest.rows.variables("m")
        k, n = nest.folded.variables("k"), nest.columns.variables("n")
        a, b_reads, _ = probe(nest, self.group, self.target, b, m, k, n)
        last_k, last_m = f"k{len(k) - 1}", f"m{len(m) - 1}"
        along_k, along_m = _has_unit_step(a, last_k), _has_unit_step(a, last_m)
        a_by_row = not along_m or (along_k and self.k_inner >= nest.rows.inner)
        extents = tuple(nest.rows.extents)
        outer, tiled = ((), extents) if a_by_row else (extents[:-1], extents[-1:])
        tile_rows = _tile_rows(math.prod(tiled))

        columns = nest.columns.size
        itemsize = self.dtype.bytes
        lanes = self.target.vector_bytes // itemsize
        while lanes > 4 and columns <= lanes // 2:
            lanes //= 2
        vectors = 2 if columns > lanes else 1
        width = lanes * vectors

        depth = BLOCK * 4 // itemsize
        if self.k_inner >= depth:
            positions, chunk = 1, _even_blocks(self.k_inner, depth)
        else:
            outer_size = math.prod(self.k_outer)
            positions, chunk = _even_blocks(outer_size, depth // self.k_inner), self.k_inner

        b_by_row = not _has_unit_step(b_reads, last_k) or _has_unit_step(
            b_reads, f"n{len(n) - 1}"
        )
        in_place = self._in_place_step(lanes) is not None and (
            columns <= width or columns * nest.folded.size <= IN_PLACE
        )

        row_tiles = math.prod(outer) * -(-math.prod(tiled) // tile_rows)
        panel_count = -(-columns // width)
        batch = nest.batch.size
        tiles, panels = min(row_tiles, TASK_TILES), min(panel_count, TASK_PANELS)
        cell = tile_rows * width * nest.folded.size

        def wanting() -> bool:
            count = batch * -(-row_tiles // tiles) * -(-panel_count // panels)
            return count < TASKS and tiles * panels * cell > TASK_WORK

        local = False
        if row_tiles <= TASK_TILES and not in_place:
            # Cutting between panels alone leaves no panel to two tasks.
            while wanting() and panels > 1:
                panels = -(-panels // 2)
            local = not wanting() or row_tiles == 1
            if not local:
                panels = min(panel_count, TASK_PANELS)
        if not local:
            while wanting() and tiles > 2:
                tiles = -(-tiles // 2)
            while wanting() and panels > 1:
                panels = -(-panels // 2)
            while wanting() and tiles > 1:
                tiles = -(-tiles // 2)
        tiles, panels = _even_blocks(row_tiles, tiles), _even_blocks(panel_count, panels)
        return _Plan(
            tile_rows, lanes, vectors, outer, tiled, a_by_row, b_by_row, in_place, local,
            tiles, panels, positions, chunk,
        )  # fmt: skip

    def _in_place_step(self, lanes: int) -> int | None:
        """The distance of B's rows if the micro-kernel can read B where it is, else None."""
        nest = self.nest
        value = nest.contraction.op.operands[1]
        if value.op in self.group.inlined or value.dtype is not self.dtype:
            return None
        k, n = nest.folded.variables("k"), nest.columns.variables("n")
        access = nest.b(nest.batch.variables("b"), k, n)
        if access.tests or len(k) != 1 or len(n) != 1 or nest.columns.size % lanes:
            return None
        offset = linearize(access.index, value.shape)
        step = offset.coefficient("k0")
        return step if offset.coefficient("n0") == 1 and step else None

    # Kernels.

    def calls(self) -> list[KernelCall]:
        calls = []
        packed: Value | None = None
        plan, nest = self.plan, self.nest
        if not plan.b_local and not plan.b_in_place:
            shape = (nest.batch.size, self.panel_count, nest.folded.size, plan.width)
            packed = Value(TensorType(shape, self.dtype))
            calls.append(self._pack_kernel(packed))
        return [*calls, self._main_kernel(packed)]

    def _pack_kernel(self, packed: Value) -> KernelCall:
        """Packs B: each thread part of a panel."""
        nest, plan = self.nest, self.plan
        emitter = self.group.emitter(self.target)
        emitter.use(self.dtype)
        panels = nest.batch.size * self.panel_count
        outer, inner = math.prod(self.k_outer), self.k_inner
        rows = max(1, PACK_WORK // plan.width)
        positions = _even_blocks(outer, max(1, rows // inner))
        chunk = _even_blocks(inner, rows) if positions == 1 else inner
        parts = -(-outer // positions) * -(-inner // chunk)
        emitter.line(f"const int panel = int(tid.x) / {parts};")
        self._block_bounds(emitter, f"int(tid.x) % {parts}", positions, chunk)
        b = self._batch(emitter, f"panel / {self.panel_count}")
        emitter.line(f"const int n0 = panel % {self.panel_count} * {plan.width};")
        base = f"(long(panel) * {nest.folded.size} + p0 * {inner} + c0) * {plan.width}"
        emitter.line(f"device {self.dtype.msl}* to = out0 + {base};")
        self._pack_panel(emitter, b)
        kernel = make_kernel(
            emitter,
            [("out0", packed)],
            comment=f"Packs B[b][k][n] of {nest.contraction.op.signature()} as"
            f" [b][n / {plan.width}][k][{plan.width}].",
        )
        return KernelCall(kernel, [*emitter.inputs, packed], b"", (panels * parts, 1, 1))

    def _main_kernel(self, packed: Value | None) -> KernelCall:
        nest, plan, op = self.nest, self.plan, self.nest.contraction.op
        emitter = self.group.emitter(self.target)
        emitter.use(self.dtype)
        t = self.dtype.msl
        row_blocks = -(-self.tiles // plan.tiles)
        panel_blocks = -(-self.panel_count // plan.panels)
        blocks = -(-math.prod(self.k_outer) // plan.positions) * -(-self.k_inner // plan.chunk)
        cell = plan.tile_rows * plan.width
        emitter.line(f"const int g = int(tid.x) / {row_blocks * panel_blocks};")
        emitter.line(f"const int first_tile = int(tid.x) / {panel_blocks} % {row_blocks} * {plan.tiles};")
        emitter.line(f"const int first_panel = int(tid.x) % {panel_blocks} * {plan.panels};")
        emitter.line(f"const int tiles = min({plan.tiles}, {self.tiles} - first_tile);")
        emitter.line(f"const int panels = min({plan.panels}, {self.panel_count} - first_panel);")
        b = self._batch(emitter, "g")
        emitter.line(f"alignas(64) {t} a[{plan.tiles * plan.tile_rows * self._a_rows_step}];")
        if plan.b_local:
            emitter.line(f"alignas(64) {t} panel[{plan.depth * plan.width}];")
        cells = plan.tiles * plan.panels if blocks > 1 else 1
        emitter.line(f"alignas(64) {t} sums[{cells * cell}];")
        with emitter.block(f"for (int block = 0; block < {blocks}; ++block)"):
            self._block_bounds(emitter, "block", plan.positions, plan.chunk)
            emitter.line(f"const int depth = (p1 - p0) * (c1 - c0);")
            with emitter.block("for (int t = 0; t < tiles; ++t)"):
                outer = self._tile(emitter)
                self._pack_tile(emitter, b, outer)
            with emitter.block("for (int j = 0; j < panels; ++j)"):
                emitter.line(f"const int n0 = (first_panel + j) * {plan.width};")
                step = self._panel(emitter, b, packed)
                with emitter.block("for (int t = 0; t < tiles; ++t)"):
                    outer = self._tile(emitter)
                    at = f"(j * {plan.tiles} + t) * {cell}" if blocks > 1 else "0"
                    emitter.line(f"{t}* sum = sums + {at};")
                    self._micro_kernels(emitter, step)
                    with emitter.block(f"if (block == {blocks - 1})" if blocks > 1 else ""):
                        self._finish_tile(emitter, b, outer)
        kernel = make_kernel(
            emitter,
            [(f"out{i}", value) for i, value in enumerate(self.group.outputs)],
            comment=f"{op.signature()}: a thread computes {plan.tiles} tiles of {plan.tile_rows} rows"
            f" times {plan.panels} panels of {plan.width} columns.",
        )
        threads = nest.batch.size * row_blocks * panel_blocks
        return KernelCall(
            kernel, [*emitter.inputs, *self.group.outputs], b"", (threads, 1, 1)
        )

    # Parts of kernels.

    def _batch(self, emitter: Emitter, text: str) -> list[Ix]:
        """The loop variables of b from its number."""
        size = self.nest.batch.size
        if size == 1:
            return [*self.nest.batch.variables("g")]
        name = emitter.fresh("batch")
        emitter.line(f"const int {name} = {text};")
        extents = self.nest.batch.extents
        return list(name_indices(emitter, delinearize(variable(name, size), extents), extents))

    def _block_bounds(self, emitter: Emitter, block: str, positions: int, chunk: int) -> None:
        """Names the block's part of the outer k loops, [p0, p1), and of the innermost, [c0, c1)."""
        outer, inner = math.prod(self.k_outer), self.k_inner
        chunks = -(-inner // chunk)
        emitter.line(f"const int p0 = {block} / {chunks} * {positions};")
        emitter.line(f"const int p1 = min(p0 + {positions}, {outer});")
        if chunks == 1:
            emitter.line(f"const int c0 = 0, c1 = {inner};")
        else:
            emitter.line(f"const int c0 = {block} % {chunks} * {chunk};")
            emitter.line(f"const int c1 = min(c0 + {chunk}, {inner});")

    def _k(self, emitter: Emitter) -> list[Ix]:
        """The variables of the k loops inside loops over p and c."""
        if not self.nest.folded.starts:
            return []
        p = variable("p", math.prod(self.k_outer))
        outer = name_indices(emitter, delinearize(p, self.k_outer), self.k_outer)
        return [*outer, variable("c", self.k_inner)]

    @property
    def _a_rows_step(self) -> int:
        """Distance of packed rows: k in a block; for rows of A, some more, so that rows fall into different sets
        of the cache."""
        return self.plan.depth + (16 if self.plan.a_by_row else 0)

    def _tile(self, emitter: Emitter) -> list[Ix]:
        """Names a tile's first row among the tiled ones and its number of rows; returns the outer row loops."""
        plan = self.plan
        inner = self._tiles_inner
        emitter.line(f"const int i0 = (first_tile + t) % {inner} * {plan.tile_rows};")
        if self._tiled_size % plan.tile_rows:
            emitter.line(f"const int rows = min({plan.tile_rows}, {self._tiled_size} - i0);")
        else:
            emitter.line(f"const int rows = {plan.tile_rows};")
        if not plan.outer_rows:
            return []
        size = math.prod(plan.outer_rows)
        outer = variable("outer_row", size)
        emitter.line(f"const int outer_row = (first_tile + t) / {inner};")
        return list(name_indices(emitter, delinearize(outer, plan.outer_rows), plan.outer_rows))

    def _row(self, emitter: Emitter, outer: Sequence[Ix]) -> list[Ix]:
        """The row loops' variables inside a loop over i, the row among the tiled ones."""
        if not self.nest.rows.starts:
            return []
        i = variable("i", self._tiled_size)
        tiled = self.plan.tiled_rows
        return [*outer, *name_indices(emitter, delinearize(i, tiled), tiled)]

    def _pack_tile(self, emitter: Emitter, b: Sequence[Ix], outer: Sequence[Ix]) -> None:
        plan = self.plan
        step = self._a_rows_step
        emitter.line(f"{self.dtype.msl}* tile = a + t * {plan.tile_rows * step};")
        if plan.a_by_row:
            with emitter.block("for (int i = i0; i < i0 + rows; ++i)"):
                m = self._row(emitter, outer)
                with emitter.block("for (int p = p0; p < p1; ++p)"):
                    k = self._k(emitter)
                    to = f"tile[(i - i0) * {step} + (p - p0) * {self.k_inner} + c - c0]"
                    access = self.nest.a(b, m, k)
                    outside, inside = conditions(emitter, access, ("c",))

                    def put() -> None:
                        value = element(emitter, access, self.dtype, inside)
                        emitter.line(f"{to} = {value};")

                    self._guarded_loop(emitter, outside, "int c = c0; c < c1; ++c", to, put)
            return
        with emitter.block("for (int p = p0; p < p1; ++p)"):
            k = self._k(emitter)
            for head, count in self._cases("rows", plan.tile_rows, self._tiled_size):
                with emitter.block(head):
                    self._pack_by_column(emitter, b, outer, k, count)

    def _pack_by_column(
        self, emitter: Emitter, b: Sequence[Ix], outer: Sequence[Ix], k: Sequence[Ix], count: str
    ) -> None:
        """Packs one position p of a [k][row] tile."""
        to = f"tile[((p - p0) * {self.k_inner} + c - c0) * {self.plan.tile_rows} + i - i0]"
        with emitter.block("for (int c = c0; c < c1; ++c)"):
            m = self._row(emitter, outer)
            access = self.nest.a(b, m, k)
            outside, inside = conditions(emitter, access, ("i",))

            def put() -> None:
                emitter.line(f"{to} = {element(emitter, access, self.dtype, inside)};")

            self._guarded_loop(emitter, outside, f"int i = i0; i < i0 + {count}; ++i", to, put)

    def _guarded_loop(
        self, emitter: Emitter, tests: list[str], loop: str, to: str, put: Callable[[], None]
    ) -> None:
        """An innermost loop of `put`, or of zeros unless the tests hold."""
        with emitter.block(f"if ({' && '.join(tests)})" if tests else ""):
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block(f"for ({loop})"):
                put()
        if tests:
            with emitter.block("else"):
                emitter.line(f"for ({loop}) {to} = 0;")

    def _cases(self, name: str, full: int, extent: int) -> Iterator[tuple[str, str]]:
        """Block heads and trip counts: a loop of `full` steps gets code of its own if some loops are shorter."""
        if extent % full == 0:
            yield "", str(full)
        elif extent < full:
            yield "", str(extent)
        else:
            yield f"if ({name} == {full})", str(full)
            yield "else", name

    def _panel(self, emitter: Emitter, b: Sequence[Ix], packed: Value | None) -> int:
        """Names `from`, where the panel's block starts; returns the distance of its rows."""
        plan, nest, t = self.plan, self.nest, self.dtype.msl
        if packed is not None:
            base = f"(long(g) * {self.panel_count} + first_panel + j) * {nest.folded.size}"
            at = f"({base} + p0 * {self.k_inner} + c0) * {plan.width}"
            emitter.line(f"const device {t}* from = {emitter.input(packed)} + {at};")
            return plan.width
        if plan.b_local:
            emitter.line(f"{t}* to = panel;")
            self._pack_panel(emitter, b)
            emitter.line(f"const {t}* from = panel;")
            return plan.width
        value = nest.contraction.op.operands[1]
        k, n = bounded("c0", 0, self.k_inner - 1), bounded("n0", 0, nest.columns.size - 1)
        offset = linearize(nest.b(b, [k], [n]).index, value.shape)
        emitter.line(f"const device {t}* from = {emitter.input(value)} + {offset};")
        step = self._in_place_step(plan.lanes)
        assert step is not None
        return step

    def _pack_panel(self, emitter: Emitter, b: Sequence[Ix]) -> None:
        """Packs columns n0... of the block of k into `to`, [k][width]; zeros past the last column."""
        plan, columns = self.plan, self.nest.columns
        if columns.size % plan.width:
            emitter.line(f"const int columns = min({plan.width}, {columns.size} - n0);")
        with emitter.block("for (int p = p0; p < p1; ++p)"):
            k = self._k(emitter)
            for head, count in self._cases("columns", plan.width, columns.size):
                with emitter.block(head):
                    self._pack_position(emitter, b, k, count)

    def _pack_position(
        self, emitter: Emitter, b: Sequence[Ix], k: Sequence[Ix], count: str
    ) -> None:
        plan, columns = self.plan, self.nest.columns
        at = f"((p - p0) * {self.k_inner} + c - c0) * {plan.width}"
        n = variable("n", columns.size)
        along_n = f"int n = n0; n < n0 + {count}; ++n"
        along_k = "int c = c0; c < c1; ++c"
        if not plan.b_by_row:
            # A few cache lines of every column at a time.
            along_k = "int c = c1_; c < min(c1_ + 16, c1); ++c"

        def put() -> None:
            variables = delinearize(n, columns.extents)
            access = self.nest.b(b, k, variables)
            tests, _ = conditions(emitter, access)
            value = element(emitter, access, self.dtype, tests)
            emitter.line(f"to[{at} + n - n0] = {value};")

        if plan.b_by_row:
            with emitter.block(f"for ({along_k})"):
                emitter.line("PJRT_INDEPENDENT")
                with emitter.block(f"for ({along_n})"):
                    put()
                if count != str(plan.width):
                    emitter.line(f"for (int z = {count}; z < {plan.width}; ++z) to[{at} + z] = 0;")
            return
        with emitter.block("for (int c1_ = c0; c1_ < c1; c1_ += 16)"):
            with emitter.block(f"for ({along_n})"):
                emitter.line("PJRT_INDEPENDENT")
                with emitter.block(f"for ({along_k})"):
                    put()
            if count != str(plan.width):
                with emitter.block(f"for ({along_k})"):
                    emitter.line(f"for (int z = {count}; z < {plan.width}; ++z) to[{at} + z] = 0;")

    def _micro_kernels(self, emitter: Emitter, b_step: int) -> None:
        """The micro-kernel for each size that tiles and panels have."""
        plan = self.plan
        row_step, k_step = (self._a_rows_step, 1) if plan.a_by_row else (1, plan.tile_rows)
        cut_rows = self._tiled_size % plan.tile_rows
        last_columns = self.nest.columns.size % plan.width
        cut_vectors = -(-last_columns // plan.lanes)
        rows = [("rows == %d" % plan.tile_rows, plan.tile_rows)]
        if cut_rows:
            rows.append(("", cut_rows))
        vectors = [(f"n0 + {plan.width} <= {self.nest.columns.size}", plan.vectors)]
        if last_columns and cut_vectors == plan.vectors:
            vectors = [("", plan.vectors)]
        elif last_columns:
            vectors.append(("", cut_vectors))
        cases = [(r, v) for r in rows for v in vectors]
        for number, ((row_test, r), (vector_test, v)) in enumerate(cases):
            tests = [x for x in (row_test, vector_test) if x]
            last = number == len(cases) - 1
            head = ("else " if number else "") + ("" if last else f"if ({' && '.join(tests)})")
            with emitter.block(head.strip()):
                t, width = self.dtype.msl, plan.width
                emitter.line(
                    f"software::gemm_tile<{t}, {plan.lanes * self.dtype.bytes}, {r}, {v}>("
                    f"a + t * {plan.tile_rows * self._a_rows_step}, {row_step}, {k_step},"
                    f" from, {b_step}, sum, {width}, depth, block > 0);"
                )

    def _finish_tile(self, emitter: Emitter, b: Sequence[Ix], outer: Sequence[Ix]) -> None:
        """Sums to results, through the epilogue."""
        nest, plan = self.nest, self.plan
        shape = nest.contraction.op.result.shape
        columns = nest.columns.size
        n = delinearize(variable("n", columns), nest.columns.extents)
        end = f"n0 + {plan.width}"
        if columns % plan.width:
            end = f"min({end}, {columns})"
        finished(emitter, nest, f"sum[(i - i0) * {plan.width} + n - n0]")
        loops = ["for (int i = i0; i < i0 + rows; ++i)", f"for (int n = n0; n < {end}; ++n)"]
        plain = nest.result(b, [*outer, *plan_variables(plan.tiled_rows)], n)
        step = linearize(plain, shape).coefficient("i0v")
        if len(plan.tiled_rows) == 1 and step == 1 and not columns == 1:
            loops.reverse()
        with emitter.block(loops[0]):
            first_is_row = "int i " in loops[0]
            m = self._row(emitter, outer) if first_is_row else []
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block(loops[1]):
                if not first_is_row:
                    m = self._row(emitter, outer)
                index = nest.result(b, m, n)
                store(emitter, self.group.outputs, index, linearize(index, shape))


def plan_variables(extents: Sequence[int]) -> list[Ix]:
    return [variable(f"i{d}v", n) for d, n in enumerate(extents)]


def _has_unit_step(emitter: Emitter, name: str) -> bool:
    """Whether the largest input that `emitter` read is read in steps of one along the loop."""
    if not emitter.reads:
        return False
    value = max(emitter.reads, key=lambda v: v.type.size)
    return any(offset.coefficient(name) == 1 for offset in emitter.reads[value])


SCHEDULE = ScheduleDef(emit, reads, epilogue=True)
