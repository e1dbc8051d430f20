"""The software device's schedule of a contraction: packed tiles and a register-blocked
micro-kernel.

B is packed into panels of as many columns as the micro-kernel holds
(csrc/software/include/software_gemm.h), by a kernel of its own if several tasks share it. A task
owns some tiles of rows and some panels of one batch element; for each block of k it packs its rows
of A, which is where im2col, padding and fused producers are evaluated, and runs the micro-kernel
over its panels. After the last block the epilogue is evaluated where sums become results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from mlir_lowering.dtypes import DType
from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Op, TensorType, Value
from mlir_lowering.index import Ix, bounded, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef, kernel_call
from mlir_lowering.schedules import contraction_direct
from mlir_lowering.schedules.contraction import (
    Nest,
    canonical,
    conditions,
    element,
    empty_sums,
    finished,
    merged,
    packed_reads,
)
from mlir_lowering.schedules.contraction_plan import even_blocks, in_place_step, make_plan
from mlir_lowering.schedules.loops import store, unravel
from mlir_lowering.targets import Target

# Elements of B that one thread packs.
PACK_WORK = 1 << 15


def emit(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    contraction = canonical(op)
    if math.prod(contraction.folded) == 0:
        return empty_sums(group, target)
    nest = merged(contraction, group, target)
    if contraction_direct.is_direct(contraction):
        return [contraction_direct.emit(nest, group, target)]
    return _Tiled(nest, group, target).calls()


def reads(op: Op, i: int) -> float:
    contraction = canonical(op)
    if contraction_direct.is_direct(contraction):
        return contraction_direct.reads(contraction, i)
    return packed_reads(op, i)


class _Tiled:
    def __init__(self, nest: Nest, group: Group, target: Target) -> None:
        self.nest = nest
        self.group = group
        self.target = target
        self.dtype: DType = nest.contraction.accumulator
        self.k_outer = nest.folded.extents[:-1]
        self.k_inner = nest.folded.inner
        self.plan = make_plan(nest, group, target)
        self.tiles = math.prod(self.plan.outer_rows) * self._tiles_inner
        self.panel_count = -(-nest.columns.size // self.plan.width)

    @property
    def _tiled_size(self) -> int:
        return math.prod(self.plan.tiled_rows)

    @property
    def _tiles_inner(self) -> int:
        return -(-self._tiled_size // self.plan.tile_rows)

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
        positions = even_blocks(outer, max(1, rows // inner))
        chunk = even_blocks(inner, rows) if positions == 1 else inner
        parts = -(-outer // positions) * -(-inner // chunk)
        emitter.line(f"const int panel = int(tid.x) / {parts};")
        self._block_bounds(emitter, f"int(tid.x) % {parts}", positions, chunk)
        b = self._batch(emitter, f"panel / {self.panel_count}")
        emitter.line(f"const int n0 = panel % {self.panel_count} * {plan.width};")
        base = f"(long(panel) * {nest.folded.size} + p0 * {inner} + c0) * {plan.width}"
        emitter.line(f"device {self.dtype.msl}* to = out0 + {base};")
        self._pack_panel(emitter, b)
        comment = f"Packs B[b][k][n] of {nest.contraction.op.signature()} as [b][n / {plan.width}][k][{plan.width}]."
        return kernel_call(emitter, [packed], comment, (panels * parts, 1, 1), work=packed.type.size)

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
        rows = f"int(tid.x) / {panel_blocks} % {row_blocks}"
        emitter.line(f"const int first_tile = {rows} * {plan.tiles};")
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
            emitter.line("const int depth = (p1 - p0) * (c1 - c0);")
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
        part = f"{plan.tiles} tiles of {plan.tile_rows} rows times {plan.panels} panels of {plan.width} columns"
        comment = f"{op.signature()}: a thread computes {part}."
        threads = nest.batch.size * row_blocks * panel_blocks
        work = self._work(row_blocks, panel_blocks)
        return kernel_call(emitter, self.group.outputs, comment, (threads, 1, 1), work=work)

    def _work(self, row_blocks: int, panel_blocks: int) -> int:
        """Iterations: the micro-kernel's steps along k, what is packed of both operands, and the results."""
        plan, k = self.plan, max(self.nest.folded.size, 1)
        rows, columns = self.tiles * plan.tile_rows, self.panel_count * plan.width
        packed = rows * k * panel_blocks + (columns * k * row_blocks if plan.b_local else 0)
        return self.nest.batch.size * (self.tiles * self.panel_count * k + packed + rows * columns)

    # Parts of kernels.

    def _batch(self, emitter: Emitter, text: str) -> list[Ix]:
        """The loop variables of b from its number."""
        size = self.nest.batch.size
        if size == 1:
            return [*self.nest.batch.variables("g")]
        name = emitter.fresh("batch")
        emitter.line(f"const int {name} = {text};")
        extents = self.nest.batch.extents
        return list(unravel(emitter, variable(name, size), extents))

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
        outer = unravel(emitter, p, self.k_outer)
        return [*outer, variable("c", self.k_inner)]

    @property
    def _a_rows_step(self) -> int:
        """Distance of packed rows: k in a block; for rows of A, some more, so that rows fall into
        different sets of the cache."""
        return self.plan.depth + (16 if self.plan.a_by_row else 0)

    def _tile(self, emitter: Emitter) -> list[Ix]:
        """Names a tile's first row among the tiled ones and its number of rows; returns the outer
        row loops."""
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
        return list(unravel(emitter, outer, plan.outer_rows))

    def _row(self, emitter: Emitter, outer: Sequence[Ix]) -> list[Ix]:
        """The row loops' variables inside a loop over i, the row among the tiled ones."""
        if not self.nest.rows.starts:
            return []
        i = variable("i", self._tiled_size)
        tiled = self.plan.tiled_rows
        return [*outer, *unravel(emitter, i, tiled)]

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
                    outside, inside = conditions(emitter, access.tests, ("c",))

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
            outside, inside = conditions(emitter, access.tests, ("i",))

            def put() -> None:
                emitter.line(f"{to} = {element(emitter, access, self.dtype, inside)};")

            self._guarded_loop(emitter, outside, f"int i = i0; i < i0 + {count}; ++i", to, put)

    def _guarded_loop(self, emitter: Emitter, tests: list[str], loop: str, to: str, put: Callable[[], None]) -> None:
        """An innermost loop of `put`, or of zeros unless the tests hold."""
        with emitter.block(f"if ({' && '.join(tests)})" if tests else ""):
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block(f"for ({loop})"):
                put()
        if tests:
            with emitter.block("else"):
                emitter.line(f"for ({loop}) {to} = 0;")

    def _cases(self, name: str, full: int, extent: int) -> Iterator[tuple[str, str]]:
        """Block heads and trip counts: a loop of `full` steps gets code of its own if some loops
        are shorter."""
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
        step = in_place_step(nest, self.group, plan.lanes)
        assert step is not None
        return step

    def _pack_panel(self, emitter: Emitter, b: Sequence[Ix]) -> None:
        """Packs columns n0... of the block of k into `to`, [k][width]; zeros past the last
        column."""
        plan, columns = self.plan, self.nest.columns
        if columns.size % plan.width:
            emitter.line(f"const int columns = min({plan.width}, {columns.size} - n0);")
        with emitter.block("for (int p = p0; p < p1; ++p)"):
            k = self._k(emitter)
            for head, count in self._cases("columns", plan.width, columns.size):
                with emitter.block(head):
                    self._pack_position(emitter, b, k, count)

    def _pack_position(self, emitter: Emitter, b: Sequence[Ix], k: Sequence[Ix], count: str) -> None:
        plan, columns = self.plan, self.nest.columns
        at = f"((p - p0) * {self.k_inner} + c - c0) * {plan.width}"
        n = variable("n", columns.size)
        along_n = f"int n = n0; n < n0 + {count}; ++n"
        along_k = "int c = c0; c < c1; ++c"
        if not plan.b_by_row:
            # A few cache lines of every column at a time.
            along_k = "int c = c16; c < min(c16 + 16, c1); ++c"

        def put() -> None:
            variables = delinearize(n, columns.extents)
            access = self.nest.b(b, k, variables)
            tests, _ = conditions(emitter, access.tests)
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
        with emitter.block("for (int c16 = c0; c16 < c1; c16 += 16)"):
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
        rows = [(f"rows == {plan.tile_rows}", plan.tile_rows)]
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
        along_rows = "for (int i = i0; i < i0 + rows; ++i)"
        along_columns = f"for (int n = n0; n < {end}; ++n)"

        def put(m: Sequence[Ix]) -> None:
            index = nest.result(b, m, n)
            store(emitter, self.group.outputs, index, linearize(index, shape))

        i = variable("i", self._tiled_size)
        if len(plan.tiled_rows) == 1 and self._has_rows_inside(b, outer, i, n):
            with emitter.block(along_columns):
                emitter.line("PJRT_INDEPENDENT")
                with emitter.block(along_rows):
                    put([*outer, i])
            return
        with emitter.block(along_rows):
            m = self._row(emitter, outer)
            emitter.line("PJRT_INDEPENDENT")
            with emitter.block(along_columns):
                put(m)

    def _has_rows_inside(self, b: Sequence[Ix], outer: Sequence[Ix], i: Ix, n: Sequence[Ix]) -> bool:
        """Whether results of neighbouring rows are neighbours in memory."""
        shape = self.nest.contraction.op.result.shape
        return linearize(self.nest.result(b, [*outer, i], n), shape).coefficient("i") == 1


SCHEDULE = ScheduleDef(emit, reads, epilogue=True)
