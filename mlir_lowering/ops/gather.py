"""gather: slices of an array at run-time positions, clamped so that each lies inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import GatherDimensionNumbers, Op
from mlir_lowering.index import ZERO, Index, Ix, constant
from mlir_lowering.registry import OpDef, Sample, register


def _gather(emitter: Emitter, op: Op, index: Index) -> Expr:
    x, indices = op.operands
    numbers: GatherDimensionNumbers = op.attrs["dimension_numbers"]
    sizes = op.attrs["slice_sizes"]
    batch = [ix for d, ix in enumerate(index) if d not in numbers.offset_dims]
    offsets = iter([index[d] for d in numbers.offset_dims])
    source: list[Ix] = []
    for d, n in enumerate(x.shape):
        inside = ZERO if d in numbers.collapsed_slice_dims or d in numbers.operand_batching_dims else next(offsets)
        if d in numbers.operand_batching_dims:
            dim = numbers.start_indices_batching_dims[numbers.operand_batching_dims.index(d)]
            # Batch indices are the indices' dimensions without the index vector's.
            inside = batch[dim - (numbers.index_vector_dim < dim)]
        elif d in numbers.start_index_map:
            at = list(batch)
            if numbers.index_vector_dim < len(indices.shape):
                at.insert(numbers.index_vector_dim, constant(numbers.start_index_map.index(d)))
            start = emitter.load(indices, tuple(at))
            inside = inside + emitter.dynamic_index(start, 0, n - sizes[d])
        source.append(inside)
    return emitter.load(x, tuple(source))


def _sample(x: str, indices: str, result: str, numbers: str, sizes: str, high: int, dtype: str = "i32") -> Sample:
    def inputs(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        def shape(text: str) -> list[int]:
            return [int(n) for n in text.split("x")]

        values = rng.integers(-3 if dtype[0] == "i" else 0, high + 3, shape(indices))
        return [
            rng.standard_normal(shape(x)).astype(np.float32),
            values.astype({"i32": np.int32, "i64": np.int64, "ui8": np.uint8}[dtype]),
        ]

    types = f"(tensor<{x}xf32>, tensor<{indices}x{dtype}>) -> tensor<{result}xf32>"
    return Sample(
        f"(%x: tensor<{x}xf32>, %i: tensor<{indices}x{dtype}>) -> tensor<{result}xf32> {{"
        f' %0 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<{numbers}>,'
        f" slice_sizes = array<i64: {sizes}>, indices_are_sorted = false}}> : {types}"
        f" return %0 : tensor<{result}xf32> }}",
        inputs,
    )


register(
    OpDef(
        "stablehlo.gather",
        element=_gather,
        samples=(
            # Rows of a table, as an embedding does.
            _sample(
                "11x6",
                "4x5x1",
                "4x5x6",
                "offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2",
                "1, 6",
                11,
            ),
            # Single elements by both coordinates.
            _sample(
                "5x7",
                "9x2",
                "9",
                "collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1",
                "1, 1",
                7,
                "i64",
            ),
            # Windows, coordinates in the other order.
            _sample(
                "8x9",
                "6x2",
                "6x3x2",
                "offset_dims = [1, 2], start_index_map = [1, 0], index_vector_dim = 1",
                "3, 2",
                8,
            ),
            _sample(
                "40",
                "6",
                "6x3",
                "offset_dims = [1], start_index_map = [0], index_vector_dim = 1",
                "3",
                40,
                "ui8",
            ),
            # A batch dimension shared by operand and indices.
            _sample(
                "3x8",
                "3x4x1",
                "3x4",
                "collapsed_slice_dims = [1], operand_batching_dims = [0],"
                " start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2",
                "1, 1",
                8,
            ),
        ),
    )
)
