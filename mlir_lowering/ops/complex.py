"""A complex number from its parts, and its parts: complex, real, imag."""

from __future__ import annotations

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Op
from mlir_lowering.index import Index
from mlir_lowering.registry import OpDef, Sample, register


def _complex(emitter: Emitter, op: Op, index: Index) -> Expr:
    real, imaginary = (emitter.load(v, index) for v in op.operands)
    return emitter.let(op.result.dtype, f"{op.result.dtype.msl}({real}, {imaginary})")


def _complex_sample(part: str) -> Sample:
    return Sample(
        f"(%a: tensor<5x7x{part}>, %b: tensor<5x7x{part}>) -> tensor<5x7xcomplex<{part}>> {{"
        f" %0 = stablehlo.complex %a, %b : tensor<5x7xcomplex<{part}>> return %0 : tensor<5x7xcomplex<{part}>> }}"
    )


register(
    OpDef(
        "stablehlo.complex",
        element=_complex,
        pointwise=True,
        fold=lambda op, arrays: (arrays[0] + 1j * arrays[1]).astype(op.result.dtype.numpy),
        samples=(_complex_sample("f32"), _complex_sample("f64")),
    )
)


def _real(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    element = emitter.load(x, index)
    return emitter.let(op.result.dtype, f"{element}.x") if x.dtype.is_complex else element


def _imag(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    if not x.dtype.is_complex:
        return emitter.constant(0, x.dtype)
    return emitter.let(op.result.dtype, f"{emitter.load(x, index)}.y")


def _part_sample(name: str, source: str, part: str) -> Sample:
    return Sample(
        f"(%z: tensor<5x7x{source}>) -> tensor<5x7x{part}> {{ %0 = {name} %z"
        f" : (tensor<5x7x{source}>) -> tensor<5x7x{part}> return %0 : tensor<5x7x{part}> }}"
    )


for _name, _element in (("stablehlo.real", _real), ("stablehlo.imag", _imag)):
    register(
        OpDef(
            _name,
            element=_element,
            pointwise=True,
            samples=tuple(
                _part_sample(_name, source, part)
                for source, part in (("complex<f32>", "f32"), ("complex<f64>", "f64"), ("f32", "f32"))
            ),
        )
    )
