"""Builds random programs. Every op is evaluated as it is added, so that only those stay whose result is known sharply.

Most numbers are small integers, even as floats: then most programs are exact, and any wrong number shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlir_lowering.dtypes import BY_NAME, DType
from tests.fuzz.evaluate import Env, run_op
from tests.fuzz.graph import Array, Block, Case, Op, Shape, Var, dense
from tests.fuzz.values import Reject, Val

PRED, I32, F32 = BY_NAME["i1"], BY_NAME["i32"], BY_NAME["f32"]
_DTYPES = {
    "f32": 12, "i32": 5, "f16": 2, "bf16": 2, "i1": 2, "i8": 1, "i16": 1, "i64": 1, "ui8": 1, "ui16": 1, "ui32": 1,
    "ui64": 1, "i4": 0.4, "ui4": 0.4, "complex<f32>": 1, "f64": 0.7,
}  # fmt: skip
_DIMS = (1, 2, 3, 4, 5, 6, 7, 8, 11, 13, 16, 17, 31, 32, 33, 37)
# Elements of a value: most programs are small, since their kernels cost the same; some have work for every loop.
_SIZES = (60, 400, 3000)
# Wide programs: enough elements for split reductions, sequences in parts, long rows and many threadgroups.
_WIDE = (20_000, 60_000, 150_000)
# What stands beside a long dimension: few rows or columns, or enough for strips of neighbours.
_BESIDE = (1, 2, 3, 5, 16, 33, 40, 64, 100, 257)
# A constant is text of the program: larger values are arguments.
_LARGEST_CONSTANT = 5000


@dataclass(frozen=True)
class Style:
    """How large a program is."""

    low: int
    high: int
    wide: bool = False


SMALL = Style(5, 12)
LARGE = Style(13, 60)
WIDE = Style(3, 9, True)


class Generator:
    """Adds ops to one block; blocks inside it have generators of their own that share its random numbers."""

    def __init__(
        self, rng: np.random.Generator, block: Block, env: Env, parent: Generator | None = None, wide: bool = False
    ) -> None:
        self.rng, self.block, self.env, self.parent = rng, block, env, parent
        self.here: list[Var] = list(block.args)
        self.depth = 0 if parent is None else parent.depth + 1
        if parent is not None:
            self.dtypes, self.dims, self.limit = parent.dtypes, parent.dims, parent.limit
            self.inputs, self.special, self.wide = parent.inputs, parent.special, parent.wide
        else:
            names = list(_DTYPES)
            weights = np.array(list(_DTYPES.values()))
            chosen = rng.choice(len(names), int(rng.integers(1, 5)), False, weights / weights.sum())
            self.dtypes = [BY_NAME[names[i]] for i in chosen]
            if rng.random() < 0.7 and F32 not in self.dtypes:
                self.dtypes.append(F32)
            self.dims = [int(x) for x in rng.choice(_DIMS, 4)]
            if rng.random() < 0.04:
                self.dims.append(0)
            self.limit = int(rng.choice(_SIZES, p=(0.55, 0.35, 0.1)))
            if rng.random() < 0.15:
                long = int(rng.choice([64, 67, 100, 128, 257, 1000, 1500, 2049]))
                self.dims.append(long)
                self.limit = max(self.limit, long)
            self.wide = wide
            if wide:
                self.limit = int(rng.choice(_WIDE))
                other = int(rng.choice(_BESIDE))
                long = self.limit // other - int(rng.integers(0, 5))
                self.dims = [self.dims[0], other, long, long]
            self.inputs: list[Array] = []
            self.special = rng.random() < 0.25

    # ------------------------------------------------------------ random choices

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def between(self, low: int, high: int) -> int:
        """In [low, high]."""
        return int(self.rng.integers(low, high + 1))

    def choose(self, items: Any) -> Any:
        if not len(items):
            raise Reject("nothing to choose from")
        return items[self.between(0, len(items) - 1)]

    def shape(self, rank: int | None = None) -> Shape:
        rank = int(self.rng.choice([0, 1, 2, 3, 4], p=(0.08, 0.37, 0.33, 0.16, 0.06))) if rank is None else rank
        for _ in range(20):
            shape = tuple(self.choose(self.dims) if self.chance(0.8) else self.between(1, 5) for _ in range(rank))
            if math.prod(shape) <= self.limit:
                return shape
        return tuple(self.between(1, 3) for _ in range(rank))

    def dtype(self, *kinds: str) -> DType:
        fitting = [d for d in self.dtypes if not kinds or d.kind in kinds]
        if fitting:
            return self.choose(fitting)  # type: ignore[no-any-return]
        usual = {"float": F32, "int": I32, "uint": BY_NAME["ui32"], "pred": PRED, "complex": BY_NAME["complex<f32>"]}
        return usual[kinds[0]]

    def draw(self, shape: Shape, dtype: DType, plain: bool = False) -> Array:
        """An argument's values: mostly small integers; sometimes anything."""
        rng = self.rng
        if dtype.kind == "pred":
            return np.asarray(rng.random(shape) < 0.5)
        if dtype.is_integer:
            bits = min(dtype.bits, 62)
            if self.chance(0.15) and not plain:
                low = -(2 ** (bits - 1)) if dtype.kind == "int" else 0
                return np.asarray(rng.integers(low, 2 ** (bits - 1), shape)).astype(dtype.numpy)
            low = -(2 ** min(bits - 1, 3)) if dtype.kind == "int" else 0
            return np.asarray(rng.integers(low, min(2 ** (bits - 1), 10), shape)).astype(dtype.numpy)
        values = np.asarray(rng.integers(-4, 5, shape)).astype(np.float64)
        if self.chance(0.15) and not plain:
            values = np.asarray(rng.standard_normal(shape)) * 2
        elif self.chance(0.15):
            values = values / 2
        if dtype.is_complex:
            return np.asarray(values + 1j * rng.integers(-4, 5, shape)).astype(dtype.numpy)
        if self.special and not plain and self.chance(0.5):
            specials = [np.nan, np.inf, -np.inf, -0.0, 0.0]
            if dtype.name == "f16":
                specials.append(3e-7)
            chosen = rng.choice(specials, shape)
            values = np.where(rng.random(shape) < 0.2, chosen, values)
        return np.asarray(values).astype(dtype.numpy)

    # ------------------------------------------------------------ values

    def visible(self) -> list[Var]:
        """What an op may read: this block's, and those outside if its region may."""
        outer = self.parent.visible() if self.parent is not None and self.open else []
        return outer + self.here

    open = False

    def pick(self, test: Callable[[Var], bool] = lambda v: True) -> Var:
        """A visible value that fits, rather a late one."""
        fitting = [v for v in self.visible() if test(v)]
        if not fitting:
            raise Reject("no such value")
        if self.wide and self.chance(0.6):
            fitting = [v for v in fitting if 8 * v.size > self.limit] or fitting
        if self.chance(0.6):
            fitting = fitting[-6:]
        return self.choose(fitting)  # type: ignore[no-any-return]

    def val(self, v: Var) -> Val:
        return self.env[v]

    def emit(
        self,
        kind: str,
        ins: list[Var],
        outs: list[tuple[Shape, DType]],
        attrs: dict[str, Any] | None = None,
        blocks: list[Block] | None = None,
    ) -> list[Var]:
        """Adds the op if its result can be known."""
        op = Op(kind, ins, [Var(*t) for t in outs], attrs or {}, blocks or [])
        if any(v.size > max(4 * self.limit, 10000) for v in op.outs):
            raise Reject("large")
        found = run_op(op, self.env)
        for v, val in zip(op.outs, found, strict=True):
            assert val.array.shape == v.shape and val.array.dtype == v.dtype.numpy, (kind, val.array, v.type)
            self.env[v] = val
        self.block.ops.append(op)
        self.here += op.outs
        return op.outs

    def one(self, kind: str, ins: list[Var], out: tuple[Shape, DType], attrs: dict[str, Any] | None = None) -> Var:
        return self.emit(kind, ins, [out], attrs)[0]

    def constant(self, array: Array, dtype: DType) -> Var:
        array = np.asarray(array).astype(dtype.numpy)
        return self.one("constant", [], (array.shape, dtype), {"value": dense(array, dtype), "_value": array})

    def scalar(self, value: Any, dtype: DType) -> Var:
        return self.constant(np.array(value), dtype)

    def fresh(self, shape: Shape, dtype: DType, plain: bool = False) -> Var:
        """A new argument of the program, or a constant inside a region."""
        values = self.draw(shape, dtype, plain)
        small = values.size <= _LARGEST_CONSTANT
        if self.parent is not None and not small:
            raise Reject("a large constant")
        if self.parent is not None or (small and self.chance(0.15)):
            return self.constant(values, dtype)
        v = Var(shape, dtype)
        self.block.args.append(v)
        self.inputs.append(values)
        self.env[v] = Val(values)
        self.here.append(v)
        return v

    def of(self, shape: Shape, dtype: DType) -> Var:
        """A value of this type: one that is there, one made from another, or a new one."""
        fitting = [v for v in self.visible() if v.shape == shape and v.dtype is dtype]
        if fitting and self.chance(0.8):
            return self.choose(fitting[-8:])  # type: ignore[no-any-return]
        if self.chance(0.6):
            try:
                v = self.pick(lambda v: v.dtype is dtype and v.size > 0)
                return self.reshaped(v, shape)
            except Reject:
                pass
        return self.fresh(shape, dtype)

    def reshaped(self, v: Var, shape: Shape) -> Var:
        """The value in another shape: reshape, broadcast, or cut and padded."""
        if v.shape == shape:
            return v
        if v.size == math.prod(shape):
            return self.one("reshape", [v], (shape, v.dtype))
        return self.broadcast(v, shape)

    def broadcast(self, v: Var, shape: Shape) -> Var:
        from tests.fuzz.graph import i64s

        dims: list[int] = []
        at = len(shape)
        for n in reversed(v.shape):
            at -= 1
            while at >= 0 and n not in (1, shape[at]):
                at -= 1
            if at < 0:
                raise Reject("cannot broadcast")
            dims.insert(0, at)
        return self.one("broadcast_in_dim", [v], (shape, v.dtype), {"broadcast_dimensions": i64s(dims), "_dims": dims})


def build(seed: int, style: Style) -> Case:
    """The program of a seed."""
    from tests.fuzz.choices import add_op

    rng = np.random.default_rng(seed)
    block = Block([])
    g = Generator(rng, block, {}, wide=style.wide)
    if style.wide:
        _, beside, long, _ = g.dims
        g.fresh(g.choose([(long,), (beside, long), (long, beside)]), g.dtype())
    for _ in range(g.between(1, 3)):
        g.fresh(g.shape(), g.dtype())
    wanted = g.between(style.low, style.high)
    for _ in range(4 * wanted):
        if sum(op.kind != "constant" for op in block.ops) >= wanted:
            break
        add_op(g)
    outputs(g)
    case = Case(block, g.inputs, [])
    case.donated = [g.chance(0.35) for _ in block.args]
    return case


def outputs(g: Generator) -> None:
    """Mostly the last and the unused values; sometimes any, an argument, or one twice."""
    block = g.block
    read = {v for op in block.ops for v in op.reads()}
    unused = [v for op in block.ops for v in op.outs if v not in read]
    chosen = [v for v in unused if g.chance(0.85)]
    made = [v for op in block.ops for v in op.outs]
    if made:
        chosen += [g.choose(made) for _ in range(g.between(0, 3))]
    if g.chance(0.1) and block.args:
        chosen.append(g.choose(block.args))
    if g.chance(0.9):
        chosen = list(dict.fromkeys(chosen))
    block.outputs = chosen[-12:] or ([made[-1]] if made else block.args[:1])


def redraw(case: Case, seed: int) -> list[Array]:
    """Other values for the arguments, of the same kind."""
    g = Generator(np.random.default_rng(seed), Block([]), {})
    return [g.draw(v.shape, v.dtype) for v in case.block.args]
