"""compare, select and clamp: elementwise ops whose operands differ in type or may be scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.dtypes import PRED
from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Op
from mlir_lowering.index import Index
from mlir_lowering.ops.elementwise import elements
from mlir_lowering.registry import OpDef, Sample, register

_OPERATORS = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_NUMPY = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_SIGNED = {16: "short", 32: "int", 64: "long"}


def _compare(emitter: Emitter, op: Op, index: Index) -> Expr:
    a, b = (str(e) for e in elements(emitter, op, index))
    dtype = op.operands[0].dtype
    if dtype.is_float and op.attrs.get("compare_type") == "TOTALORDER":
        order = f"pjrt_total_order<{_SIGNED[dtype.bits]}, {dtype.msl}>"
        a, b = f"{order}({a})", f"{order}({b})"
    if dtype.is_complex:
        negation = "!" if op.attrs["comparison_direction"] == "NE" else ""
        return emitter.let(PRED, f"{negation}pjrt_complex_equal({a}, {b})")
    return emitter.let(PRED, f"{a} {_OPERATORS[op.attrs['comparison_direction']]} {b}")


def _fold_compare(op: Op, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if op.attrs.get("compare_type") == "TOTALORDER":
        return None
    return _NUMPY[op.attrs["comparison_direction"]](*arrays)


def _compare_sample(dtype: str, direction: str, order: str = "") -> Sample:
    return Sample(
        f"(%a: tensor<50x{dtype}>, %b: tensor<50x{dtype}>) -> tensor<50xi1> {{"
        f" %0 = stablehlo.compare {direction}, %a, %b{order}"
        f" : (tensor<50x{dtype}>, tensor<50x{dtype}>) -> tensor<50xi1>"
        " return %0 : tensor<50xi1> }",
        _ties if dtype.startswith(("f", "bf")) else None,
        oracle="xla" if order == ", TOTALORDER" else "interpreter",
    )


def _ties(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Equal values, zeros of both signs, infinities and NaNs on both sides."""
    values = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 2.5], np.float32)
    return [rng.choice(values, 50), rng.choice(values, 50)]


register(
    OpDef(
        "stablehlo.compare",
        element=_compare,
        pointwise=True,
        fold=_fold_compare,
        samples=(
            *(_compare_sample("f32", d) for d in _OPERATORS),
            *(_compare_sample("f32", d, ", TOTALORDER") for d in _OPERATORS),
            _compare_sample("f16", "LT", ", TOTALORDER"),
            _compare_sample("bf16", "GE"),
            _compare_sample("f64", "LT", ", TOTALORDER"),
            _compare_sample("i32", "LT", ", SIGNED"),
            _compare_sample("ui8", "GE", ", UNSIGNED"),
            _compare_sample("i1", "EQ"),
            _compare_sample("complex<f32>", "EQ"),
            _compare_sample("complex<f64>", "NE"),
        ),
    )
)


def _select(emitter: Emitter, op: Op, index: Index) -> Expr:
    pred, a, b = elements(emitter, op, index)
    return emitter.let(op.result.dtype, f"{pred} ? {a} : {b}")


def _select_sample(dtype: str, pred: str = "7x9xi1") -> Sample:
    return Sample(
        f"(%p: tensor<{pred}>, %a: tensor<7x9x{dtype}>, %b: tensor<7x9x{dtype}>)"
        f" -> tensor<7x9x{dtype}> {{ %0 = stablehlo.select %p, %a, %b"
        f" : tensor<{pred}>, tensor<7x9x{dtype}> return %0 : tensor<7x9x{dtype}> }}"
    )


register(
    OpDef(
        "stablehlo.select",
        element=_select,
        pointwise=True,
        fold=lambda op, arrays: np.where(*arrays),
        samples=(
            _select_sample("f32"),
            _select_sample("f32", "i1"),
            _select_sample("bf16"),
            _select_sample("i64"),
            _select_sample("i1"),
            _select_sample("complex<f32>"),
        ),
    )
)


def _clamp(emitter: Emitter, op: Op, index: Index) -> Expr:
    low, x, high = elements(emitter, op, index)
    dtype = op.result.dtype
    if dtype.is_float:
        return emitter.let(dtype, f"pjrt_min(pjrt_max({x}, {low}), {high})")
    raised = emitter.let(dtype, f"{x} < {low} ? {low} : {x}")
    return emitter.let(dtype, f"{raised} > {high} ? {high} : {raised}")


def _clamp_sample(dtype: str, bound: str) -> Sample:
    return Sample(
        f"(%l: tensor<{bound}{dtype}>, %x: tensor<40x{dtype}>, %h: tensor<{bound}{dtype}>)"
        f" -> tensor<40x{dtype}> {{ %0 = stablehlo.clamp %l, %x, %h : (tensor<{bound}{dtype}>,"
        f" tensor<40x{dtype}>, tensor<{bound}{dtype}>) -> tensor<40x{dtype}>"
        f" return %0 : tensor<40x{dtype}> }}"
    )


register(
    OpDef(
        "stablehlo.clamp",
        element=_clamp,
        pointwise=True,
        cost=2,
        samples=(
            _clamp_sample("f32", ""),
            _clamp_sample("f32", "40x"),
            _clamp_sample("i32", ""),
            _clamp_sample("ui8", "40x"),
            _clamp_sample("f16", ""),
        ),
    )
)
