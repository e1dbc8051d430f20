"""Ops that only say where an element comes from: broadcast, reshape, transpose, slice, pad, concatenate, ..."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Op
from mlir_lowering.index import ZERO, Index, delinearize, linearize
from mlir_lowering.registry import OpDef, Sample, register


def _sample(operands: str, result: str, text: str) -> Sample:
    """`operands` such as "2x3xf32 f32" become %a0, %a1, ...; `text` is the op without its types."""
    types = [f"tensor<{t}>" for t in operands.split()]
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
    signature = f"({', '.join(types)}) -> tensor<{result}>"
    return Sample(f"({arguments}) -> tensor<{result}> {{ %0 = {text} : {signature} return %0 : tensor<{result}> }}")


def _constant(emitter: Emitter, op: Op, index: Index) -> Expr:
    """Only constants of one value are evaluated inside a kernel; the others are buffers."""
    return emitter.constant(op.attrs["value"].flat[0], op.result.dtype)


def _constant_sample(type: str, value: str) -> Sample:
    return Sample(
        f"() -> tensor<{type}> {{ %0 = stablehlo.constant dense<{value}> : tensor<{type}> return %0 : tensor<{type}> }}"
    )


register(
    OpDef(
        "stablehlo.constant",
        element=_constant,
        pointwise=True,
        cost=0,
        samples=(
            _constant_sample("f32", "1.5"),
            _constant_sample("3xf32", "0xFFC00000"),
            _constant_sample("3xf32", "[1.0, -0.0, 0x7F800000]"),
            _constant_sample("2x2xi32", "[[1, -2147483648], [3, 4]]"),
            _constant_sample("3xf16", "6.5"),
            _constant_sample("3xbf16", "[1.5, -2.0, 0x7FC0]"),
            _constant_sample("2xf64", "0.1"),
            _constant_sample("2xi64", "-9223372036854775808"),
            _constant_sample("2xui64", "18446744073709551615"),
            _constant_sample("4xi1", "[true, false, true, true]"),
            _constant_sample("3xi4", "[1, -8, 7]"),
            _constant_sample("0x3xf32", ""),
        ),
    )
)


def _iota(emitter: Emitter, op: Op, index: Index) -> Expr:
    return emitter.index_value(index[op.attrs["iota_dimension"]], op.result.dtype)


def _iota_sample(type: str, dimension: int) -> Sample:
    return Sample(
        f"() -> tensor<{type}> {{ %0 = stablehlo.iota dim = {dimension} : tensor<{type}> return %0 : tensor<{type}> }}"
    )


register(
    OpDef(
        "stablehlo.iota",
        element=_iota,
        samples=(
            _iota_sample("7xi32", 0),
            _iota_sample("3x50xf32", 1),
            _iota_sample("3x5x2xui8", 0),
            _iota_sample("4xbf16", 0),
            _iota_sample("5xi64", 0),
            _iota_sample("5xcomplex<f32>", 0),
            _iota_sample("5xcomplex<f64>", 0),
            _iota_sample("20xi4", 0),
            _iota_sample("40xui4", 0),
        ),
    )
)


def _broadcast_in_dim(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    dims = op.attrs["broadcast_dimensions"]
    return emitter.load(x, tuple(index[d] if n > 1 else ZERO for d, n in zip(dims, x.shape, strict=True)))


def _broadcast_sample(source: str, result: str, dims: str) -> Sample:
    return _sample(source, result, f"stablehlo.broadcast_in_dim %a0, dims = [{dims}]")


def _fold_broadcast(op: Op, arrays: list[np.ndarray[Any, Any]]) -> Any:
    shape = [1] * len(op.result.shape)
    for d, n in zip(op.attrs["broadcast_dimensions"], arrays[0].shape, strict=True):
        shape[d] = n
    if list(op.attrs["broadcast_dimensions"]) != sorted(op.attrs["broadcast_dimensions"]):
        return None
    return np.broadcast_to(arrays[0].reshape(shape), op.result.shape)


register(
    OpDef(
        "stablehlo.broadcast_in_dim",
        element=_broadcast_in_dim,
        fold=_fold_broadcast,
        samples=(
            _broadcast_sample("f32", "3x4xf32", ""),
            _broadcast_sample("4xf32", "3x4xf32", "1"),
            _broadcast_sample("3xf32", "3x40xf32", "0"),
            _broadcast_sample("3x1xi8", "3x4xi8", "0, 1"),
            _broadcast_sample("2x3xf32", "3x5x2xf32", "2, 0"),
            _broadcast_sample("f32", "0x4xf32", ""),
            _broadcast_sample("1xi1", "9xi1", "0"),
        ),
    )
)


def _reshape(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    return emitter.load(x, delinearize(emitter.named(linearize(index, op.result.shape)), x.shape))


register(
    OpDef(
        "stablehlo.reshape",
        element=_reshape,
        fold=lambda op, arrays: arrays[0].reshape(op.result.shape),
        samples=tuple(
            _sample(s, r, "stablehlo.reshape %a0")
            for s, r in (
                ("2x6xf32", "3x4xf32"),
                ("12xi32", "2x3x2xi32"),
                ("1xf32", "f32"),
                ("2x0xf32", "0x5xf32"),
                ("6x5x4xbf16", "2x3x20xbf16"),
            )
        ),
    )
)


def _transpose(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    source: list[Any] = [ZERO] * len(x.shape)
    for ix, d in zip(index, op.attrs["permutation"], strict=True):
        source[d] = ix
    return emitter.load(x, tuple(source))


def _transpose_sample(source: str, result: str, dims: str) -> Sample:
    return _sample(source, result, f"stablehlo.transpose %a0, dims = [{dims}]")


register(
    OpDef(
        "stablehlo.transpose",
        element=_transpose,
        fold=lambda op, arrays: np.transpose(arrays[0], op.attrs["permutation"]),
        samples=(
            _transpose_sample("3x4xf32", "4x3xf32", "1, 0"),
            _transpose_sample("2x3x40xf32", "40x2x3xf32", "2, 0, 1"),
            _transpose_sample("2x3x4x5xi16", "2x4x3x5xi16", "0, 2, 1, 3"),
            _transpose_sample("50x30xf64", "30x50xf64", "1, 0"),
        ),
    )
)


def _slice(emitter: Emitter, op: Op, index: Index) -> Expr:
    starts, strides = op.attrs["start_indices"], op.attrs["strides"]
    return emitter.load(
        op.operands[0],
        tuple(ix * s + b for ix, b, s in zip(index, starts, strides, strict=True)),
    )


def _fold_slice(op: Op, arrays: list[np.ndarray[Any, Any]]) -> Any:
    names = ("start_indices", "limit_indices", "strides")
    bounds = zip(*(op.attrs[n] for n in names), strict=True)
    return arrays[0][tuple(slice(b, e, s) for b, e, s in bounds)]


register(
    OpDef(
        "stablehlo.slice",
        element=_slice,
        fold=_fold_slice,
        samples=(
            _sample("10xf32", "4xf32", "stablehlo.slice %a0 [2:6]"),
            _sample("8x9xf32", "3x4xf32", "stablehlo.slice %a0 [1:7:2, 0:8:2]"),
            _sample("8x9xi8", "8x0xi8", "stablehlo.slice %a0 [0:8, 4:4]"),
            _sample("4x5x6xbf16", "1x5x6xbf16", "stablehlo.slice %a0 [3:4, 0:5, 0:6]"),
        ),
    )
)


def _reverse(emitter: Emitter, op: Op, index: Index) -> Expr:
    (x,) = op.operands
    dims = op.attrs["dimensions"]
    return emitter.load(
        x,
        tuple(ix * -1 + (n - 1) if d in dims else ix for d, (ix, n) in enumerate(zip(index, x.shape, strict=True))),
    )


register(
    OpDef(
        "stablehlo.reverse",
        element=_reverse,
        samples=(
            Sample(
                "(%a0: tensor<9xf32>) -> tensor<9xf32> { %0 = stablehlo.reverse %a0, dims = [0]"
                " : tensor<9xf32> return %0 : tensor<9xf32> }"
            ),
            Sample(
                "(%a0: tensor<3x4x5xi32>) -> tensor<3x4x5xi32> { %0 = stablehlo.reverse %a0,"
                " dims = [0, 2] : tensor<3x4x5xi32> return %0 : tensor<3x4x5xi32> }"
            ),
        ),
    )
)


def _pad(emitter: Emitter, op: Op, index: Index) -> Expr:
    x, value = op.operands
    conditions = []
    source = []
    for d, ix in enumerate(index):
        step = op.attrs["interior_padding"][d] + 1
        position = ix - op.attrs["edge_padding_low"][d]
        inside = emitter.in_range(position, 0, (x.shape[d] - 1) * step + 1)
        if inside is not None:
            conditions.append(inside)
        if step > 1:
            on_element = emitter.in_range(position % step, 0, 1)
            if on_element is not None:
                conditions.append(on_element)
        source.append(position // step)
    if x.type.size == 0:
        return emitter.load(value, ())
    if not conditions:
        return emitter.load(x, tuple(source))
    otherwise = emitter.load(value, ())
    return emitter.guarded(" && ".join(conditions), lambda: emitter.load(x, tuple(source)), otherwise)


def _pad_sample(source: str, result: str, low: str, high: str, interior: str) -> Sample:
    element = source.rpartition("x")[2]
    return _sample(
        f"{source} {element}",
        result,
        f"stablehlo.pad %a0, %a1, low = [{low}], high = [{high}], interior = [{interior}]",
    )


register(
    OpDef(
        "stablehlo.pad",
        element=_pad,
        samples=(
            _pad_sample("5xf32", "8xf32", "1", "2", "0"),
            _pad_sample("5xf32", "3xf32", "-1", "-1", "0"),
            _pad_sample("3x4xf32", "6x12xf32", "0, 1", "1, 1", "1, 2"),
            _pad_sample("3x40xi8", "5x38xi8", "2, -1", "0, -1", "0, 0"),
            _pad_sample("0x4xf32", "3x4xf32", "1, 0", "2, 0", "0, 0"),
            _pad_sample("2x3xbf16", "4x7xbf16", "-1, 1", "2, 1", "1, 1"),
        ),
    )
)


def _concatenate(emitter: Emitter, op: Op, index: Index) -> Expr:
    """The operand is chosen by the index: one of them is read."""
    d = op.attrs["dimension"]
    dtype = op.result.dtype
    emitter.use(dtype)
    ends = list(itertools.accumulate(v.shape[d] for v in op.operands))
    begins = [0, *ends[:-1]]
    low, high = index[d].range
    parts = [
        (v, b, e) for v, b, e in zip(op.operands, begins, ends, strict=True) if v.shape[d] > 0 and b <= high and e > low
    ]

    def part(number: int) -> Expr:
        value, begin, _ = parts[number]
        inside = ZERO if value.shape[d] == 1 else index[d] - begin
        return emitter.load(value, (*index[:d], inside, *index[d + 1 :]))

    if len(parts) == 1:
        return part(0)
    emitter.accesses.add(index[d])
    name = emitter.fresh()
    emitter.line(f"{dtype.msl} {name};")
    for number, (_, _, end) in enumerate(parts):
        head = "else" if number else ""
        test = f"if ({index[d]} < {end})" if number < len(parts) - 1 else ""
        with emitter.block(f"{head} {test}".strip()):
            emitter.line(f"{name} = {part(number)};")
    return Expr(name, dtype)


def _concatenate_sample(operands: str, result: str, d: int) -> Sample:
    names = ", ".join(f"%a{i}" for i in range(len(operands.split())))
    return _sample(operands, result, f"stablehlo.concatenate {names}, dim = {d}")


register(
    OpDef(
        "stablehlo.concatenate",
        element=_concatenate,
        samples=(
            _concatenate_sample("3xf32 4xf32", "7xf32", 0),
            _concatenate_sample("2x3xf32 2x1xf32 2x30xf32", "2x34xf32", 1),
            _concatenate_sample("1x5xi1 2x5xi1", "3x5xi1", 0),
            _concatenate_sample("2x3xf64", "2x3xf64", 0),
            _concatenate_sample("0xf32 3xf32", "3xf32", 0),
        ),
    )
)


def _dynamic_slice(emitter: Emitter, op: Op, index: Index) -> Expr:
    x, *starts = op.operands
    source = []
    for ix, start, n, size in zip(index, starts, x.shape, op.result.shape, strict=True):
        source.append(ix + emitter.dynamic_index(emitter.load(start, ()), 0, n - size))
    return emitter.load(x, tuple(source))


def _dynamic_slice_sample(source: str, result: str, index: str, count: int) -> Sample:
    names = ", ".join(f"%a{i + 1}" for i in range(count))
    sizes = ", ".join(result.split("x")[:-1])
    return _sample(
        " ".join([source, *[index] * count]),
        result,
        f"stablehlo.dynamic_slice %a0, {names}, sizes = [{sizes}]",
    )


register(
    OpDef(
        "stablehlo.dynamic_slice",
        element=_dynamic_slice,
        samples=(
            _dynamic_slice_sample("10xf32", "3xf32", "i32", 1),
            _dynamic_slice_sample("8x9xf32", "2x4xf32", "i32", 2),
            _dynamic_slice_sample("8x9xbf16", "1x9xbf16", "i64", 2),
            _dynamic_slice_sample("40xi8", "7xi8", "ui8", 1),
        ),
    )
)
