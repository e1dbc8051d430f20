"""Random programs as data: typed variables, ops, blocks, and their StableHLO text.

Programs come from `generate.py` and `choices.py`, their expected results from `evaluate.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlir_lowering.dtypes import BY_NAME, DType

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

_numbers = itertools.count()


@dataclass(eq=False)
class Var:
    """A value of a program: `%v<number>`."""

    shape: Shape
    dtype: DType
    number: int = field(default_factory=lambda: next(_numbers))

    def __str__(self) -> str:
        return f"%v{self.number}"

    @property
    def type(self) -> str:
        return tensor(self.shape, self.dtype)

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def tensor(shape: Shape, dtype: DType) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{dtype.name}>"


@dataclass(eq=False)
class Block:
    """Arguments, ops in order, and what it returns."""

    args: list[Var]
    ops: list[Op] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)

    def free(self) -> Iterator[Var]:
        """What it reads from outside, regions included."""
        known = set(self.args)
        for op in self.ops:
            yield from (v for v in op.reads() if v not in known)
            known.update(op.outs)
        yield from (v for v in self.outputs if v not in known)


@dataclass(eq=False)
class Op:
    kind: str
    ins: list[Var]
    outs: list[Var]
    attrs: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def reads(self) -> Iterator[Var]:
        yield from self.ins
        for block in self.blocks:
            yield from block.free()


@dataclass
class Case:
    """A program, its arguments' values, and which of them it may overwrite."""

    block: Block
    inputs: list[Array]
    donated: list[bool]


def module_text(case: Case) -> str:
    """The program as StableHLO text."""
    arguments = ", ".join(f"{v}: {v.type}{a}" for v, a in zip(case.block.args, _donations(case), strict=True))
    results = ", ".join(v.type for v in case.block.outputs)
    lines = [f"func.func @main({arguments}) -> ({results}) {{"]
    lines += _lines(case.block, "  ", "func.return")
    return "\n".join([*lines, "}", ""])


def _donations(case: Case) -> list[str]:
    """The attributes of arguments that may be overwritten: by an output of their type, if one is left."""
    left = list(enumerate(case.block.outputs))
    texts = []
    for v, donated in zip(case.block.args, case.donated, strict=True):
        fitting = [item for item in left if donated and item[1].type == v.type]
        if fitting:
            left.remove(fitting[0])
            texts.append(f" {{tf.aliasing_output = {fitting[0][0]} : i32}}")
        else:
            texts.append(" {jax.buffer_donor = true}" if donated else "")
    return texts


def _lines(block: Block, indent: str, terminator: str) -> list[str]:
    lines = []
    for op in block.ops:
        lines += op_text(op, indent)
    names = ", ".join(map(str, block.outputs))
    types = ", ".join(v.type for v in block.outputs)
    return [*lines, f"{indent}{terminator} {names} : {types}"]


def region(block: Block, indent: str) -> list[str]:
    """A region's lines, braces included."""
    arguments = ", ".join(f"{v}: {v.type}" for v in block.args)
    head = [f"{indent}^bb0({arguments}):"] if block.args else []
    return ["{", *head, *_lines(block, indent + "  ", "stablehlo.return"), indent + "}"]


def op_text(op: Op, indent: str) -> list[str]:
    """MLIR's generic form, which is the same for every op."""
    attrs = ", ".join(f"{name} = {value}" for name, value in op.attrs.items() if not name.startswith("_"))
    properties = f" <{{{attrs}}}>" if attrs else ""
    names = ", ".join(map(str, op.ins))
    inputs = ", ".join(v.type for v in op.ins)
    outputs = ", ".join(v.type for v in op.outs)
    # Generic results are named one by one: %a, %b = ...
    results = ", ".join(map(str, op.outs))
    head = f'{indent}{results} = "stablehlo.{op.kind}"({names}){properties}'
    tail = f" : ({inputs}) -> ({outputs})"
    if not op.blocks:
        return [head + tail]
    lines = [head + " ({"]
    for number, block in enumerate(op.blocks):
        body = region(block, indent + "  ")
        lines += body[1:-1]
        lines.append(indent + ("}, {" if number + 1 < len(op.blocks) else "})" + tail))
    return lines


def dense(values: Array, dtype: DType) -> str:
    """A constant's `value` attribute."""
    type = tensor(values.shape, dtype)
    if values.size == 0:
        return f"dense<> : {type}"
    if dtype.kind == "pred" or (dtype.bits < 8 and dtype.is_integer):
        words = np.array([str(v).lower() for v in values.astype(bool if dtype.kind == "pred" else int).flat])
        text = np.array2string(
            words.reshape(values.shape), separator=",", threshold=1 << 30, formatter={"str_kind": str}
        )
        return f"dense<{text}> : {type}"
    return f'dense<"0x{np.ascontiguousarray(values).tobytes().hex().upper()}"> : {type}'


def i64s(values: Any) -> str:
    return f"array<i64: {', '.join(map(str, values))}>" if len(values) else "array<i64>"


def dtype(name: str) -> DType:
    return BY_NAME[name]
