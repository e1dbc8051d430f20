"""dot_general and convolution: both head the schedule in schedules/contraction.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.registry import OpDef, Sample, register


def _dot(lhs: str, rhs: str, result: str, numbers: str, inputs: Any = None) -> Sample:
    """`lhs`...: types such as 2x3xf32; `numbers`: such as `contracting_dims = [1] x [0]`."""
    types = f"(tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>"
    return Sample(
        f"(%a: tensor<{lhs}>, %b: tensor<{rhs}>) -> tensor<{result}> {{"
        f" %0 = stablehlo.dot_general %a, %b, {numbers} : {types}"
        f" return %0 : tensor<{result}> }}",
        inputs,
        oracle="xla",
    )


def _whole_numbers(*shapes: tuple[int, ...], dtype: Any) -> Any:
    """Small whole numbers, whose products' sums are exact, or nearly so, in every type."""

    def draw(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        return [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]

    return draw


register(
    OpDef(
        "stablehlo.dot_general",
        schedule="contraction",
        samples=(
            _dot("3x4xf32", "4x5xf32", "3x5xf32", "contracting_dims = [1] x [0]"),
            _dot("50x70xf32", "70x45xf32", "50x45xf32", "contracting_dims = [1] x [0]"),
            # Several blocks of k; cut tiles and panels; A, B and both transposed.
            _dot("37x600xf32", "600x70xf32", "37x70xf32", "contracting_dims = [1] x [0]"),
            _dot("300x37xf32", "300x50xf32", "37x50xf32", "contracting_dims = [0] x [0]"),
            _dot("130x65xf32", "67x65xf32", "130x67xf32", "contracting_dims = [1] x [1]"),
            _dot("65x130xf32", "67x65xf32", "130x67xf32", "contracting_dims = [0] x [1]"),
            # Enough rows and columns for a packed B, and a B that needs no packing.
            _dot("203x64xf32", "64x100xf32", "203x100xf32", "contracting_dims = [1] x [0]"),
            _dot("400x300xf32", "300x32xf32", "400x32xf32", "contracting_dims = [1] x [0]"),
            _dot("64x64xf32", "64x10xf32", "64x10xf32", "contracting_dims = [1] x [0]"),
            _dot("90x90xf32", "90x3xf32", "90x3xf32", "contracting_dims = [1] x [0]"),
            _dot("20x30xcomplex<f32>", "30x40xcomplex<f32>", "20x40xcomplex<f32>", "contracting_dims = [1] x [0]"),
            _dot("5x7xcomplex<f64>", "6x7xcomplex<f64>", "5x6xcomplex<f64>", "contracting_dims = [1] x [1]"),
            # Vectors.
            _dot("70xf32", "70xf32", "f32", "contracting_dims = [0] x [0]"),
            _dot("40x70xf32", "70xf32", "40xf32", "contracting_dims = [1] x [0]"),
            _dot("70xf32", "70x400xf32", "400xf32", "contracting_dims = [0] x [0]"),
            _dot("5xf32", "7xf32", "5x7xf32", "contracting_dims = [] x []"),
            # Batches, and dimensions in other orders.
            _dot(
                "3x20x40xf32",
                "3x40x30xf32",
                "3x20x30xf32",
                "batching_dims = [0] x [0], contracting_dims = [2] x [1]",
            ),
            _dot(
                "2x33x4x16xf32",
                "2x29x4x16xf32",
                "2x4x33x29xf32",
                "batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3]",
            ),
            _dot(
                "6x40x20xf32",
                "40x30x6xf32",
                "6x20x30xf32",
                "batching_dims = [0] x [2], contracting_dims = [1] x [0]",
            ),
            _dot("5x4x6x7xf32", "7x3x6x8xf32", "5x4x3x8xf32", "contracting_dims = [2, 3] x [2, 0]"),
            _dot("30x4x20xf32", "20x30x9xf32", "4x9xf32", "contracting_dims = [2, 0] x [0, 1]"),
            # Other element types.
            _dot(
                "40x50xbf16",
                "50x60xbf16",
                "40x60xbf16",
                "contracting_dims = [1] x [0]",
                _whole_numbers((40, 50), (50, 60), dtype=np.float32),
            ),
            _dot("40x50xbf16", "50x60xbf16", "40x60xf32", "contracting_dims = [1] x [0]"),
            _dot("40x50xf16", "50x60xf16", "40x60xf32", "contracting_dims = [1] x [0]"),
            _dot("40x50xi32", "50x60xi32", "40x60xi32", "contracting_dims = [1] x [0]"),
            _dot(
                "40x50xi8",
                "50x60xi8",
                "40x60xi32",
                "contracting_dims = [1] x [0]",
                _whole_numbers((40, 50), (50, 60), dtype=np.int8),
            ),
            _dot("40x50xui8", "50x60xui8", "40x60xui8", "contracting_dims = [1] x [0]"),
            _dot("40x50xi64", "50x60xi64", "40x60xi64", "contracting_dims = [1] x [0]"),
            _dot("40x50xf64", "50x60xf64", "40x60xf64", "contracting_dims = [1] x [0]"),
            # Nothing to sum, nothing to store.
            _dot("3x0xf32", "0x5xf32", "3x5xf32", "contracting_dims = [1] x [0]"),
            _dot("3x4xf32", "4x0xf32", "3x0xf32", "contracting_dims = [1] x [0]"),
        ),
        cost=64,
        rtol=1e-5,
        atol=1e-4,
    )
)


def _conv(lhs: str, rhs: str, result: str, numbers: str, window: str = "", groups: str = "") -> Sample:
    """`groups`: feature and batch group counts, "1, 1" if empty."""
    features, batches = (groups or "1, 1").split(", ")
    return Sample(
        f"(%x: tensor<{lhs}>, %w: tensor<{rhs}>) -> tensor<{result}> {{"
        f" %0 = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}}"
        f" {{feature_group_count = {features} : i64, batch_group_count = {batches} : i64}}"
        f" : (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}> return %0 : tensor<{result}> }}",
        oracle="xla",
    )


_NHWC = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
_NCHW = "[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]"
# Gradient of a convolution's kernel: batch and features change places.
_FILTER_GRADIENT = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"

register(
    OpDef(
        "stablehlo.convolution",
        schedule="contraction",
        samples=(
            _conv("2x9x5xf32", "3x5x7xf32", "2x7x7xf32", "[b, 0, f]x[0, i, o]->[b, 0, f]"),
            _conv("2x8x7x20xf32", "3x3x20x33xf32", "2x8x7x33xf32", _NHWC, "pad = [[1, 1], [1, 1]]"),
            _conv(
                "2x9x9x3xf32",
                "3x3x3x40xf32",
                "2x5x5x40xf32",
                _NHWC,
                "stride = [2, 2], pad = [[1, 1], [1, 1]]",
            ),
            _conv("2x9x5xcomplex<f32>", "3x5x7xcomplex<f32>", "2x7x7xcomplex<f32>", "[b, 0, f]x[0, i, o]->[b, 0, f]"),
            _conv("3x8x8x40xf32", "1x1x40x48xf32", "3x8x8x48xf32", _NHWC),
            _conv("2x20x9x14xf32", "24x20x3x3xf32", "2x24x9x14xf32", _NCHW, "pad = [[1, 1], [1, 1]]"),
            _conv(
                "1x4x5x6x3xf32",
                "2x3x2x3x20xf32",
                "1x3x3x5x20xf32",
                "[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]",
            ),
            _conv("6x40xf32", "40x30xf32", "6x30xf32", "[b, f]x[i, o]->[b, f]"),
            # Negative padding, dilations, a reversed kernel.
            _conv("2x10x10x8xf32", "3x3x8x16xf32", "2x7x9x16xf32", _NHWC, "pad = [[-1, 0], [2, -1]]"),
            _conv("2x12x12x8xf32", "3x3x8x16xf32", "2x8x8x16xf32", _NHWC, "rhs_dilate = [2, 2]"),
            _conv(
                "2x5x5x24xf32",
                "3x3x24x16xf32",
                "2x10x11x16xf32",
                _NHWC,
                "pad = [[1, 2], [2, 2]], lhs_dilate = [2, 2]",
            ),
            _conv(
                "2x5x5x24xf32",
                "3x3x24x16xf32",
                "2x5x5x16xf32",
                _NHWC,
                "pad = [[1, 1], [1, 1]], reverse = [true, true]",
            ),
            # Groups: of features, depthwise, of the batch (a depthwise kernel's gradient).
            _conv("2x8x8x24xf32", "3x3x8x36xf32", "2x6x6x36xf32", _NHWC, groups="3, 1"),
            _conv(
                "2x8x8x40xf32",
                "3x3x1x40xf32",
                "2x8x8x40xf32",
                _NHWC,
                "pad = [[1, 1], [1, 1]]",
                "40, 1",
            ),
            _conv("4x9x9x8xf32", "3x3x8x30xf32", "2x7x7x30xf32", _NHWC, groups="1, 2"),
            _conv(
                "2x8x8x40xf32",
                "2x8x8x40xf32",
                "3x3x1x40xf32",
                _FILTER_GRADIENT,
                "pad = [[1, 1], [1, 1]]",
                "1, 40",
            ),
            # Gradients of the kernel, of a convolution with stride 2 as well.
            _conv(
                "4x8x8x20xf32",
                "4x8x8x33xf32",
                "3x3x20x33xf32",
                _FILTER_GRADIENT,
                "pad = [[1, 1], [1, 1]]",
            ),
            _conv(
                "4x9x9x20xf32",
                "4x4x4x33xf32",
                "3x3x20x33xf32",
                _FILTER_GRADIENT,
                "rhs_dilate = [2, 2]",
            ),
            _conv("2x8x8x8xf64", "3x3x8x16xf64", "2x6x6x16xf64", _NHWC),
            _conv("2x8x8x8xbf16", "3x3x8x16xbf16", "2x6x6x16xf32", _NHWC),
            _conv("0x8x8x8xf32", "3x3x8x16xf32", "0x6x6x16xf32", _NHWC),
            _conv("2x8x8x0xf32", "3x3x0x16xf32", "2x6x6x16xf32", _NHWC),
        ),
        cost=64,
        rtol=1e-5,
        atol=1e-4,
    )
)
