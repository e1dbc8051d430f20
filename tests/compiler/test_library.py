"""Which contractions become library calls. What those compute: tests/metal/test_library.py."""

from __future__ import annotations

import pytest

import mlir_lowering.ops
from mlir_lowering.options import CompileOptions
from mlir_lowering.pipeline import compile_program
from mlir_lowering.program import Launch, Library, LibraryKind, Program
from mlir_lowering.targets import parse_target

assert mlir_lowering.ops

APPLE = "apple8:simd_width=32,threads=1024,threadgroup_bytes=32768,language=31"
NHWC = "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"
FILTER_GRADIENT = "[f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f]"
_3D = "[b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f]"
_BACKWARDS = "pad = [[2, 2], [2, 2]], reverse = [true, true]"


def _compile(text: str, target: str = APPLE) -> Program:
    return compile_program(f"func.func @main{text}".encode(), CompileOptions(), parse_target(target))


def _dot(
    lhs: str = "20x30xf32", rhs: str = "30x10xf32", result: str = "20x10xf32", numbers: str = "", after: str = ""
) -> str:
    numbers = numbers or "contracting_dims = [1] x [0]"
    types = f"(tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}>"
    end = f"{after} return %1 : tensor<{result}>" if after else f"return %0 : tensor<{result}>"
    return (
        f"(%a: tensor<{lhs}>, %b: tensor<{rhs}>) -> tensor<{result}> {{"
        f" %0 = stablehlo.dot_general %a, %b, {numbers} : {types} {end} }}"
    )


def _conv(lhs: str, rhs: str, result: str, window: str = "", numbers: str = NHWC, groups: str = "1, 1") -> str:
    features, batches = groups.split(", ")
    return (
        f"(%x: tensor<{lhs}>, %w: tensor<{rhs}>) -> tensor<{result}> {{"
        f" %0 = stablehlo.convolution(%x, %w) dim_numbers = {numbers}, window = {{{window}}}"
        f" {{feature_group_count = {features} : i64, batch_group_count = {batches} : i64}}"
        f" : (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{result}> return %0 : tensor<{result}> }}"
    )


def _kinds(program: Program) -> list[str]:
    return [type(step).__name__ for step in program.body]


def test_a_plain_dot_is_a_call_with_its_kernels() -> None:
    program = _compile(_dot())
    (step,) = program.body
    assert isinstance(step, Library) and step.op.kind is LibraryKind.MATMUL
    assert [launch.kernel for launch in step.kernels] == [0]
    assert set(step.kernels[0].slots) == set(step.slots)
    assert "library matmul 1x20x30 * 1x30x10 -> 1x20x10" in program.text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (_conv("2x9x9x4xf32", "3x3x4x8xf32", "2x5x5x8xf32", "stride = [2, 2], pad = [[1, 1], [1, 1]]"), "CONVOLUTION"),
        # One position has no direction.
        (_conv("2x9x9x4xf32", "1x1x4x8xf32", "2x9x9x8xf32", "reverse = [true, true]"), "CONVOLUTION"),
        (_conv("2x5x5x8xf32", "3x3x8x4xf32", "2x7x7x4xf32", _BACKWARDS), "DATA_GRADIENT"),
        (
            _conv("2x4x4x9xf32", "2x4x4x8xf32", "3x3x9x8xf32", "pad = [[1, 1], [1, 1]]", FILTER_GRADIENT),
            "WEIGHTS_GRADIENT",
        ),
    ],
)
def test_convolutions_by_their_geometry(text: str, kind: str) -> None:
    (step,) = _compile(text).body
    assert isinstance(step, Library) and step.op.kind is LibraryKind[kind]


@pytest.mark.parametrize(
    "text",
    [
        _dot("20x30xi32", "30x10xi32", "20x10xi32"),
        _dot("20x30xbf16", "30x10xbf16", "20x10xf32"),
        # A vector.
        _dot("1x30xf32", "30x10xf32", "1x10xf32"),
        # Where MPSGraph is known to be wrong.
        _dot("20x32767xf32", "32767x10xf32", "20x10xf32"),
        _conv("1x1x65540x2xf32", "1x3x2x4xf32", "1x1x65538x4xf32"),
        _conv("65536x3x3x2xf32", "2x2x2x4xf32", "65536x2x2x4xf32"),
        _conv("1x1x600x2xf32", "1x256x2x4xf32", "1x1x345x4xf32"),
        # Behind it, and in front: something to compute, and memory that is not read once and in whole.
        _dot(after="%1 = stablehlo.tanh %0 : tensor<20x10xf32>"),
        "(%a: tensor<20x30xf32>) -> tensor<20x20xf32> { %0 = stablehlo.slice %a [0:20, 0:20] : (tensor<20x30xf32>) ->"
        " tensor<20x20xf32> %1 = stablehlo.dot_general %0, %0, contracting_dims = [1] x [0] : (tensor<20x20xf32>,"
        " tensor<20x20xf32>) -> tensor<20x20xf32> return %1 : tensor<20x20xf32> }",
        "(%a: tensor<20x30xf32>, %b: tensor<30x10xf32>) -> tensor<20x10xf32> { %0 = stablehlo.reverse %a, dims = [0] :"
        " tensor<20x30xf32> %1 = stablehlo.dot_general %0, %b, contracting_dims = [1] x [0] : (tensor<20x30xf32>,"
        " tensor<30x10xf32>) -> tensor<20x10xf32> return %1 : tensor<20x10xf32> }",
        # Holes in the input, and a kernel that is not walked backwards; padding that cuts; three dimensions.
        _conv("2x5x5x8xf32", "3x3x8x4xf32", "2x9x9x4xf32", "pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]"),
        _conv("2x5x5x8xf32", "3x3x8x4xf32", "2x2x3x4xf32", "pad = [[-1, 0], [0, 0]]"),
        _conv("2x5x5x8xf32", "3x3x8x4xf32", "2x3x3x4xf32", "reverse = [true, false]"),
        _conv("1x4x5x6x3xf32", "2x3x2x3x8xf32", "1x3x3x5x8xf32", "", _3D),
        # Groups of the batch and a kernel walked backwards.
        _conv("4x9x9x8xf32", "3x3x8x30xf32", "2x7x7x30xf32", "reverse = [true, true]", groups="1, 2"),
    ],
)
def test_what_the_library_does_not_get(text: str) -> None:
    assert "Library" not in _kinds(_compile(text))


def test_targets_decide() -> None:
    bfloat = _dot("20x30xbf16", "30x10xbf16", "20x10xbf16")
    assert _kinds(_compile(bfloat)) == ["Library"]
    assert _kinds(_compile(_dot("20x30xf16", "30x10xf16", "20x10xf16"), APPLE.replace("31", "30"))) == ["Library"]
    assert "Library" not in _kinds(_compile(_dot(), "software:threads=2,vector_bytes=64"))


def _with_epilogue(k: int, before: str = "") -> str:
    types = f"(tensor<1024x{k}xf32>, tensor<{k}x1024xf32>) -> tensor<1024x1024xf32>"
    return (
        f"(%a: tensor<1024x{k}xf32>, %b: tensor<{k}x1024xf32>) -> tensor<1024x1024xf32> {{ {before}"
        f" %0 = stablehlo.dot_general %{'c' if before else 'a'}, %b, contracting_dims = [1] x [0] : {types}"
        " %1 = stablehlo.tanh %0 : tensor<1024x1024xf32> return %1 : tensor<1024x1024xf32> }"
    )


def test_an_epilogue_is_left_unfused_where_arithmetic_outweighs_it() -> None:
    """By the model: 2 k / 4 operations saved an element, against 2 * 4 bytes * 32 and a launch's share of 20."""
    assert _kinds(_compile(_with_epilogue(512))) == ["Launch"]
    assert _kinds(_compile(_with_epilogue(600))) == ["Library", "Launch"]
    # The library could not do it anyway: its operand is computed while tiles are packed.
    computed = "%c = stablehlo.tanh %a : tensor<1024x600xf32>"
    program = _compile(_with_epilogue(600, computed))
    assert "Library" not in _kinds(program)
    assert _kinds(program)[-1] == "Launch" and len(program.body) == len(program.kernels)


def test_operands_are_kept_until_the_result_is_written() -> None:
    """The kernels' second half does not read them; the library does."""
    program = _compile(
        "(%a: tensor<64x512xf32>, %b: tensor<512x512xf32>, %c: tensor<512x64xf32>) -> tensor<f32> {"
        " %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<64x512xf32>, tensor<512x512xf32>)"
        " -> tensor<64x512xf32>"
        " %1 = stablehlo.dot_general %0, %c, contracting_dims = [1] x [0] : (tensor<64x512xf32>, tensor<512x64xf32>)"
        " -> tensor<64x64xf32>"
        " %z = stablehlo.constant dense<0.0> : tensor<f32>"
        " %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [0, 1] :"
        " (tensor<64x64xf32>, tensor<f32>) -> tensor<f32> return %2 : tensor<f32> }"
    )
    second = [step for step in program.body if isinstance(step, Library)][1]
    assert len(second.kernels) == 2 and all(isinstance(launch, Launch) for launch in second.kernels)
    lhs, _, result = (program.slots[number] for number in second.slots)
    assert lhs.kind == result.kind
    assert lhs.offset + lhs.bytes <= result.offset or result.offset + result.bytes <= lhs.offset
