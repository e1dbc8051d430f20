"""How the software device's schedule of a contraction cuts it into tiles, panels, blocks and
tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlir_lowering.emit import Emitter
from mlir_lowering.index import linearize
from mlir_lowering.kernel import Group
from mlir_lowering.schedules.contraction import Nest, probe
from mlir_lowering.targets import Target

# Rows of a tile: with two vectors of columns, 24 sums in registers.
TILE_ROWS = 12
# Elements of k in a block: a panel of 32 f32 columns is then as large as a first-level cache.
BLOCK = 256
# Bounds of a task: A's tiles and the sums of a task stay in a second-level cache (and on a
# thread's stack).
TASK_TILES = 8
TASK_PANELS = 16
# How many tasks there should be, and the multiply-adds below which a task is not worth cutting.
TASKS = 16
TASK_WORK = 1 << 18
# B is used where it stands up to this many elements: larger strides miss the translation buffers.
IN_PLACE = 1 << 16


@dataclass(frozen=True)
class Plan:
    """Sizes of the nest. Row tiles do not cross the boundary of `tiled_rows`, the innermost row
    loops."""

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


def even_blocks(extent: int, most: int) -> int:
    """The size of blocks that cut `extent` into as few parts of at most `most` as possible, alike
    in size."""
    return -(-extent // -(-extent // most))


def _tile_rows(extent: int) -> int:
    """Rows of a tile: a divisor of `extent` close to the largest if there is one, so that no tile
    is cut."""
    if extent <= TILE_ROWS:
        return extent
    if extent <= 4 * TILE_ROWS:
        for rows in range(TILE_ROWS, 6, -1):
            if extent % rows == 0:
                return rows
    return TILE_ROWS


def make_plan(nest: Nest, group: Group, target: Target) -> Plan:
    """The sizes for a contraction; they depend on the target's vectors, not on its threads."""
    dtype = nest.contraction.accumulator
    k_outer, k_inner = nest.folded.extents[:-1], nest.folded.inner
    b, m = nest.batch.variables("b"), nest.rows.variables("m")
    k, n = nest.folded.variables("k"), nest.columns.variables("n")
    a, b_reads, _ = probe(nest, group, target, (b, m, k, n))
    last_k, last_m = f"k{len(k) - 1}", f"m{len(m) - 1}"
    along_k, along_m = _has_unit_step(a, last_k), _has_unit_step(a, last_m)
    a_by_row = not along_m or (along_k and k_inner >= nest.rows.inner)
    extents = tuple(nest.rows.extents)
    outer, tiled = ((), extents) if a_by_row else (extents[:-1], extents[-1:])
    tile_rows = _tile_rows(math.prod(tiled))

    columns = nest.columns.size
    itemsize = dtype.bytes
    lanes = target.vector_bytes // itemsize
    while lanes > 4 and columns <= lanes // 2:
        lanes //= 2
    vectors = 2 if columns > lanes else 1
    width = lanes * vectors

    depth = BLOCK * 4 // itemsize
    if k_inner >= depth:
        positions, chunk = 1, even_blocks(k_inner, depth)
    else:
        outer_size = math.prod(k_outer)
        positions, chunk = even_blocks(outer_size, depth // k_inner), k_inner

    b_by_row = not _has_unit_step(b_reads, last_k) or _has_unit_step(b_reads, f"n{len(n) - 1}")
    in_place = in_place_step(nest, group, lanes) is not None and (
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
    tiles, panels = even_blocks(row_tiles, tiles), even_blocks(panel_count, panels)
    return Plan(
        tile_rows, lanes, vectors, outer, tiled, a_by_row, b_by_row, in_place, local,
        tiles, panels, positions, chunk,
    )  # fmt: skip


def in_place_step(nest: Nest, group: Group, lanes: int) -> int | None:
    """The distance of B's rows if the micro-kernel can read B where it is, else None."""
    value = nest.contraction.op.operands[1]
    if value.op in group.inlined or value.dtype is not nest.contraction.accumulator:
        return None
    k, n = nest.folded.variables("k"), nest.columns.variables("n")
    access = nest.b(nest.batch.variables("b"), k, n)
    if access.tests or len(k) != 1 or len(n) != 1 or nest.columns.size % lanes:
        return None
    offset = linearize(access.index, value.shape)
    step = offset.coefficient("k0")
    return step if offset.coefficient("n0") == 1 and step else None


def _has_unit_step(emitter: Emitter, name: str) -> bool:
    """Whether the largest input that `emitter` read is read in steps of one along the loop."""
    if not emitter.reads:
        return False
    value = max(emitter.reads, key=lambda v: v.type.size)
    return any(offset.coefficient(name) == 1 for offset in emitter.reads[value])
