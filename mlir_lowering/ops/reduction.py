"""reduce: folds over dimensions, by a known monoid or by any body."""

from __future__ import annotations

import numpy as np

from mlir_lowering.registry import OpDef, Sample, register


def _reduce(dtype: str, shape: str, result: str, dims: str, op: str, init: str, rtol: float | None = None) -> Sample:
    """`rtol`: where the interpreter's own sum, one element after another, is that inexact."""
    return Sample(
        f"(%x: tensor<{shape}x{dtype}>) -> tensor<{result}{dtype}> {{"
        f" %i = stablehlo.constant dense<{init}> : tensor<{dtype}>"
        f" %0 = stablehlo.reduce(%x init: %i) applies stablehlo.{op} across dimensions = [{dims}]"
        f" : (tensor<{shape}x{dtype}>, tensor<{dtype}>) -> tensor<{result}{dtype}>"
        f" return %0 : tensor<{result}{dtype}> }}",
        rtol=rtol,
    )


_ARGMAX = Sample(
    "(%x: tensor<5x7xf32>) -> (tensor<5xf32>, tensor<5xi32>) {"
    " %n = stablehlo.iota dim = 1 : tensor<5x7xi32>"
    " %a = stablehlo.constant dense<0xFF800000> : tensor<f32>"
    " %b = stablehlo.constant dense<0> : tensor<i32>"
    " %0:2 = stablehlo.reduce(%x init: %a), (%n init: %b) across dimensions = [1]"
    " : (tensor<5x7xf32>, tensor<5x7xi32>, tensor<f32>, tensor<i32>)"
    " -> (tensor<5xf32>, tensor<5xi32>)"
    " reducer(%p: tensor<f32>, %q: tensor<f32>) (%s: tensor<i32>, %t: tensor<i32>) {"
    " %g = stablehlo.compare GE, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>"
    " %v = stablehlo.select %g, %p, %q : tensor<i1>, tensor<f32>"
    " %w = stablehlo.select %g, %s, %t : tensor<i1>, tensor<i32>"
    " stablehlo.return %v, %w : tensor<f32>, tensor<i32> }"
    " return %0#0, %0#1 : tensor<5xf32>, tensor<5xi32> }"
)


def _with_specials(rng: np.random.Generator) -> list[np.ndarray]:
    x = rng.standard_normal((6, 40)).astype(np.float32)
    x[1, 3], x[2, :], x[3, 5] = np.nan, -np.inf, np.inf
    return [x]


register(
    OpDef(
        "stablehlo.reduce",
        schedule="reduce",
        samples=(
            _reduce("f32", "3x5", "3x", "1", "add", "0.0"),
            _reduce("f32", "3x5", "5x", "0", "add", "0.0"),
            _reduce("f32", "3x5", "", "0, 1", "add", "1.5"),
            _reduce("f32", "4x3x33", "3x", "0, 2", "add", "0.0"),
            _reduce("f32", "4x3x33", "4x33x", "1", "add", "0.0"),
            _reduce("f32", "64x40x33", "33x", "0, 1", "add", "0.0", 2e-5),
            _reduce("f32", "200000", "", "0", "add", "0.0", 1e-4),
            # Split in two, but the initial value counts once.
            _reduce("i32", "200000", "", "0", "add", "7"),
            _reduce("f32", "7x5000", "5000x", "0", "add", "0.0"),
            _reduce("f32", "3x5x4099", "3x4099x", "1", "maximum", "0xFF800000"),
            _reduce("f32", "0x5", "5x", "0", "add", "2.0"),
            _reduce("f32", "3x5", "3x", "1", "multiply", "1.0"),
            Sample(_reduce("f32", "6x40", "6x", "1", "maximum", "0xFF800000").text, _with_specials),
            Sample(_reduce("f32", "6x40", "40x", "0", "minimum", "0x7F800000").text, _with_specials),
            _reduce("f16", "9x40", "9x", "1", "add", "0.0", 4e-3),
            _reduce("bf16", "9x40", "40x", "0", "maximum", "0xFF80"),
            _reduce("f64", "9x40", "9x", "1", "add", "0.0"),
            _reduce("i32", "9x40", "9x", "1", "add", "0"),
            _reduce("i32", "9x40", "40x", "0", "minimum", "2147483647"),
            _reduce("ui32", "9x40", "9x", "1", "or", "0"),
            _reduce("i32", "9x40", "9x", "1", "xor", "0"),
            _reduce("i8", "9x40", "9x", "1", "maximum", "-128"),
            # 4-bit sums wrap around; nothing to fold leaves the initial value.
            _reduce("i4", "3x9", "3x", "1", "add", "0"),
            _reduce("ui4", "9x3", "3x", "0", "add", "0"),
            _reduce("f32", "0", "", "0", "maximum", "3.0"),
            _reduce("f32", "3x0", "3x", "1", "add", "0.0"),
            _reduce("f32", "0x5", "0x", "1", "add", "0.0"),
            _reduce("i64", "9x40", "9x", "1", "add", "0"),
            _reduce("i1", "9x40", "9x", "1", "and", "true"),
            _reduce("i1", "9x40", "40x", "0", "or", "false"),
            _reduce("complex<f32>", "9x40", "9x", "1", "add", "(0.0, 0.0)"),
            _reduce("complex<f32>", "70x40", "40x", "0", "add", "(0.0, 0.0)"),
            _reduce("complex<f32>", "3000", "", "0", "add", "(0.0, 0.0)", 1e-5),
            _reduce("complex<f64>", "9x40", "40x", "0", "multiply", "(1.0, 0.0)"),
            _ARGMAX,
        ),
        rtol=2e-6,
        atol=1e-5,
    )
)
