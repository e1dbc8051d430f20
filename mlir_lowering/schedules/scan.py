"""Scans: a reduce_window whose every window begins where its dimension begins (or ends where it ends), in O(n).

`cumsum` and its like come as such windows. Any body will do as long as it is associative (StableHLO leaves the order
of a window's fold to the implementation); operands are folded in order and the initial value once, in front.

What both devices share; scan_software.py and scan_gpu.py have the nests. Where sequences are few, each is cut into at
most BLOCKS blocks: a first launch folds every block; the second scans a block from the fold of those before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mlir_lowering.dtypes import F32, DType
from mlir_lowering.emit import Emitter, Expr, wrap
from mlir_lowering.graph import Op, Region, TensorType, Value
from mlir_lowering.index import Index, Ix, linearize, variable
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.monoids import monoid_of
from mlir_lowering.schedules.loops import assign, store, unravel
from mlir_lowering.targets import Target

# Blocks of a sequence: enough for many threads, few enough that each may fold those before it.
BLOCKS = 64


@dataclass(frozen=True)
class Direction:
    """Which dimension a scan walks, and whether from its end."""

    axis: int
    reverse: bool


def direction_of(op: Op) -> Direction | None:
    """How a reduce_window scans its operands; None if it is no scan (`in_order`: its body is not associative)."""
    shape = op.operands[0].shape
    window = op.attrs["window_dimensions"]
    if op.attrs.get("in_order"):
        return None
    scanned = [d for d, n in enumerate(window) if n > 1]
    for name in ("window_strides", "base_dilations", "window_dilations"):
        if any(n != 1 for n in op.attrs.get(name) or ()):
            return None
    if len(scanned) != 1:
        return None
    (axis,) = scanned
    found = op.attrs.get("padding")
    padding = [(0, 0)] * len(shape) if found is None else [(int(lo), int(hi)) for lo, hi in found]
    if any(p != (0, 0) for d, p in enumerate(padding) if d != axis) or window[axis] < shape[axis]:
        return None
    before = window[axis] - 1
    if padding[axis] not in ((before, 0), (0, before)):
        return None
    return Direction(axis, padding[axis][0] == 0)


class Scan:
    """A scan of one or more operands: shape as (outer, n, inner), and how elements are loaded, folded and stored.

    Positions count in the scan's direction.
    """

    def __init__(self, op: Op, direction: Direction) -> None:
        self.op = op
        self.direction = direction
        count = len(op.operands) // 2
        self.operands, self.inits = op.operands[:count], op.operands[count:]
        self.shape = op.operands[0].shape
        axis = direction.axis
        self.outer_shape, self.inner_shape = self.shape[:axis], self.shape[axis + 1 :]
        self.outer, self.n, self.inner = math.prod(self.outer_shape), self.shape[axis], math.prod(self.inner_shape)
        self.dtypes = [accumulation(op, value.dtype) for value in op.results]
        self.region = retyped(op.regions[0], self.dtypes)

    @property
    def what(self) -> str:
        how = "backwards " if self.direction.reverse else ""
        return f"Scans {how}{self.outer} x {self.n} x {self.inner} along the middle"

    def index(self, emitter: Emitter, outer: Ix, position: Ix, inner: Ix) -> Index:
        along = position * -1 + (self.n - 1) if self.direction.reverse else position
        return (
            *unravel(emitter, outer, self.outer_shape),
            along,
            *unravel(emitter, inner, self.inner_shape),
        )

    def elements(self, emitter: Emitter, index: Index) -> list[Expr]:
        return [self._cast(emitter.load(v, index), t) for v, t in zip(self.operands, self.dtypes, strict=True)]

    def start(self, emitter: Emitter) -> list[Expr]:
        """The initial values."""
        return [self._cast(emitter.load(v, ()), t) for v, t in zip(self.inits, self.dtypes, strict=True)]

    def _cast(self, expr: Expr, dtype: DType) -> Expr:
        return expr if expr.dtype is dtype else Expr(f"{dtype.msl}({expr})", dtype)

    def fold(self, emitter: Emitter, a: list[Expr], b: list[Expr]) -> list[Expr]:
        """a (+) b, where a comes first."""
        return emitter.region(self.region, [*a, *b])

    def variables(self, emitter: Emitter, stem: str, extent: int = 0) -> list[str]:
        """Declares a variable (an array with `extent`) for each operand; their names."""
        names = []
        for k, dtype in enumerate(self.dtypes):
            emitter.use(dtype)
            names.append(f"{stem}{k}")
            emitter.line(f"{dtype.msl} {stem}{k}{f'[{extent}]' if extent else ''};")
        return names

    def exprs(self, names: Sequence[str], at: str = "") -> list[Expr]:
        return [Expr(f"{name}{at}", dtype) for name, dtype in zip(names, self.dtypes, strict=True)]

    def assign(self, emitter: Emitter, names: Sequence[str], values: Sequence[Expr], at: str = "") -> None:
        assign(emitter, [f"{name}{at}" for name in names], values)

    def store(self, emitter: Emitter, group: Group, values: Sequence[Expr], index: Index) -> None:
        """Writes the group's outputs at `index`, where the scan's results are `values`."""
        for result, value in zip(self.op.results, values, strict=True):
            dtype = result.dtype
            code = value.code if value.dtype is dtype else f"{dtype.msl}({value})"
            emitter.line(f"const {dtype.msl} scanned{result.index} = {wrap(code, dtype)};")
            emitter.bind(result, lambda _, k=result.index, t=dtype: Expr(f"scanned{k}", t))  # type: ignore[misc]
        store(emitter, group.outputs, index, linearize(index, self.shape))

    def totals(self, shape: tuple[int, ...]) -> list[Value]:
        """Temporaries for the folds of blocks."""
        return [Value(TensorType(shape, dtype)) for dtype in self.dtypes]

    def advance(
        self,
        emitter: Emitter,
        inside: list[str],
        part: list[Expr],
        first: str,
        carry: tuple[list[str], list[str]] | None,
    ) -> None:
        """Folds `part` into what a block has so far, `inside`; on the condition `first` it has nothing yet.

        `carry`: the variables for what comes before the next part, and what came before the block. Kept apart, so that
        small parts of a long sum are not added to a large one again and again.
        """
        with emitter.block(f"if ({first})"):
            self.assign(emitter, inside, part)
        with emitter.block("else"):
            self.assign(emitter, inside, self.fold(emitter, self.exprs(inside), part))
        if carry is not None:
            self.assign(emitter, carry[0], self.fold(emitter, self.exprs(carry[1]), self.exprs(inside)))

    def fold_before(self, emitter: Emitter, names: Sequence[str], totals: list[Value], block: str, at: Index) -> None:
        """Folds the totals of the blocks before `block` into the variables. `at` is their index with block 0."""
        with emitter.block(f"for (int before = 0; before < {block}; ++before)", trips=BLOCKS):
            index = (at[0], at[1] + variable("before", BLOCKS), *at[2:])
            found = [emitter.load(total, index) for total in totals]
            self.assign(emitter, names, self.fold(emitter, self.exprs(names), found))


def accumulation(op: Op, dtype: DType) -> DType:
    """Sums and products of 16-bit floats are kept in f32, and rounded where they are stored."""
    narrow = dtype.is_float and dtype.bits < 32
    return F32 if narrow and monoid_of(op) in ("stablehlo.add", "stablehlo.multiply") else dtype


def retyped(region: Region, dtypes: list[DType]) -> Region:
    """A monoid's region on another type."""
    if [v.dtype for v in region.outputs] == dtypes:
        return region
    (op,) = region.ops
    arguments = [Value(TensorType((), dtype)) for dtype in (*dtypes, *dtypes)]
    of = dict(zip(region.args, arguments, strict=True))
    retyped = Op(op.name, [of[v] for v in op.operands], [TensorType((), dtypes[0])], op.attrs, loc=op.loc)
    return Region(arguments, [retyped], [retyped.result])


def blocks_of(n: int, unit: int, wanted: int) -> tuple[int, int]:
    """Into how many blocks a sequence is cut, at most `wanted`, and their length, a multiple of `unit`."""
    length = max(-(-n // (max(wanted, 1) * unit)), 1) * unit
    return -(-n // length), length


class Nest(Protocol):
    """How a device scans one group."""

    def __init__(self, scan: Scan, group: Group, target: Target) -> None: ...

    def calls(self) -> list[KernelCall]: ...


@dataclass(frozen=True)
class Nests:
    """A device's two: `strips` of sequences side by side, where `neighbours` lie beside one another inside the scanned
    dimension or where they are no longer than `short`, and `rows`, each by itself."""

    strips: type[Nest]
    rows: type[Nest]
    neighbours: int
    short: int


def emit(group: Group, target: Target, direction: Direction, nests: Nests) -> list[KernelCall]:
    assert group.head is not None
    scan = Scan(group.head, direction)
    beside = scan.inner >= nests.neighbours or scan.n <= nests.short
    return (nests.strips if beside else nests.rows)(scan, group, target).calls()
