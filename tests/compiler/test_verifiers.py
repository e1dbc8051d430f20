"""The verifiers accept what the compiler makes of random programs, and find what is planted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mlir_lowering.ops
import mlir_lowering.plan as plan_module
from mlir_lowering.dtypes import F32
from mlir_lowering.fusion import fuse
from mlir_lowering.graph import ArgumentInfo, DotDimensionNumbers, Graph, Op, Region, TensorType, Value
from mlir_lowering.importer import build, decode
from mlir_lowering.passes import PASSES
from mlir_lowering.plan import BufferPlan, plan
from mlir_lowering.program import Case, Copy, Launch, SlotKind, Step, While
from mlir_lowering.sequence import Sequence, build_sequence
from mlir_lowering.targets import parse_target
from mlir_lowering.verify import VerificationError
from mlir_lowering.verify.graph import verify_graph
from mlir_lowering.verify.groups import verify_groups
from mlir_lowering.verify.plan import verify_plan

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


# The plan's verifier: faults planted in the plan of a loop with a condition, an in-place update and branches.

_V, _S = "tensor<8xf32>", "tensor<f32>"
_LOOP = f"""func.func @main(%x: {_V} {{tf.aliasing_output = 0 : i32}}, %n: tensor<i32>) -> ({_V}, tensor<i1>, {_V}) {{
  %false = stablehlo.constant dense<false> : tensor<i1>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %half = stablehlo.constant dense<0.5> : {_S}
  %r:3 = stablehlo.while(%i = %n, %y = %x, %done = %false) : tensor<i32>, {_V}, tensor<i1>
    cond {{ %c = stablehlo.not %done : tensor<i1> stablehlo.return %c : tensor<i1> }}
    do {{
      %j = stablehlo.add %i, %one : tensor<i32>
      %u = stablehlo.slice %y [0:2] : ({_V}) -> tensor<2xf32>
      %v = stablehlo.dynamic_update_slice %y, %u, %i : ({_V}, tensor<2xf32>, tensor<i32>) -> {_V}
      %e = stablehlo.compare GT, %j, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %w = "stablehlo.if"(%e) ({{
        %a = stablehlo.sine %v : {_V}
        stablehlo.return %a : {_V}
      }}, {{ stablehlo.return %v : {_V} }}) : (tensor<i1>) -> {_V}
      stablehlo.return %j, %w, %e : tensor<i32>, {_V}, tensor<i1> }}
  %t = stablehlo.cosine %r#1 : {_V}
  %k = stablehlo.reverse %t, dims = [0] : {_V}
  return %r#1, %r#2, %k : {_V}, tensor<i1>, {_V}
}}"""


def _planned() -> tuple[Graph, Sequence, BufferPlan]:
    graph = build(decode(_LOOP.encode()))
    for _, run in PASSES:
        run(graph, SOFTWARE)
    sequence = build_sequence(graph, SOFTWARE)
    return graph, sequence, plan(graph, sequence)


def _edited(steps: tuple[Step, ...], edit: Callable[[Step], Step | None]) -> tuple[Step, ...]:
    """The steps, nested ones too, as `edit` wants them: None drops one."""
    result = []
    for step in steps:
        match step:
            case While():
                inner = [_edited(part, edit) for part in (step.condition, step.body)]
                step = replace(step, condition=inner[0], body=inner[1])
            case Case():
                step = replace(step, branches=tuple(_edited(branch, edit) for branch in step.branches))
        changed = edit(step)
        if changed is not None:
            result.append(changed)
    return tuple(result)


def _steps(steps: tuple[Step, ...]) -> list[Step]:
    found: list[Step] = []
    _edited(steps, lambda step: found.append(step) or step)  # type: ignore[func-returns-value]
    return found


def test_the_plan_itself_is_right() -> None:
    verify_plan(*_planned())


def test_each_copy_is_needed() -> None:
    graph, sequence, planned = _planned()
    copies = [step for step in _steps(planned.body) if isinstance(step, Copy)]
    assert copies
    for copy in copies:
        body = _edited(planned.body, lambda step, copy=copy: None if step is copy else step)  # type: ignore[misc]
        with pytest.raises(VerificationError):
            verify_plan(graph, sequence, replace(planned, body=body))


def test_each_slot_of_each_launch_matters() -> None:
    graph, sequence, planned = _planned()
    for launch in [step for step in _steps(planned.body) if isinstance(step, Launch)]:
        for place, slot in enumerate(launch.slots):
            for other, candidate in enumerate(planned.slots):
                if other == slot or candidate == planned.slots[slot]:
                    continue
                slots = (*launch.slots[:place], other, *launch.slots[place + 1 :])
                body = _edited(
                    planned.body,
                    lambda step, launch=launch, slots=slots: replace(launch, slots=slots) if step is launch else step,  # type: ignore[misc]
                )
                with pytest.raises(VerificationError):
                    verify_plan(graph, sequence, replace(planned, body=body))


def test_slots_that_overlap_or_leave_the_arena_are_found() -> None:
    graph, sequence, planned = _planned()
    arena = [n for n, slot in enumerate(planned.slots) if slot.kind is SlotKind.ARENA]
    assert len(arena) > 1
    for moved in (10**6, -256):
        slots = list(planned.slots)
        slots[arena[0]] = replace(slots[arena[0]], offset=moved)
        with pytest.raises(VerificationError):
            verify_plan(graph, sequence, replace(planned, slots=slots))


def test_a_loop_left_after_its_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lifetimes that end with the last read inside the loop, as they once did."""
    right = plan_module._Planner.cell_spans

    def wrong(self: Any, storage: Any, cell: Any) -> Any:
        return [span for span in right(self, storage, cell) if span != (cell.loop.start, cell.loop.exit)]

    monkeypatch.setattr(plan_module._Planner, "cell_spans", wrong)
    with pytest.raises(VerificationError, match="reads"):
        verify_plan(*_planned())


def test_memory_that_must_not_be_lent() -> None:
    graph, sequence, planned = _planned()
    planned.aliases[0] = 2  # its first write comes when the loop has ended: right as well
    verify_plan(graph, sequence, planned)
    planned.aliases[1] = 0
    with pytest.raises(VerificationError):
        verify_plan(graph, sequence, planned)


def test_wrong_groups_are_found() -> None:
    graph = _Program(3, 20).graph
    units = fuse(graph, SOFTWARE)
    with pytest.raises(VerificationError, match="not made before"):
        verify_groups(graph, units[::-1], SOFTWARE)
    with pytest.raises(VerificationError):
        verify_groups(graph, units[:-1], SOFTWARE)
    with pytest.raises(VerificationError, match="made already"):
        verify_groups(graph, [*units, units[-1]], SOFTWARE)


def test_wrong_graphs_are_found() -> None:
    def plant(change: Callable[[Graph], None], message: str) -> None:
        graph = _Program(5, 20).graph
        verify_graph(graph, "test")
        change(graph)
        with pytest.raises(VerificationError, match=message):
            verify_graph(graph, "test")

    def retype(graph: Graph) -> None:
        graph.ops[-1].results[0].type = TensorType((N, N, N), F32)

    plant(lambda graph: graph.ops.reverse(), "not defined before")
    plant(lambda graph: graph.ops.append(graph.ops[0]), "defined twice")
    plant(lambda graph: setattr(graph.ops[3], "results", [Value(graph.ops[3].result.type)]), "does not know it")
    plant(lambda graph: graph.outputs.append(Value(TensorType((), F32))), "is not defined")
    plant(retype, "types|type")
    plant(lambda graph: setattr(graph.ops[-1], "operands", []), "operands|types|type")
    plant(lambda graph: setattr(graph.ops[-1], "name", "stablehlo.nothing"), "no record")
