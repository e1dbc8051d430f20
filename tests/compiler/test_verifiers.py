"""The verifiers accept what the compiler makes of random programs, and find what is planted."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mlir_lowering.ops
from mlir_lowering.dtypes import F32
from mlir_lowering.fusion import fuse
from mlir_lowering.graph import ArgumentInfo, DotDimensionNumbers, Graph, Op, Region, TensorType, Value
from mlir_lowering.targets import parse_target
from mlir_lowering.verify.groups import verify_groups

assert mlir_lowering.ops

SOFTWARE = parse_target("software:threads=2,vector_bytes=64")
N = 4


def _sum() -> Region:
    a, b = Value(TensorType((), F32)), Value(TensorType((), F32))
    add = Op("stablehlo.add", [a, b], [TensorType((), F32)])
    return Region([a, b], [add], [add.result])


class _Program:
    """Random ops over vectors and matrices of one size: many readers, reductions alike, views and contractions."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = random.Random(seed)
        self.graph = Graph()
        self.graph.args = [Value(TensorType(shape, F32)) for shape in ((N, N), (N, N), (N,), ())]
        self.graph.arguments = [ArgumentInfo() for _ in self.graph.args]
        self.values = list(self.graph.args)
        self.zero = self.add("stablehlo.constant", [], (), value=np.zeros((), np.float32))
        makers = [self.unary, self.binary, self.reduce, self.broadcast, self.dot, self.view, self.cross, self.cross]
        for _ in range(size):
            self.random.choice(makers)()
        self.graph.outputs = self.random.sample(self.values[-6:], 3)

    def add(self, name: str, operands: list[Value], shape: tuple[int, ...], **attrs: object) -> Value:
        regions = [_sum()] if name == "stablehlo.reduce" else []
        op = Op(name, operands, [TensorType(shape, F32)], dict(attrs), regions)
        self.graph.ops.append(op)
        self.values.append(op.result)
        return op.result

    def pick(self, *ranks: int) -> Value:
        found = [v for v in self.values if len(v.shape) in ranks]
        return self.random.choice(found[-12:] if self.random.random() < 0.7 else found)

    def unary(self) -> None:
        x = self.pick(0, 1, 2)
        self.add(self.random.choice(["stablehlo.tanh", "stablehlo.negate"]), [x], x.shape)

    def binary(self) -> None:
        x = self.pick(0, 1, 2)
        self.add(self.random.choice(["stablehlo.add", "stablehlo.multiply"]), [x, self.pick(len(x.shape))], x.shape)

    def reduce(self) -> None:
        x = self.pick(1, 2)
        dims = self.random.choice([(0,), (0, 1), (1,)] if len(x.shape) == 2 else [(0,)])
        self.add("stablehlo.reduce", [x, self.zero], x.shape[len(dims) :], dimensions=dims)

    def broadcast(self) -> None:
        x = self.pick(0, 1)
        dims = (self.random.randrange(2),) if x.shape else ()
        self.add("stablehlo.broadcast_in_dim", [x], (N, N), broadcast_dimensions=dims)

    def cross(self) -> None:
        """One value with another's sum, and the other way round."""
        x, y = self.pick(2), self.pick(2)
        for a, b in ((x, y), (y, x)):
            total = self.add("stablehlo.reduce", [b, self.zero], (), dimensions=(0, 1))
            wide = self.add("stablehlo.broadcast_in_dim", [total], (N, N), broadcast_dimensions=())
            self.add("stablehlo.add", [a, wide], (N, N))

    def dot(self) -> None:
        numbers = DotDimensionNumbers((), (), (1,), (0,))
        self.add("stablehlo.dot_general", [self.pick(2), self.pick(2)], (N, N), dot_dimension_numbers=numbers)

    def view(self) -> None:
        x = self.pick(1)
        self.add("stablehlo.reshape", [x], (N,))


@pytest.mark.parametrize("size", [6, 20, 60])
def test_fused_random_programs(size: int) -> None:
    for seed in range(60):
        graph = _Program(seed, size).graph
        verify_groups(graph, fuse(graph, SOFTWARE), SOFTWARE)
