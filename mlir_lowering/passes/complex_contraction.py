"""Makes contractions of complex numbers into four of their parts, so that only real ones need a schedule.

(a + ib)(c + id) summed is (sum ac - sum bd) + i (sum ad + sum bc). Gauss's three products would cancel more digits.
"""

from __future__ import annotations

from mlir_lowering.graph import Graph, Op, Region, TensorType, Value
from mlir_lowering.schedules.contraction import CONTRACTIONS
from mlir_lowering.targets import Target


def run(graph: Graph, target: Target) -> None:
    """Rewrites contractions in the graph and in every region of control flow."""
    _rewrite(graph)
    for op in graph.walk():
        for region in op.regions:
            _rewrite(region)


def _rewrite(region: Region) -> None:
    if not any(_is_complex(op) for op in region.ops):
        return
    ops: list[Op] = []
    for op in region.ops:
        ops += _split(op) if _is_complex(op) else [op]
    region.ops = ops


def _is_complex(op: Op) -> bool:
    return op.name in CONTRACTIONS and op.results[0].dtype.is_complex


def _split(op: Op) -> list[Op]:
    ops: list[Op] = []

    def add(name: str, operands: list[Value], type: TensorType, attrs: dict[str, object] | None = None) -> Value:
        ops.append(Op(name, operands, [type], attrs, loc=op.loc))
        return ops[-1].result

    def parts(value: Value) -> list[Value]:
        type = TensorType(value.shape, value.dtype.part)
        return [add(name, [value], type) for name in ("stablehlo.real", "stablehlo.imag")]

    type = TensorType(op.result.shape, op.result.dtype.part)
    (a, b), (c, d) = (parts(value) for value in op.operands)
    ac, bd, ad, bc = (add(op.name, list(pair), type, op.attrs) for pair in ((a, c), (b, d), (a, d), (b, c)))
    real = add("stablehlo.subtract", [ac, bd], type)
    imaginary = add("stablehlo.add", [ad, bc], type)
    add("stablehlo.complex", [real, imaginary], op.result.type)
    # The last op takes over the old op's result, so that no reader changes.
    ops[-1].results = op.results
    op.results[0].op = ops[-1]
    return ops
