"""Programs that once failed, as MLIR files: arguments and results are comments, so a file needs nothing else.

// what was wrong
// input tensor<3xf32> 0000803f0000004000004040
// result tensor<3xf32> 0000803f0000004000004040 [bound f64 hex]
func.func @main ...
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlir_lowering.dtypes import BY_NAME, DType
from tests.fuzz.graph import Array, Case, module_text
from tests.fuzz.values import Val

FOLDER = Path(__file__).parent / "found"


@dataclass
class Kept:
    text: str
    inputs: list[Array]
    results: list[tuple[DType, Val]]


def kept_text(case: Case, inputs: list[Array], want: list[Val], what: str) -> str:
    lines = [f"// {line}" for line in what.splitlines()]
    for v, x in zip(case.block.args, inputs, strict=True):
        lines.append(f"// input {v.type} {_hex(x)}")
    for v, val in zip(case.block.outputs, want, strict=True):
        bound = "" if val.err is None else f" bound {_hex(val.err)}"
        signed = "" if val.signed else " unsigned-zeros"
        lines.append(f"// result {v.type} {_hex(val.array)}{bound}{signed}")
    return "\n".join([*lines, module_text(case)])


def _hex(array: Array) -> str:
    return np.asarray(array, order="C").tobytes().hex() or "-"


_LINE = re.compile(r"// (input|result) tensor<((?:\d+x)*)([^>]+>?)> (\S+)(?: bound (\S+))?( unsigned-zeros)?")


def read(path: Path) -> Kept:
    text = path.read_text()
    kept = Kept(text, [], [])
    for line in text.splitlines():
        if found := _LINE.fullmatch(line):
            what, dims, name, data, bound, unsigned = found.groups()
            shape = tuple(int(n) for n in dims.split("x") if n)
            dtype = BY_NAME[name]
            array = _array(data, dtype.numpy, shape)
            if what == "input":
                kept.inputs.append(array)
            else:
                err = _array(bound, np.dtype(np.float64), shape) if bound else None
                kept.results.append((dtype, Val(array, err, not unsigned)))
    return kept


def _array(data: str, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    return np.frombuffer(bytearray.fromhex(data.replace("-", "")), dtype).reshape(shape)
