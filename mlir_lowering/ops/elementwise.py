"""Elementwise ops: one row an op, with its MSL expression for each kind of element.

In an expression {a}, {b} are the operands' elements, {t} the result's MSL type, {bits} the operands' width, {u} the
unsigned type of that width, {i} the signed one, {w} one that arithmetic is not promoted from (signed overflow is
undefined in C++), {mask} what clears the bits above the width, {spare} the bits of a byte that a 4-bit integer leaves,
{p} the type of a complex number's parts. Rows marked `wide` compute 16-bit floats in f32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlir_lowering.dtypes import BY_NAME, DType
from mlir_lowering.emit import Emitter, Expr, arithmetic_type, wrap
from mlir_lowering.errors import unsupported
from mlir_lowering.graph import Op
from mlir_lowering.index import Index
from mlir_lowering.registry import OpDef, Sample, register

Fold = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """One op. `code` maps a kind of element ("float", "complex", "int"...), of the first operand, to its expression.

    `low`, `high` bound the float operands of its samples; `specials` adds infinities, NaN and zeros to them.
    """

    name: str
    code: dict[str, str]
    operands: int = 1
    wide: bool = False
    cost: int = 1
    fold: Fold | None = None
    low: float = -4.0
    high: float = 4.0
    specials: bool = True
    rtol: float = 1e-6
    result: str = ""  # the result's dtype if it is not the operands'
    divides: bool = False  # integer samples hold zero divisors, which end the interpreter's process


_SIGNED = {8: "char", 16: "short", 32: "int", 64: "long"}
_UNSIGNED = {8: "uchar", 16: "ushort", 32: "uint", 64: "ulong"}
_DTYPES = {
    "float": ("f32", "f16", "bf16", "f64"),
    "complex": ("complex<f32>", "complex<f64>"),
    "int": ("i32", "i8", "i16", "i64", "i4"),
    "uint": ("ui32", "ui8", "ui16", "ui64", "ui4"),
    "pred": ("i1",),
}
# From this cost on an op of floats is a function of many instructions.
FUNCTION_COST = 8
# One unit in the last place, roughly; f32 and f64 take the row's own tolerance.
_ULP = {"f16": 2e-3, "bf16": 1.6e-2}


def unsigned_type(dtype: DType) -> str:
    """The MSL unsigned type that holds an element's bits."""
    return _UNSIGNED[max(dtype.part.bits, 8)]


def elements(emitter: Emitter, op: Op, index: Index) -> list[Expr]:
    """The operands' elements at `index`; scalars (a select's pred, a clamp's bounds) are read where they are."""
    shape = op.result.shape
    return [emitter.load(v, index if v.shape == shape else ()) for v in op.operands]


def _element(row: Row) -> Callable[[Emitter, Op, Index], Expr]:
    def element(emitter: Emitter, op: Op, index: Index) -> Expr:
        first, result = op.operands[0].dtype, op.result.dtype
        template = row.code.get(first.kind)
        if template is None:
            raise unsupported(op.signature(), str(op.loc))
        emitter.use(first)
        names = [str(e) for e in elements(emitter, op, index)]
        t = result.msl
        narrow = row.wide and first.is_float and first.bits < 32
        if narrow:
            names = [f"float({n})" for n in names]
            t = "float"
        code = template.format(
            **dict(zip("ab", names, strict=False)),
            t=t,
            u=unsigned_type(first),
            w=arithmetic_type(first),
            i=_SIGNED[max(first.part.bits, 8)],
            p=first.part.msl,
            spare=max(8 - first.bits, 0),
            bits=first.bits,
            mask=f" & {2**first.bits - 1}" if first.bits < 8 else "",
        )
        if narrow and result.is_float:
            code = f"{result.msl}({code})"
        before = len(emitter.lines)
        expr = emitter.let(result, wrap(code, result))
        if row.cost >= FUNCTION_COST and first.is_float and len(emitter.lines) > before:
            emitter.function_cost += row.cost
        return expr

    return element


def _fold(row: Row) -> Callable[[Op, list[np.ndarray[Any, Any]]], Any] | None:
    if row.fold is None:
        return None
    compute = row.fold

    def fold(op: Op, arrays: list[np.ndarray[Any, Any]]) -> Any:
        dtype = op.operands[0].dtype
        if dtype.kind not in row.code or (dtype.bits < 8 and dtype.is_integer):
            return None
        return compute(*arrays)

    return fold


def _values(row: Row, dtype: DType, rng: np.random.Generator, shape: int) -> np.ndarray[Any, Any]:
    if dtype.kind == "pred":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        bits = min(dtype.bits, 62)
        low = -(2 ** (bits - 1)) if dtype.kind == "int" else 0
        high = 2 ** (bits - 1) if dtype.kind == "int" else 2**bits
        wide = rng.integers(low, high, shape)
        small = rng.integers(low // max(-low // 4, 1) if low else 0, 5, shape)
        values = np.where(rng.random(shape) < 0.5, wide, small)
        return values.astype(dtype.numpy)
    values = rng.uniform(row.low, row.high, shape)
    if dtype.is_complex:
        return (values + 1j * rng.uniform(row.low, row.high, shape)).astype(dtype.numpy)
    if row.specials:
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0]
        values[: len(special)] = special
        # Each operand in another order, so that specials meet.
        rng.shuffle(values)
    return values.astype(dtype.numpy)


def _sample(row: Row, name: str) -> Sample:
    dtype = BY_NAME[name]
    result = row.result or (dtype.part.name if row.name == "stablehlo.abs" else name)
    letters = ["a", "b", "c"][: row.operands]
    arguments = ", ".join(f"%{x}: tensor<70x{name}>" for x in letters)
    names = ", ".join(f"%{x}" for x in letters)
    types = ", ".join([f"tensor<70x{name}>"] * row.operands)
    if row.name.startswith("chlo."):
        op = f"{row.name} {names} : tensor<70x{name}> -> tensor<70x{result}>"
    else:
        op = f'"{row.name}"({names}) : ({types}) -> tensor<70x{result}>'

    def inputs(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
        return [_values(row, dtype, rng, 70) for _ in letters]

    text = f"({arguments}) -> tensor<70x{result}> {{ %0 = {op} return %0 : tensor<70x{result}> }}"
    oracle = "xla" if row.divides and dtype.is_integer else "interpreter"
    return Sample(text, inputs, _ULP.get(name), oracle)


def _register(row: Row) -> None:
    names = [name for kind in row.code for name in _DTYPES[kind]]
    register(
        OpDef(
            row.name,
            element=_element(row),
            pointwise=True,
            cost=row.cost,
            fold=_fold(row),
            samples=tuple(_sample(row, name) for name in names),
            rtol=row.rtol,
            atol=1e-7,
        )
    )


def _floats(code: str, complex: str = "") -> dict[str, str]:
    return {"float": code, "complex": complex} if complex else {"float": code}


def _all(code: str, pred: str = "") -> dict[str, str]:
    kinds = {"float": code, "int": code, "uint": code}
    return {**kinds, "pred": pred} if pred else kinds


def _arithmetic(operator: str, pred: str, complex: str = "") -> dict[str, str]:
    """Signed overflow is undefined in C++: integers are computed unsigned."""
    return {
        "float": f"{{a}} {operator} {{b}}",
        "complex": complex or f"{{a}} {operator} {{b}}",
        "int": f"{{t}}({{w}}({{a}}) {operator} {{w}}({{b}}))",
        "uint": f"{{t}}({{w}}({{a}}) {operator} {{w}}({{b}}))",
        "pred": pred,
    }


def _bitwise(operator: str) -> dict[str, str]:
    code = f"{{t}}({{a}} {operator} {{b}})"
    return {"int": code, "uint": code, "pred": f"bool(int({{a}}) {operator} int({{b}}))"}


ROWS = (
    Row(
        "stablehlo.abs",
        {
            "float": "fabs({a})",
            "complex": "pjrt_hypot({a}.x, {a}.y)",
            "int": "{t}({a} < {t}(0) ? {t}({w}(0) - {w}({a})) : {a})",
        },
        wide=True,
    ),
    Row("stablehlo.add", _arithmetic("+", "bool({a} | {b})"), 2, fold=np.add),
    Row("stablehlo.and", _bitwise("&"), 2, fold=np.bitwise_and),
    Row("stablehlo.atan2", _floats("atan2({a}, {b})"), 2, wide=True, cost=20),
    Row("stablehlo.cbrt", _floats("pjrt_cbrt({a})"), wide=True, cost=15),
    Row("stablehlo.ceil", _floats("ceil({a})"), wide=True),
    Row("stablehlo.cosine", _floats("cos({a})", "pjrt_complex_cos({a})"), wide=True, cost=15, low=-50, high=50),
    Row(
        "stablehlo.count_leading_zeros",
        dict.fromkeys(("int", "uint"), "{t}(pjrt_clz({w}({u}({a}){mask})) - ({bits} < 32 ? 32 - {bits} : 0))"),
    ),
    Row(
        "stablehlo.divide",
        {
            "float": "{a} / {b}",
            "complex": "pjrt_quotient<{p}>({a}, {b})",
            "int": "pjrt_div<{t}, {u}>({a}, {b})",
            "uint": "pjrt_div<{t}, {u}>({a}, {b})",
        },
        2,
        cost=4,
        divides=True,
    ),
    Row("stablehlo.exponential", _floats("exp({a})", "pjrt_complex_exp({a})"), wide=True, cost=10, low=-30, high=30),
    Row("stablehlo.exponential_minus_one", _floats("pjrt_expm1({a})", "pjrt_complex_expm1({a})"), wide=True, cost=12),
    Row("stablehlo.floor", _floats("floor({a})"), wide=True),
    Row("stablehlo.is_finite", _floats("isfinite({a})"), wide=True, result="i1"),
    Row("stablehlo.log", _floats("log({a})", "pjrt_complex_log({a})"), wide=True, cost=10, low=0.01, high=50),
    Row("stablehlo.log_plus_one", _floats("pjrt_log1p({a})", "pjrt_complex_log1p({a})"), wide=True, cost=12, low=-0.9),
    Row(
        "stablehlo.logistic",
        _floats("{t}(1) / ({t}(1) + exp(-{a}))", "pjrt_quotient<{p}>({t}(1, 0), {t}(1, 0) + pjrt_complex_exp(-{a}))"),
        wide=True,
        cost=12,
    ),
    Row(
        "stablehlo.maximum",
        {**_all("({a} > {b} ? {a} : {b})", "bool({a} | {b})"), "float": "pjrt_max({a}, {b})"},
        2,
        fold=np.maximum,
    ),
    Row(
        "stablehlo.minimum",
        {**_all("({a} < {b} ? {a} : {b})", "bool({a} & {b})"), "float": "pjrt_min({a}, {b})"},
        2,
        fold=np.minimum,
    ),
    Row(
        "stablehlo.multiply",
        _arithmetic("*", "bool({a} & {b})", "pjrt_complex_multiply({a}, {b})"),
        2,
        fold=np.multiply,
    ),
    Row(
        "stablehlo.negate",
        {"float": "-{a}", "complex": "-{a}", "int": "{t}({w}(0) - {w}({a}))", "uint": "{t}({u}(0) - {a})"},
        fold=np.negative,
    ),
    Row("stablehlo.not", {"int": "{t}(~{a})", "uint": "{t}(~{a})", "pred": "!{a}"}, fold=np.invert),
    Row("stablehlo.or", _bitwise("|"), 2, fold=np.bitwise_or),
    Row(
        "stablehlo.popcnt",
        dict.fromkeys(("int", "uint"), "{t}(pjrt_popcount({w}({u}({a}){mask})))"),
    ),
    Row(
        "stablehlo.power",
        {
            "float": "pow({a}, {b})",
            "complex": "pjrt_complex_pow({a}, {b})",
            "int": "pjrt_ipow<{t}, {w}>({a}, {b})",
            "uint": "pjrt_ipow<{t}, {w}>({a}, {b})",
        },
        2,
        wide=True,
        cost=25,
        rtol=3e-6,
    ),
    Row(
        "stablehlo.remainder",
        {
            "float": "pjrt_fmod({a}, {b})",
            "int": "pjrt_rem<{t}>({a}, {b})",
            "uint": "pjrt_rem<{t}>({a}, {b})",
        },
        2,
        wide=True,
        cost=8,
        divides=True,
    ),
    Row("stablehlo.round_nearest_afz", _floats("round({a})"), wide=True),
    Row("stablehlo.round_nearest_even", _floats("rint({a})"), wide=True),
    Row(
        "stablehlo.rsqrt",
        _floats("rsqrt({a})", "pjrt_quotient<{p}>({t}(1, 0), pjrt_complex_sqrt({a}))"),
        wide=True,
        cost=4,
        low=0.01,
    ),
    Row(
        "stablehlo.shift_left",
        {
            "int": "{t}(pjrt_shl<{u}>({u}({a}), {u}({b}), {bits}))",
            "uint": "pjrt_shl<{u}>({a}, {b}, {bits})",
        },
        2,
    ),
    Row(
        "stablehlo.shift_right_arithmetic",
        {
            "int": "pjrt_sar<{t}, {u}>({a}, {u}({b}), {bits})",
            "uint": "{t}(pjrt_sar<{i}, {u}>({i}({i}({a} << {spare}) >> {spare}), {b}, {bits}))",
        },
        2,
    ),
    Row(
        "stablehlo.shift_right_logical",
        {
            "int": "{t}(pjrt_shr<{u}>({u}({u}({a}){mask}), {u}({b}), {bits}))",
            "uint": "pjrt_shr<{u}>({a}, {b}, {bits})",
        },
        2,
    ),
    Row("stablehlo.sign", {"float": "pjrt_sign({a})", "complex": "pjrt_complex_sign({a})", "int": "pjrt_sign({a})"}),
    Row("stablehlo.sine", _floats("sin({a})", "pjrt_complex_sin({a})"), wide=True, cost=15, low=-50, high=50),
    Row("stablehlo.sqrt", _floats("sqrt({a})", "pjrt_complex_sqrt({a})"), wide=True, cost=4, low=0),
    Row(
        "stablehlo.subtract",
        {kind: code for kind, code in _arithmetic("-", "").items() if code},
        2,
        fold=np.subtract,
    ),
    Row("stablehlo.tan", _floats("tan({a})", "pjrt_complex_tan({a})"), wide=True, cost=20, rtol=3e-6),
    Row("stablehlo.tanh", _floats("tanh({a})", "pjrt_complex_tanh({a})"), wide=True, cost=12),
    Row("stablehlo.xor", _bitwise("^"), 2, fold=np.bitwise_xor),
    Row("chlo.acos", _floats("acos({a})"), wide=True, cost=15, low=-1, high=1),
    Row("chlo.acosh", _floats("acosh({a})"), wide=True, cost=15, low=1),
    Row("chlo.asin", _floats("asin({a})"), wide=True, cost=15, low=-1, high=1),
    Row("chlo.asinh", _floats("asinh({a})"), wide=True, cost=15),
    Row("chlo.atan", _floats("atan({a})"), wide=True, cost=15),
    Row("chlo.atanh", _floats("atanh({a})"), wide=True, cost=15, low=-0.99, high=0.99),
    Row("chlo.cosh", _floats("cosh({a})"), wide=True, cost=15),
    Row("chlo.erf", _floats("pjrt_erf({a})"), wide=True, cost=15),
    Row("chlo.erfc", _floats("pjrt_erfc({a})"), wide=True, cost=20, rtol=1e-5),
    Row("chlo.sinh", _floats("sinh({a})"), wide=True, cost=15, rtol=3e-6),
)

for _row in ROWS:
    _register(_row)
