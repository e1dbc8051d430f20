"""Control flow: ops whose regions become sequences of steps (mlir_lowering/sequence.py)."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Op
from mlir_lowering.index import Index
from mlir_lowering.registry import OpDef, Sample, register


def _counted(trips: str) -> str:
    """Adds the counter to %x as often as `trips` (a value's name) says."""
    return (
        " %z = stablehlo.constant dense<0> : tensor<i32>"
        " %o = stablehlo.constant dense<1> : tensor<i32>"
        " %r:2 = stablehlo.while(%i = %z, %y = %x) : tensor<i32>, tensor<5xf32>"
        f" cond {{ %c = stablehlo.compare LT, %i, {trips} : (tensor<i32>, tensor<i32>) -> tensor<i1>"
        " stablehlo.return %c : tensor<i1> }"
        " do { %n = stablehlo.add %i, %o : tensor<i32>"
        " %f = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>"
        " %b = stablehlo.broadcast_in_dim %f, dims = [] : (tensor<f32>) -> tensor<5xf32>"
        " %s = stablehlo.add %y, %b : tensor<5xf32>"
        " stablehlo.return %n, %s : tensor<i32>, tensor<5xf32> }"
        " return %r#1 : tensor<5xf32> }"
    )


_STATIC = Sample(
    "(%x: tensor<5xf32>) -> tensor<5xf32> { %t = stablehlo.constant dense<7> : tensor<i32>" + _counted("%t")
)
_DYNAMIC = Sample("(%x: tensor<5xf32>, %t: tensor<i32>) -> tensor<5xf32> {" + _counted("%t"))
# Carried values that change places: each must keep its own memory.
_SWAP = Sample(
    "(%x: tensor<5xf32>, %y: tensor<5xf32>) -> (tensor<5xf32>, tensor<5xf32>) {"
    " %z = stablehlo.constant dense<0> : tensor<i32> %o = stablehlo.constant dense<1> : tensor<i32>"
    " %t = stablehlo.constant dense<3> : tensor<i32>"
    " %r:3 = stablehlo.while(%i = %z, %a = %x, %b = %y)"
    " : tensor<i32>, tensor<5xf32>, tensor<5xf32>"
    " cond { %c = stablehlo.compare LT, %i, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>"
    " stablehlo.return %c : tensor<i1> }"
    " do { %n = stablehlo.add %i, %o : tensor<i32>"
    " stablehlo.return %n, %b, %a : tensor<i32>, tensor<5xf32>, tensor<5xf32> }"
    " return %r#1, %r#2 : tensor<5xf32>, tensor<5xf32> }"
)

register(OpDef("stablehlo.while", control="while", samples=(_STATIC, _DYNAMIC, _SWAP), atol=1e-6))


def _index(value: Any, dtype: Any) -> Any:
    return lambda rng: [np.array(value, dtype), rng.standard_normal(4).astype(np.float32)]


_IF = (
    "(%p: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {"
    ' %0 = "stablehlo.if"(%p) ({ %a = stablehlo.negate %x : tensor<4xf32>'
    " stablehlo.return %a : tensor<4xf32> }, { stablehlo.return %x : tensor<4xf32> })"
    " : (tensor<i1>) -> tensor<4xf32> return %0 : tensor<4xf32> }"
)
register(
    OpDef(
        "stablehlo.if",
        control="if",
        samples=(Sample(_IF, _index(True, np.bool_)), Sample(_IF, _index(False, np.bool_))),
    )
)

_CASE = (
    "(%i: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {"
    ' %0 = "stablehlo.case"(%i) ({ %a = stablehlo.negate %x : tensor<4xf32>'
    " stablehlo.return %a : tensor<4xf32> }, { %b = stablehlo.add %x, %x : tensor<4xf32>"
    " stablehlo.return %b : tensor<4xf32> }, { stablehlo.return %x : tensor<4xf32> })"
    " : (tensor<i32>) -> tensor<4xf32> return %0 : tensor<4xf32> }"
)
register(
    OpDef(
        "stablehlo.case",
        control="case",
        samples=tuple(Sample(_CASE, _index(i, np.int32)) for i in (0, 1, 2, 7, -1)),
    )
)


def _positive(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    from jaxlib import lapack

    # The oracle is XLA:CPU, whose handlers find LAPACK's functions only after this.
    lapack._lapack.initialize()
    x = rng.standard_normal((3, 3)).astype(np.float32)
    return [x @ x.T + np.eye(3, dtype=np.float32)]


# LAPACK's Cholesky decomposition through the typed FFI, on column-major memory.
_POTRF = Sample(
    "(%x: tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>) {"
    " %r:2 = stablehlo.custom_call @lapack_spotrf_ffi(%x) {mhlo.backend_config = {uplo = 76 : ui8},"
    " operand_layouts = [dense<[0, 1]> : tensor<2xindex>],"
    " result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>],"
    " output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0,"
    " operand_tuple_indices = []>]} : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<i32>)"
    " return %r#0, %r#1 : tensor<3x3xf32>, tensor<i32> }",
    _positive,
    oracle="xla",
)
register(OpDef("stablehlo.custom_call", control="custom_call", samples=(_POTRF,), rtol=1e-4))


# What is behind it is not merged with, computed with, or moved before what is in front of it; it costs nothing when it
# runs, since its results have its operands' memory.
_BARRIER = Sample(
    "(%x: tensor<5xf32>, %y: tensor<3xf32>) -> (tensor<5xf32>, tensor<3xf32>, tensor<5xf32>) {"
    " %a = stablehlo.negate %x : tensor<5xf32>"
    " %b:2 = stablehlo.optimization_barrier %a, %y : tensor<5xf32>, tensor<3xf32>"
    " %c = stablehlo.abs %b#0 : tensor<5xf32>"
    " return %c, %b#1, %a : tensor<5xf32>, tensor<3xf32>, tensor<5xf32> }"
)
register(OpDef("stablehlo.optimization_barrier", control="barrier", samples=(_BARRIER,)))


def _map(emitter: Emitter, op: Op, index: Index) -> Expr:
    (result,) = emitter.region(op.regions[0], [emitter.load(v, index) for v in op.operands])
    return result


register(
    OpDef(
        "stablehlo.map",
        element=_map,
        samples=(
            Sample(
                "(%x: tensor<9xf32>, %y: tensor<9xf32>) -> tensor<9xf32> {"
                ' %0 = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0>}> ({'
                " ^bb0(%a: tensor<f32>, %b: tensor<f32>):"
                " %m = stablehlo.multiply %a, %b : tensor<f32>"
                " %s = stablehlo.subtract %m, %a : tensor<f32> stablehlo.return %s : tensor<f32> })"
                " : (tensor<9xf32>, tensor<9xf32>) -> tensor<9xf32> return %0 : tensor<9xf32> }"
            ),
        ),
    )
)
