"""Conversions between element types: convert, bitcast_convert, reduce_precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.dtypes import F32, U32, DType
from mlir_lowering.emit import Emitter, Expr, literal, wrap
from mlir_lowering.errors import unsupported
from mlir_lowering.graph import Op
from mlir_lowering.index import Index, constant
from mlir_lowering.ops.elementwise import unsigned_type
from mlir_lowering.registry import OpDef, Sample, register


def convert_code(code: str, source: DType, result: DType) -> str:
    """An element converted: floats to integers truncate and saturate (NaN is 0), integers wrap around.

    Of a complex number the real part counts, also for a predicate (StableHLO's interpreter and XLA agree).
    """
    if source.is_complex and not result.is_complex:
        return convert_code(f"{code}.x", source.part, result)
    if result.kind == "pred":
        return f"({code} != {source.msl}(0))"
    if result.is_complex:
        real, imaginary = (f"{code}.x", f"{code}.y") if source.is_complex else (code, literal(0, source))
        parts = [convert_code(part, source.part, result.part) for part in (real, imaginary)]
        return f"{result.msl}({', '.join(parts)})"
    if source.is_float and result.is_integer:
        wide = source if source.bits >= 32 else F32
        low = 0 if result.kind == "uint" else -(2 ** (result.bits - 1))
        high = 2 ** (result.bits - (result.kind == "int"))
        bounds = [literal(low, wide), literal(high, wide)]
        bounds += [literal(low, result), literal(high - 1, result)]
        value = code if wide is source else f"float({code})"
        return f"pjrt_to_integer<{result.msl}, {wide.msl}>({value}, {', '.join(bounds)})"
    if source.kind == "pred":
        # Host compilers turn a choice into vector code, but not a conversion.
        return f"({code} ? {result.msl}(1) : {result.msl}(0))"
    return wrap(f"{result.msl}({code})", result)


def _convert(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    emitter.use(x.dtype)
    emitter.use(op.result.dtype)
    return emitter.let(op.result.dtype, convert_code(str(emitter.load(x, index)), x.dtype, op.result.dtype))


def _fold_convert(op: Op, arrays: list[np.ndarray[Any, Any]]) -> Any:
    source, result = op.operands[0].dtype, op.result.dtype
    if "complex" in (source.kind, result.kind) or (source.is_float and result.is_integer):
        return None
    return arrays[0].astype(result.numpy)


def _convert_sample(source: str, result: str) -> Sample:
    return Sample(
        f"(%x: tensor<33x{source}>) -> tensor<33x{result}> {{ %0 = stablehlo.convert %x"
        f" : (tensor<33x{source}>) -> tensor<33x{result}> return %0 : tensor<33x{result}> }}",
        _with_zeros if (source, result) == ("complex<f32>", "i1") else None,
    )


def _with_zeros(rng: np.random.Generator) -> list[Any]:
    """Parts are zeros or ones."""
    return [rng.integers(0, 2, 33) + 1j * rng.integers(0, 2, 33)]


_CONVERSIONS = (
    ("f32", ("f16", "bf16", "f64", "i32", "i8", "i64", "ui8", "ui32", "i1", "complex<f32>")),
    ("f16", ("f32", "bf16", "i32")),
    ("bf16", ("f32", "f16", "i16")),
    ("f64", ("f32", "i64")),
    ("i32", ("complex<f64>", "f32", "f16", "i8", "i64", "ui32", "i1", "i4", "ui4")),
    ("i8", ("f32", "i32", "ui8")),
    ("ui32", ("f32", "ui8", "i32", "ui64")),
    ("i64", ("f32", "i32")),
    ("ui8", ("i32", "f32")),
    ("i4", ("i32", "f32")),
    ("ui4", ("i32",)),
    ("i1", ("f32", "i32", "ui8", "bf16")),
    ("complex<f32>", ("complex<f64>", "f32", "i1")),
    ("complex<f64>", ("complex<f32>",)),
)

register(
    OpDef(
        "stablehlo.convert",
        element=_convert,
        pointwise=True,
        fold=_fold_convert,
        samples=tuple(_convert_sample(s, r) for s, results in _CONVERSIONS for r in results),
    )
)


def _bitcast(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,), result = op.operands, op.result.dtype
    source = x.dtype
    emitter.use(source)
    emitter.use(result)
    if source.bits < 8 or result.bits < 8 or source.is_complex or result.is_complex:
        raise unsupported(op.signature(), str(op.loc))

    def element(at: Index) -> str:
        # A small integer's literal is an int in MSL.
        return f"{source.msl}({emitter.load(x, at)})"

    if source.bits == result.bits:
        return emitter.let(result, f"as_type<{result.msl}>({element(index)})")
    u, v = unsigned_type(source), unsigned_type(result)
    if source.bits > result.bits:
        part = emitter.index_value(index[-1] * result.bits, U32)
        bits = f"as_type<{u}>({element(index[:-1])})"
        return emitter.let(result, f"as_type<{result.msl}>({v}({bits} >> {part}))")
    parts = [
        f"{v}({v}(as_type<{u}>({element((*index, constant(i)))})) << {i * source.bits})"
        for i in range(result.bits // source.bits)
    ]
    return emitter.let(result, f"as_type<{result.msl}>({v}({' | '.join(parts)}))")


def _bitcast_sample(source: str, result: str) -> Sample:
    return Sample(
        f"(%x: tensor<{source}>) -> tensor<{result}> {{ %0 = stablehlo.bitcast_convert %x"
        f" : (tensor<{source}>) -> tensor<{result}> return %0 : tensor<{result}> }}"
    )


register(
    OpDef(
        "stablehlo.bitcast_convert",
        element=_bitcast,
        samples=tuple(
            _bitcast_sample(s, r)
            for s, r in (
                ("9xf32", "9xui32"),
                ("9xui32", "9xf32"),
                ("9xbf16", "9xi16"),
                ("9xf64", "9xi64"),
                ("5xui32", "5x4xui8"),
                ("5x4xui8", "5xui32"),
                ("3xf32", "3x2xbf16"),
                ("3x2xui32", "3xui64"),
            )
        ),
    )
)


def _reduce_precision(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,), dtype = op.operands, op.result.dtype
    emitter.use(dtype)
    if dtype.bits > 32:
        raise unsupported(op.signature(), str(op.loc))
    # A format with the type's own exponents keeps its small numbers, which are normal ones in f32.
    own = 5 if dtype.name == "f16" else 8
    exponent_bits = op.attrs["exponent_bits"]
    bits = f"{8 if exponent_bits >= own else exponent_bits}, {op.attrs['mantissa_bits']}"
    return emitter.let(dtype, f"{dtype.msl}(pjrt_reduce_precision(float({emitter.load(x, index)}), {bits}))")


def _precision_sample(dtype: str, exponent: int, mantissa: int) -> Sample:
    return Sample(
        f"(%x: tensor<50x{dtype}>) -> tensor<50x{dtype}> {{ %0 = stablehlo.reduce_precision %x,"
        f" format = e{exponent}m{mantissa} : tensor<50x{dtype}> return %0 : tensor<50x{dtype}> }}"
    )


register(
    OpDef(
        "stablehlo.reduce_precision",
        element=_reduce_precision,
        pointwise=True,
        cost=6,
        samples=(
            _precision_sample("f32", 8, 7),
            _precision_sample("f32", 5, 10),
            _precision_sample("f16", 4, 3),
        ),
    )
)
