"""Turns index functions into straight lines of MSL: one named temporary a value, each computed once a scope.

A schedule opens loops, then asks for elements: `emitter.load(value, index)`. A value that the kernel reads from
memory becomes a load; a value computed inside the kernel is expanded by its op's element function, which loads
its operands in turn. That recursion is fusion.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlir_lowering.dtypes import DType
from mlir_lowering.errors import unsupported
from mlir_lowering.graph import Op, Region, Value, release_later
from mlir_lowering.index import Index, Ix, bounded, linearize
from mlir_lowering.registry import OPS
from mlir_lowering.targets import Target
from mlir_lowering.work import Work


@dataclass(frozen=True)
class Expr:
    """MSL text of one element (a temporary's name or a literal) and its type."""

    code: str
    dtype: DType

    def __str__(self) -> str:
        return self.code


# How a schedule or region supplies a value's element: from the index it is wanted at.
Binding = Callable[[Index], Expr]


def literal(value: Any, dtype: DType) -> str:
    """MSL text of a constant, exact to the bit. A negative one has parentheses: it may stand behind a minus."""
    text = _literal(value, dtype)
    return f"({text})" if text.startswith("-") else text


def _literal(value: Any, dtype: DType) -> str:
    if dtype.kind == "pred":
        return "true" if value else "false"
    if dtype.is_complex:
        number = complex(value)
        return f"{dtype.msl}({literal(number.real, dtype.part)}, {literal(number.imag, dtype.part)})"
    if dtype.is_integer:
        integer = int(value)
        if dtype.bits == 64:
            if integer == -(2**63):
                return "(-9223372036854775807l - 1)"
            return f"{integer}{'ul' if dtype.kind == 'uint' else 'l'}"
        if integer == -(2**31):
            return "(-2147483647 - 1)"
        return f"{integer}u" if dtype.kind == "uint" else str(integer)
    real = float(value)
    if dtype.name == "f64":
        if math.isnan(real) or math.isinf(real):
            bits = struct.unpack("<Q", struct.pack("<d", real))[0]
            return f"as_type<double>({bits}ul)"
        return f"double({real.hex()})"
    if math.isnan(real) or math.isinf(real):
        bits = struct.unpack("<I", struct.pack("<f", real))[0]
        text = f"as_type<float>({bits:#x}u)"
    else:
        text = f"{float(np.float32(real)).hex()}f"
    return text if dtype.name == "f32" else f"{dtype.msl}({text})"


def arithmetic_type(dtype: DType) -> str:
    """The MSL type to add and multiply in: signed overflow is undefined in C++, and narrow types promote to int."""
    if dtype.is_float or dtype.is_complex:
        return dtype.msl
    return "ulong" if dtype.bits == 64 else "uint"


def wrap(code: str, dtype: DType) -> str:
    """`code` reduced to the dtype's width, for integers narrower than the byte that holds them."""
    if dtype.bits >= 8 or not dtype.is_integer:
        return code
    if dtype.kind == "uint":
        return f"uchar(({code}) & {(1 << dtype.bits) - 1})"
    spare = 8 - dtype.bits
    return f"char(char(({code}) << {spare}) >> {spare})"


class Emitter:
    """The body of one kernel under construction.

    `inlined`: ops evaluated inside the kernel; any other value is an input buffer. `accesses` collects every
    index expression the body depends on, so that a schedule can see which loops may merge; `reads` the offsets
    that each input is read at.
    """

    def __init__(self, target: Target, inlined: Container[Op]) -> None:
        self.target = target
        self.inlined = inlined
        self.inputs: dict[Value, str] = {}
        self.lines: list[str] = []
        self.accesses: set[Ix] = set()
        self.reads: dict[Value, set[Ix]] = {}
        self.on_host = False
        self.function_cost = 0  # of the calls of transcendental functions in the text
        self.work = Work()
        self._depth = 1
        self._names = 0
        # By (dtype, code), by (value, index), and by what dynamic_index clamps.
        self._scopes: list[dict[tuple[Any, ...], Expr]] = [{}]
        self._bindings: dict[Value, Binding] = {}
        release_later(self._bindings.clear)  # they know the emitter

    # Text.

    def line(self, text: str) -> None:
        self.work.line(text)
        self.lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str, *, trips: int | None = None, total: int | None = None) -> Iterator[None]:
        """`head { ... }` with a scope: what is computed inside is not used after it.

        A loop whose head does not say how long it is gets a bound (work.py): `trips` a thread, or `total` of all.
        """
        self.lines.append("  " * self._depth + head + " {")
        self.work.enter(head, trips, total)
        self._depth += 1
        self._scopes.append({})
        try:
            yield
        finally:
            self._scopes.pop()
            self._depth -= 1
            self.work.leave()
            self.line("}")

    def fresh(self, stem: str = "t") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _find(self, key: tuple[Any, ...]) -> Expr | None:
        """What an enclosing scope has computed under `key`."""
        for scope in self._scopes[::-1]:
            if (found := scope.get(key)) is not None:
                return found
        return None

    def let(self, dtype: DType, code: str) -> Expr:
        """A new temporary holding `code`; the same text of the same type is computed once a scope."""
        key = (dtype, code)
        if (found := self._find(key)) is not None:
            return found
        self.use(dtype)
        name = self.fresh()
        self.line(f"const {dtype.msl} {name} = {code};")
        expr = Expr(name, dtype)
        self._scopes[-1][key] = expr
        return expr

    def use(self, dtype: DType) -> None:
        """Notes that the kernel computes with `dtype`. Raises CompileError if no kernel can."""
        if not dtype.msl:
            raise unsupported(f"arithmetic on {dtype.name}", "", "use f16, bf16 or f32")
        if dtype.name == "bf16" and self.target.language < 31:
            raise unsupported("bf16 before macOS 14 (MSL 3.1)", "", "use f16 or f32, or a newer macOS")
        self.on_host |= dtype.on_host

    def constant(self, value: Any, dtype: DType) -> Expr:
        self.use(dtype)
        return Expr(literal(value, dtype), dtype)

    # Elements.

    def bind(self, value: Value, binding: Binding) -> None:
        """Supplies a value's elements: a schedule's accumulators, a region's arguments."""
        self._bindings[value] = binding

    def load(self, value: Value, index: Index) -> Expr:
        """The element of `value` at `index`, computed or loaded once a scope.

        Chains of pointwise ops are expanded with a stack of our own: they are as long as the user's program.
        """
        known = self._known(value, index)
        if known is not None:
            return known
        stack = [(value, index)]
        while True:
            current, at = stack[-1]
            pending = self._pending_operand(current, at)
            if pending is not None:
                stack.append(pending)
                continue
            stack.pop()
            expr = self._known(current, at) or self._evaluate(current, at)
            self._scopes[-1][(current, at)] = expr
            if not stack:
                return expr

    def _known(self, value: Value, index: Index) -> Expr | None:
        return self._find((value, index))

    def _pending_operand(self, value: Value, index: Index) -> tuple[Value, Index] | None:
        op = value.op
        if op is None or op not in self.inlined or value in self._bindings:
            return None
        if not OPS[op.name].pointwise:
            return None
        for operand in op.operands:
            if operand.shape == value.shape and self._known(operand, index) is None:
                return operand, index
        return None

    def _evaluate(self, value: Value, index: Index) -> Expr:
        binding = self._bindings.get(value)
        if binding is not None:
            return binding(index)
        op = value.op
        if op is not None and op in self.inlined:
            element = OPS[op.name].element
            if element is None:
                raise unsupported(f"{op.signature()} where single elements are computed", str(op.loc))
            return element(self, op, index)
        return self.load_input(value, linearize(index, value.shape))

    def load_input(self, value: Value, offset: Ix) -> Expr:
        """Element `offset` of an input buffer."""
        name = self.input(value)
        self.accesses.add(offset)
        self.reads.setdefault(value, set()).add(offset)
        # A host's 4-bit integers come with any upper bits.
        return self.let(value.dtype, wrap(f"{name}[{offset}]", value.dtype))

    def input(self, value: Value) -> str:
        """The name of the input buffer that holds `value`."""
        if value not in self.inputs:
            self.use(value.dtype)
            self.inputs[value] = f"in{len(self.inputs)}"
        return self.inputs[value]

    def guarded(self, condition: str, then: Callable[[], Expr], otherwise: Expr) -> Expr:
        """`condition ? then() : otherwise`, where then() is evaluated (and its memory read) only if it holds."""
        self.use(otherwise.dtype)
        name = self.fresh()
        self.line(f"{otherwise.dtype.msl} {name} = {otherwise};")
        with self.block(f"if ({condition})"):
            self.line(f"{name} = {then()};")
        return Expr(name, otherwise.dtype)

    def in_range(self, ix: Ix, lo: int, hi: int) -> str | None:
        """The condition lo <= ix < hi as text, or None if the range proves it."""
        self.accesses.add(ix)
        low, high = ix.range
        tests = []
        if low < lo:
            tests.append(f"{ix} >= {lo}")
        if high >= hi:
            tests.append(f"{ix} < {hi}")
        return " && ".join(tests) if tests else None

    def index_value(self, ix: Ix, dtype: DType) -> Expr:
        """An index as a number of type `dtype` (iota)."""
        self.accesses.add(ix)
        code = f"{dtype.msl}({dtype.part.msl}({ix}), 0)" if dtype.is_complex else f"{dtype.msl}({ix})"
        return self.let(dtype, wrap(code, dtype))

    def dynamic_index(self, expr: Expr, lo: int, hi: int) -> Ix:
        """A run-time integer as an index, clamped to [lo, hi] as StableHLO's dynamic ops do."""
        if lo == hi:
            return bounded("", lo, hi)
        low, high = literal(lo, expr.dtype), literal(hi, expr.dtype)
        wide = expr.code if expr.dtype.bits >= 32 else f"int({expr})"
        if expr.dtype.bits < 32:
            low, high = str(lo), str(hi)
        key = ("index", wide, lo, hi)
        if (found := self._find(key)) is not None:
            return bounded(found.code, lo, hi)
        name = self.fresh("d")
        clamped = f"clamp({wide}, {low}, {high})"
        if expr.dtype.bits == 64:  # of which Apple lists no clamp
            clamped = f"{wide} < {low} ? {low} : ({wide} > {high} ? {high} : {wide})"
        self.line(f"const int {name} = int({clamped});")
        self._scopes[-1][key] = Expr(name, expr.dtype)
        return bounded(name, lo, hi)

    def region(self, region: Region, arguments: list[Expr]) -> list[Expr]:
        """A region of scalar ops (a reduction's body, a comparator) applied to `arguments`.

        Values are evaluated afresh: the arguments differ from one application to the next.
        """
        self._scopes.append({})
        outer = self.inlined
        self.inlined = _RegionOps(outer, region)
        try:
            for argument, expr in zip(region.args, arguments, strict=True):
                self._scopes[-1][(argument, ())] = expr
            return [self.load(output, ()) for output in region.outputs]
        finally:
            self.inlined = outer
            self._scopes.pop()


class _RegionOps(Container[Op]):
    """The inlined ops of a kernel and those of a region applied inside it."""

    def __init__(self, outer: Container[Op], region: Region) -> None:
        self._outer = outer
        self._inner = set(region.ops)

    def __contains__(self, op: object) -> bool:
        return op in self._inner or op in self._outer
