"""The regions of reductions, windows, scatters and sorts."""

from __future__ import annotations

import numpy as np

from mlir_lowering.dtypes import DType
from tests.fuzz.generate import PRED
from tests.fuzz.graph import Array, Block, Op, Var


def body(kinds: list[str], dtypes: list[DType]) -> Block:
    """Folds k accumulators with k elements, each pair by its monoid. "replace": the second."""
    left = [Var((), d) for d in dtypes]
    right = [Var((), d) for d in dtypes]
    block = Block([*left, *right])
    for kind, a, b, d in zip(kinds, left, right, dtypes, strict=True):
        if kind == "replace":
            block.outputs.append(b)
            continue
        out = Var((), d)
        block.ops.append(Op(kind, [a, b], [out]))
        block.outputs.append(out)
    return block


def argmax_body(kind: str, dtype: DType, index: DType) -> Block:
    from tests.fuzz.choices import compare_attrs

    a, i, b, j = Var((), dtype), Var((), index), Var((), dtype), Var((), index)
    block = Block([a, i, b, j])

    def add(op: str, ins: list[Var], dtype: DType, direction: str = "", of: DType = dtype) -> Var:
        out = Var((), dtype)
        block.ops.append(Op(op, ins, [out], compare_attrs(direction, of) if direction else {}))
        return out

    better = add("compare", [a, b], PRED, "GT" if kind == "argmax" else "LT")
    equal = add("compare", [a, b], PRED, "EQ")
    first = add("compare", [i, j], PRED, "LT", index)
    tie = add("and", [equal, first], PRED)
    keep = add("or", [better, tie], PRED)
    block.outputs = [add("select", [keep, a, b], dtype), add("select", [keep, i, j], index)]
    return block


def comparison(direction: str, dtype: DType) -> Block:
    """Compares two elements: a sort's order, a select's choice."""
    from tests.fuzz.choices import compare_attrs

    a, b, out = Var((), dtype), Var((), dtype), Var((), PRED)
    return Block([a, b], [Op("compare", [a, b], [out], compare_attrs(direction, dtype))], [out])


def monoids(dtype: DType) -> list[str]:
    if dtype.kind == "pred":
        return ["and", "or", "xor"]
    if dtype.is_complex:
        return ["add"]
    if dtype.is_float:
        return ["add"] * 4 + ["maximum"] * 3 + ["minimum", "multiply"]
    return ["add"] * 3 + ["maximum", "minimum", "multiply", "and", "or", "xor"]


def identity(kind: str, dtype: DType) -> Array:
    if dtype.kind == "pred":
        return np.array(kind == "and")
    low, high = (-np.inf, np.inf) if dtype.is_float or dtype.is_complex else _range(dtype)
    value = {"add": 0, "multiply": 1, "maximum": low, "minimum": high, "or": 0, "xor": 0}.get(kind)
    if kind == "and":
        value = -1 if dtype.kind == "int" else high
    return np.array(value).astype(dtype.numpy)


def _range(dtype: DType) -> tuple[int, int]:
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1
