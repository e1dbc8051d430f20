"""Windows and sorting: ops whose loop nests are in schedules/window.py and schedules/sort.py."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mlir_lowering.registry import OpDef, Sample, register


def _pool(dtype: str, shape: str, result: str, op: str, init: str, window: str, attrs: str = "") -> Sample:
    """reduce_window of one operand: `attrs` is text such as `, window_strides = array<i64: 2, 2>`."""
    return Sample(
        f"(%x: tensor<{shape}x{dtype}>) -> tensor<{result}x{dtype}> {{"
        f" %i = stablehlo.constant dense<{init}> : tensor<{dtype}>"
        f' %0 = "stablehlo.reduce_window"(%x, %i) <{{window_dimensions = array<i64: {window}>{attrs}}}> ({{'
        f" ^bb0(%a: tensor<{dtype}>, %b: tensor<{dtype}>):"
        f" %r = stablehlo.{op} %a, %b : tensor<{dtype}> stablehlo.return %r : tensor<{dtype}> }})"
        f" : (tensor<{shape}x{dtype}>, tensor<{dtype}>) -> tensor<{result}x{dtype}>"
        f" return %0 : tensor<{result}x{dtype}> }}"
    )


def _padding(text: str) -> str:
    rank = text.count("[")
    return f", padding = dense<[{text}]> : tensor<{rank}x2xi64>"


def _taken_once(sample: Sample) -> Sample:
    """An initial value that is no identity: XLA takes it in once, the interpreter for every element of padding."""
    return replace(sample, oracle="xla")


def _first(shape: str, result: str, attrs: str) -> Sample:
    """The first element of a window that is not zero: associative, and not commutative."""
    sample = _pool("f32", shape, result, "add", "0.0", shape, attrs)
    body = (
        "%z = stablehlo.compare NE, %a, %i : (tensor<f32>, tensor<f32>) -> tensor<i1>"
        " %r = stablehlo.select %z, %a, %b : tensor<i1>, tensor<f32>"
    )
    text = sample.text.replace("%r = stablehlo.add %a, %b : tensor<f32>", body)

    def inputs(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        values = rng.standard_normal(int(shape)).astype(np.float32)
        values[:4] = 0
        return [values]

    return Sample(text, inputs)


register(
    OpDef(
        "stablehlo.reduce_window",
        schedule="reduce_window",
        samples=(
            _pool("f32", "7", "6", "add", "0.0", "2"),
            _pool(
                "f32",
                "2x8x8x3",
                "2x4x4x3",
                "maximum",
                "0xFF800000",
                "1, 2, 2, 1",
                ", window_strides = array<i64: 1, 2, 2, 1>",
            ),
            _pool(
                "f32",
                "2x9x7x20",
                "2x5x4x20",
                "maximum",
                "0xFF800000",
                "1, 3, 3, 1",
                ", window_strides = array<i64: 1, 2, 2, 1>,"
                " padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>",
            ),
            _pool(
                "f32",
                "1x3x11x11",
                "1x3x3x3",
                "add",
                "0.0",
                "1, 1, 5, 5",
                ", window_strides = array<i64: 1, 1, 3, 3>",
            ),
            _pool(
                "f32",
                "6x5",
                "10x4",
                "add",
                "0.0",
                "2, 2",
                ", base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 1, 1>",
            ),
            _pool(
                "i32",
                "9x4",
                "5x4",
                "add",
                "0",
                "3, 1",
                ", window_dilations = array<i64: 2, 1>",
            ),
            _pool(
                "f32",
                "5",
                "5",
                "add",
                "0.0",
                "5",
                ", padding = dense<[[4, 0]]> : tensor<1x2xi64>",
            ),
            # Scans: along rows, in blocks, backwards, along columns, and of a body that is not commutative.
            _pool("f32", "3x40", "3x40", "maximum", "0xFF800000", "1, 40", _padding("[0, 0], [39, 0]")),
            _pool("i32", "2101", "2101", "add", "0", "2101", _padding("[0, 2100]")),
            _pool("f32", "2x301", "2x301", "minimum", "0x7F800000", "1, 310", _padding("[0, 0], [309, 0]")),
            _pool("i8", "301x17", "301x17", "add", "0", "301, 1", _padding("[0, 300], [0, 0]")),
            _pool("ui8", "301x3x2", "301x3x2", "or", "0", "301, 1, 1", _padding("[300, 0], [0, 0], [0, 0]")),
            _first("301", "301", _padding("[300, 0]")),
            # Windows so large that they become scans.
            _pool("i32", "200x3", "161x3", "add", "0", "40, 1"),
            _pool("f32", "60x70", "60x70", "maximum", "0xFF800000", "40, 35", _padding("[20, 19], [17, 17]")),
            _taken_once(_pool("i32", "97", "78", "add", "3", "120", _padding("[60, 40]"))),
            _pool(
                "i32",
                "201",
                "95",
                "minimum",
                "7",
                "40",
                ", window_strides = array<i64: 4>, base_dilations = array<i64: 2>,"
                " window_dilations = array<i64: 3>, padding = dense<[[50, 46]]> : tensor<1x2xi64>",
            ),
        ),
        rtol=2e-6,
        atol=1e-6,
    )
)


def _scatter_to_selected(shape: str, source: str, window: str, attrs: str) -> Sample:
    return Sample(
        f"(%x: tensor<{shape}xf32>, %s: tensor<{source}xf32>) -> tensor<{shape}xf32> {{"
        " %i = stablehlo.constant dense<0.0> : tensor<f32>"
        ' %0 = "stablehlo.select_and_scatter"(%x, %s, %i)'
        f" <{{window_dimensions = array<i64: {window}>{attrs}}}> ({{"
        " ^bb0(%a: tensor<f32>, %b: tensor<f32>):"
        " %r = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>"
        " stablehlo.return %r : tensor<i1> }, {"
        " ^bb0(%a: tensor<f32>, %b: tensor<f32>):"
        " %r = stablehlo.add %a, %b : tensor<f32> stablehlo.return %r : tensor<f32> })"
        f" : (tensor<{shape}xf32>, tensor<{source}xf32>, tensor<f32>) -> tensor<{shape}xf32>"
        f" return %0 : tensor<{shape}xf32> }}"
    )


register(
    OpDef(
        "stablehlo.select_and_scatter",
        schedule="select_and_scatter",
        samples=(
            _scatter_to_selected("2x8x8x3", "2x4x4x3", "1, 2, 2, 1", ", window_strides = array<i64: 1, 2, 2, 1>"),
            _scatter_to_selected(
                "2x9x7x4",
                "2x5x4x4",
                "1, 3, 3, 1",
                ", window_strides = array<i64: 1, 2, 2, 1>,"
                " padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>",
            ),
            _scatter_to_selected("11x7", "7x6", "5, 2", ""),
            # Windows that cover an element so often that each selects once.
            _scatter_to_selected("20x21", "12x7", "9, 9", ", window_strides = array<i64: 1, 2>"),
        ),
        rtol=1e-6,
        atol=1e-6,
    )
)


def _sort(operands: list[tuple[str, str]], shape: str, dimension: int, compare: str) -> Sample:
    """`operands`: (name, dtype); `compare`: how the first operand's %a0 and %b0 are compared."""
    types = [f"tensor<{shape}x{t}>" for _, t in operands]
    names = ", ".join(f"%{n}" for n, _ in operands)
    arguments = ", ".join(f"%{n}: {t}" for (n, _), t in zip(operands, types, strict=True))
    block = ", ".join(f"%a{i}: tensor<{t}>, %b{i}: tensor<{t}>" for i, (_, t) in enumerate(operands))
    first = operands[0][1]
    results = f"({', '.join(types)})"
    count = f":{len(types)}" if len(types) > 1 else ""
    returned = ", ".join(f"%0#{i}" for i in range(len(types))) if count else "%0"
    return Sample(
        f"({arguments}) -> {results} {{"
        f' %0{count} = "stablehlo.sort"({names}) <{{dimension = {dimension} : i64, is_stable = true}}> ({{'
        f" ^bb0({block}):"
        f" %r = stablehlo.compare {compare}, %a0, %b0 : (tensor<{first}>, tensor<{first}>) -> tensor<i1>"
        f" stablehlo.return %r : tensor<i1> }}) : ({', '.join(types)}) -> {results}"
        f" return {returned} : {', '.join(types)} }}"
    )


def _few_values(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Many ties, so that an unstable sort shows."""
    keys = rng.integers(0, 5, (4, 33)).astype(np.int32)
    return [keys, np.arange(keys.size, dtype=np.float32).reshape(keys.shape)]


register(
    OpDef(
        "stablehlo.sort",
        schedule="sort",
        samples=(
            _sort([("x", "f32")], "17", 0, "LT"),
            _sort([("x", "f32")], "3x50", 1, "GT"),
            _sort([("x", "i32")], "6x5x4", 1, "LT"),
            Sample(_sort([("x", "i32"), ("y", "f32")], "4x33", 1, "LT").text, _few_values),
            _sort([("x", "ui8")], "1", 0, "LT"),
            _sort([("x", "f32"), ("y", "i32")], "3x0", 1, "LT"),
        ),
    )
)
