"""Partial updates: dynamic_update_slice and scatter (schedules/update.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.registry import OpDef, Sample, register


def _update_slice(dtype: str, shape: str, update: str, starts: list[int]) -> Sample:
    names = [f"%s{i}" for i in range(len(starts))]
    constants = "".join(
        f" {n} = stablehlo.constant dense<{v}> : tensor<i32>" for n, v in zip(names, starts, strict=True)
    )
    index_types = ", ".join(["tensor<i32>"] * len(starts))
    return Sample(
        f"(%x: tensor<{shape}x{dtype}>, %u: tensor<{update}x{dtype}>) -> tensor<{shape}x{dtype}> {{"
        f"{constants} %0 = stablehlo.dynamic_update_slice %x, %u, {', '.join(names)} :"
        f" (tensor<{shape}x{dtype}>, tensor<{update}x{dtype}>, {index_types}) -> tensor<{shape}x{dtype}>"
        f" return %0 : tensor<{shape}x{dtype}> }}"
    )


register(
    OpDef(
        "stablehlo.dynamic_update_slice",
        schedule="dynamic_update_slice",
        samples=(
            _update_slice("f32", "7x5", "2x3", [4, 1]),
            _update_slice("f32", "7x5", "2x3", [100, -7]),
            _update_slice("i8", "40", "3", [11]),
            _update_slice("bf16", "3x4x5", "1x4x5", [2, 0, 0]),
            _update_slice("f64", "9", "9", [0]),
            _update_slice("i1", "9x2", "4x1", [3, 1]),
            _update_slice("f32", "7x5", "2x0", [4, 1]),
        ),
    )
)


def _scatter(
    shape: str,
    indices: str,
    updates: str,
    numbers: str,
    body: str = "add",
    dtype: str = "f32",
    inputs: Any = None,
) -> Sample:
    return Sample(
        f"(%x: tensor<{shape}x{dtype}>, %i: tensor<{indices}xi32>, %u: tensor<{updates}{dtype}>)"
        f" -> tensor<{shape}x{dtype}> {{"
        f' %0 = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{'
        f" ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):"
        + (
            f" stablehlo.return %b : tensor<{dtype}>"
            if body == "replace"
            else f" %r = stablehlo.{body} %a, %b : tensor<{dtype}> stablehlo.return %r : tensor<{dtype}>"
        )
        + f" }}) : (tensor<{shape}x{dtype}>, tensor<{indices}xi32>, tensor<{updates}{dtype}>)"
        f" -> tensor<{shape}x{dtype}> return %0 : tensor<{shape}x{dtype}> }}",
        inputs,
    )


def _inputs(shape: tuple[int, ...], indices: tuple[int, ...], updates: tuple[int, ...], high: int) -> Any:
    """Random indices in [0, high), some of them colliding, and some wholly outside.

    Windows that lie outside in part are left out: XLA drops them whole, the reference interpreter by element.
    """

    def make(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        return [
            rng.standard_normal(shape).astype(np.float32),
            rng.choice([*range(high), -50, 50], indices).astype(np.int32),
            rng.standard_normal(updates).astype(np.float32),
        ]

    return make


def _scatter_many(body: str, dtype: str) -> Sample:
    def inputs(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        numpy = {"f32": np.float32, "i32": np.int32}[dtype]
        rows = rng.choice([-50, 50, *range(11), 3, 3, 3, 3], (1100, 1)).astype(np.int32)
        before, updates = ((rng.standard_normal(shape) * 9).astype(numpy) for shape in ((11, 3), (1100, 3)))
        return [before, rows, updates]

    return _scatter(
        "11x3",
        "1100x1",
        "1100x3x",
        "update_window_dims = [1], inserted_window_dims = [0],"
        " scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
        body=body,
        dtype=dtype,
        inputs=inputs,
    )


def _after_another(sample: Sample) -> Sample:
    """The update less what was there: rows must be applied in their order."""
    return Sample(sample.text.replace("subtract %a, %b", "subtract %b, %a"), sample.inputs)


register(
    OpDef(
        "stablehlo.scatter",
        schedule="scatter",
        samples=(
            # Rows into a table, as an embedding's gradient does.
            _scatter(
                "11x6",
                "20x1",
                "20x6x",
                "update_window_dims = [1], inserted_window_dims = [0],"
                " scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                inputs=_inputs((11, 6), (20, 1), (20, 6), 11),
            ),
            _scatter(
                "11x300",
                "20x1",
                "20x300x",
                "update_window_dims = [1], inserted_window_dims = [0],"
                " scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                inputs=_inputs((11, 300), (20, 1), (20, 300), 11),
            ),
            # Single elements, addressed by both coordinates.
            _scatter(
                "5x7",
                "9x2",
                "9x",
                "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1",
                inputs=_inputs((5, 7), (9, 2), (9,), 5),
            ),
            # Windows that overlap.
            _scatter(
                "12x4",
                "6x1",
                "6x3x4x",
                "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                inputs=_inputs((12, 4), (6, 1), (6, 3, 4), 10),
            ),
            _scatter(
                "12x4",
                "6x1",
                "6x3x4x",
                "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                body="maximum",
                inputs=_inputs((12, 4), (6, 1), (6, 3, 4), 10),
            ),
            _scatter(
                "5x7",
                "1",
                "7x",
                "update_window_dims = [0], inserted_window_dims = [0],"
                " scatter_dims_to_operand_dims = [0], index_vector_dim = 0",
                body="replace",
                inputs=_inputs((5, 7), (1,), (7,), 5),
            ),
            # A batch dimension shared by operand and indices.
            _scatter(
                "3x8",
                "3x4x1",
                "3x4x",
                "inserted_window_dims = [1], input_batching_dims = [0],"
                " scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],"
                " index_vector_dim = 2",
                inputs=_inputs((3, 8), (3, 4, 1), (3, 4), 8),
            ),
            # A window for each place in the batch.
            _scatter(
                "3x50",
                "3x1",
                "3x7x",
                "update_window_dims = [1], input_batching_dims = [0],"
                " scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1],"
                " index_vector_dim = 1",
                inputs=_inputs((3, 50), (3, 1), (3, 7), 43),
            ),
            # Many rows.
            *(_scatter_many(body, dtype) for body, dtype in (("add", "f32"), ("replace", "f32"), ("maximum", "i32"))),
            _after_another(_scatter_many("subtract", "f32")),
            _scatter(
                "60x4",
                "300x1",
                "300x8x4x",
                "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1",
                inputs=_inputs((60, 4), (300, 1), (300, 8, 4), 53),
            ),
        ),
        rtol=2e-6,
        atol=1e-5,
    )
)
