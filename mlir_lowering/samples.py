"""A record's samples as programs: their text and their arguments, for whoever runs them."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from mlir_lowering import importer
from mlir_lowering.graph import TensorType
from mlir_lowering.registry import Sample

Array = np.ndarray[Any, Any]


def module_text(sample: Sample) -> str:
    return f"func.func @main{sample.text}"


def types_of(text: str) -> tuple[list[TensorType], list[TensorType]]:
    """Argument and result types of `main`."""
    with importer.lock:
        graph = importer.build(importer.normalize(importer.decode(text.encode())))
    return [v.type for v in graph.args], [v.type for v in graph.outputs]


def sample_inputs(sample: Sample) -> list[Array]:
    """The sample's arguments, the same in every run."""
    rng = np.random.default_rng(zlib.crc32(sample.text.encode()))
    arguments, _ = types_of(module_text(sample))
    if sample.inputs is None:
        return [_draw(type, rng) for type in arguments]
    made = sample.inputs(rng)
    return [np.asarray(x).astype(type.dtype.numpy).reshape(type.shape) for x, type in zip(made, arguments, strict=True)]


def _draw(type: TensorType, rng: np.random.Generator) -> Array:
    dtype = type.dtype
    if dtype.kind == "pred":
        return np.asarray(rng.integers(0, 2, type.shape)).astype(np.bool_)
    if dtype.is_integer:
        low = 0 if dtype.kind == "uint" else -(2 ** min(dtype.bits - 1, 3))
        return np.asarray(rng.integers(low, 2 ** min(dtype.bits - 1, 4), type.shape)).astype(dtype.numpy)
    values = np.asarray(rng.standard_normal(type.shape) * 2)
    if dtype.is_complex:
        values = values + 2j * rng.standard_normal(type.shape)
    return values.astype(dtype.numpy)
