"""Proves of a buffer plan that every read sees the value it names, whatever way the program takes.

The plan's steps run on an abstract memory (memory.py) in the order in which the runtime runs them, beside the Sequence
that says what each step should read: a launch's inputs must hold its values when it runs. A copy moves whatever is
there. Nothing is taken from the planner but slots and steps.

Loops are proved by induction. What is assumed of memory when an iteration begins (ranges that hold a carried value, or
a value from outside) must hold again when it ends; what does not is dropped from the assumption, and the loop is walked
again. A loop with a condition is left after that, one that is counted after its body. What a case leaves is what all
its branches leave. Everything is done twice: with donated parameters' memory taken by the outputs that they lend it to,
and not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mlir_lowering.fusion import View
from mlir_lowering.graph import Graph, Value
from mlir_lowering.kernel import KernelCall
from mlir_lowering.library import LibraryCall
from mlir_lowering.plan import BufferPlan, call_outputs, host_call_inputs
from mlir_lowering.program import Case, Copy, HostCall, Launch, Library, ParamKind, SlotKind, Step, While
from mlir_lowering.sequence import CaseNode, HostCallNode, Node, Sequence, WhileNode
from mlir_lowering.verify import VerificationError
from mlir_lowering.verify.memory import NOTHING, Changes, Memory, Range, Token, Tokens


def verify_plan(graph: Graph, sequence: Sequence, plan: BufferPlan) -> None:
    """Raises VerificationError if a step may read something else than its value."""
    for number, output in plan.aliases.items():
        if number >= len(graph.args) or output >= len(sequence.outputs):
            raise VerificationError("buffer plan", f"parameter {number} lends its memory to output {output}")
        if graph.args[number].type.bytes != sequence.outputs[output].type.bytes:
            raise VerificationError("buffer plan", f"parameter {number} and output {output} differ in size")
    _Walk(graph, sequence, plan, {}).run()
    if plan.aliases:
        _Walk(graph, sequence, plan, plan.aliases).run()


@dataclass
class _Assumption:
    """What a loop's iterations do not keep: ranges whose contents are lost, and (range, number) pairs that do not hold
    the carried value of that number, although they do before the first."""

    lost: set[Range] = field(default_factory=set)
    not_carried: set[tuple[Range, int]] = field(default_factory=set)


class _Walk:
    def __init__(self, graph: Graph, sequence: Sequence, plan: BufferPlan, taken: dict[int, int]) -> None:
        self.graph = graph
        self.sequence = sequence
        self.plan = plan
        self.labels = list(plan.labels)
        self.memory = Memory()
        self.token: dict[Value, Token] = {}
        self.taken = {output: number for number, output in taken.items()}
        self.way = "with donated memory taken" if taken else "without donation"
        self.assumptions: dict[int, _Assumption] = {}
        self.steps_done = 0

    def fail(self, message: str) -> VerificationError:
        return VerificationError("buffer plan", f"{message} ({self.way}, step {self.steps_done})")

    def run(self) -> None:
        for number, arg in enumerate(self.graph.args):
            self.token[arg] = ("parameter", number)
            self.write(Range(("parameter", number), 0, arg.type.bytes), frozenset([self.token[arg]]))
        for number, data in enumerate(self.plan.constants):
            self.write(Range(("constant", number), 0, len(data)), frozenset([("constant", data)]))
        self.sequence_steps(self.sequence, self.plan.body)
        for number, value in enumerate(self.sequence.outputs):
            space = ("parameter", self.taken[number]) if number in self.taken else ("output", number)
            self.expect(Range(space, 0, value.type.bytes), value, f"output {number}")

    # Memory.

    def range(self, number: int, value: Value | None) -> Range:
        """A slot's bytes, which must be as many as the value's."""
        if not 0 <= number < len(self.plan.slots):
            raise self.fail(f"there is no slot {number}")
        slot = self.plan.slots[number]
        space: tuple[str, int]
        if value is not None and slot.bytes != value.type.bytes:
            raise self.fail(f"slot {number} of {slot.bytes} bytes is used for {value}")
        match slot.kind:
            case SlotKind.ARENA:
                space, size = ("arena", 0), self.plan.arena_bytes
            case SlotKind.PARAMETER:
                space, size = ("parameter", slot.index), self.graph.args[slot.index].type.bytes
            case SlotKind.CONSTANT:
                space, size = ("constant", slot.index), len(self.plan.constants[slot.index])
            case SlotKind.OUTPUT:
                size = self.sequence.outputs[slot.index].type.bytes
                lender = self.taken.get(slot.index)
                space = ("output", slot.index) if lender is None else ("parameter", lender)
        if slot.offset < 0 or slot.offset + slot.bytes > size:
            raise self.fail(f"slot {number}: bytes {slot.offset}+{slot.bytes} of {space} which has {size}")
        return Range(space, slot.offset, slot.offset + slot.bytes)

    def write(self, range: Range, tokens: Tokens) -> None:
        if range.end > range.begin:
            self.memory.write(range, tokens)

    def may_write(self, number: int, reader: str) -> None:
        if self.plan.slots[number].kind in (SlotKind.PARAMETER, SlotKind.CONSTANT):
            raise self.fail(f"{reader} writes slot {number}, a {self.plan.slots[number].kind.name.lower()}")

    def expect(self, range: Range, value: Value, reader: str) -> None:
        """Fails unless `range` holds `value`."""
        if range.begin == range.end:
            return
        if value not in self.token:
            raise self.fail(f"{reader} reads {value}, which nothing has made")
        held = self.memory.read(range)
        if self.token[value] not in held:
            other = ", ".join(map(str, held)) or "nothing known"
            raise self.fail(f"{reader} reads {value} in {range}, which holds {other}")

    def define(self, value: Value) -> Token:
        """A token for what `value` is from now on."""
        token = self.token[value] = _Name(value)
        return token

    # Steps.

    def sequence_steps(self, sequence: Sequence, steps: tuple[Step, ...]) -> None:
        for value in sequence.constants:
            assert value.op is not None
            self.token[value] = ("constant", np.ascontiguousarray(value.op.attrs["value"]).tobytes())
        rest = list(reversed(steps))
        for node in sequence.nodes:
            if isinstance(node, View):
                if node.source in self.token:
                    self.token[node.result] = self.token[node.source]
                continue
            self.copies(rest)
            self.node(node, rest.pop() if rest else None)
        self.copies(rest)
        if rest:
            raise self.fail(f"a step that no node asked for: {type(rest[-1]).__name__}")

    def copies(self, rest: list[Step]) -> None:
        while rest and isinstance(rest[-1], Copy):
            step = rest.pop()
            assert isinstance(step, Copy)
            self.steps_done += 1
            source, destination = self.range(step.source, None), self.range(step.destination, None)
            if source.end - source.begin != destination.end - destination.begin:
                raise self.fail(f"a copy from {source} to {destination}")
            if source == destination:
                continue
            if source.overlaps(destination):
                raise self.fail(f"a copy from {source} to {destination}, which overlap")
            self.may_write(step.destination, "a copy")
            self.write(destination, self.memory.read(source))

    def node(self, node: Node, step: Step | None) -> None:
        self.steps_done += 1
        match node, step:
            case KernelCall(), Launch():
                self.launch(node, step)
            case LibraryCall(), Library():
                self.library(node, step)
            case HostCallNode(), HostCall():
                self.host_call(node, step)
            case WhileNode(), While():
                self.loop(node, step)
            case CaseNode(), Case():
                self.case(node, step)
            case _:
                raise self.fail(f"a {type(node).__name__} became a {type(step).__name__}")

    def launch(self, call: KernelCall, step: Launch) -> None:
        kernel = self.plan.kernels[step.kernel]
        name = f"{kernel.name} (makes {', '.join(str(v.type) for v in call_outputs(call))})"
        if kernel is not call.kernel and kernel != call.kernel:
            raise self.fail(f"{call.kernel.name} became a launch of {kernel.name}")
        if (step.args, step.threads, step.per_threadgroup) != (call.args, call.threads, call.per_threadgroup):
            raise self.fail(f"{name} has other arguments or another grid than its call")
        if self.labels[step.label] != call.label:
            raise self.fail(f"{name} is labelled {self.labels[step.label]}")
        if len(step.slots) != len(call.buffers):
            raise self.fail(f"{name} takes {len(call.buffers)} buffers and was given {len(step.slots)}")
        kinds = [k for k in kernel.params if k in (ParamKind.INPUT, ParamKind.OUTPUT)]
        ranges = [self.range(slot, value) for slot, value in zip(step.slots, call.buffers, strict=True)]
        buffers = list(zip(step.slots, call.buffers, kinds, ranges, strict=True))
        inputs = [(value, range) for _, value, kind, range in buffers if kind is ParamKind.INPUT]
        outputs = [(slot, value, range) for slot, value, kind, range in buffers if kind is ParamKind.OUTPUT]
        for value, range in inputs:
            self.expect(range, value, name)
        for slot, value, range in outputs:
            self.may_write(slot, name)
            if value in call.updates:
                self.expect(range, call.updates[value], f"{name}, which changes it in part,")
        self.check_sharing(name, call, inputs, [(value, range) for _, value, range in outputs])
        for _, value, range in outputs:
            self.write(range, frozenset([self.define(value)]))

    def check_sharing(
        self, name: str, call: KernelCall, inputs: list[tuple[Value, Range]], outputs: list[tuple[Value, Range]]
    ) -> None:
        """An output may have an input's memory if each element is read where it is written; no two outputs share."""
        used: dict[tuple[str, int], list[tuple[int, int, Value | None]]] = {}
        for value, range in inputs:
            used.setdefault(range.space, []).append((range.begin, range.end, value))
        for value, range in outputs:
            for begin, end, other in used.get(range.space, ()):
                if not (begin < range.end and range.begin < end):
                    continue
                whole = (begin, end) == (range.begin, range.end) and other is not None
                if not whole or other not in call.same_index or "__restrict" in call.kernel.source:
                    raise self.fail(
                        f"{name} writes {value} to {range} over {other or 'another output'} in the same launch"
                    )
                assert other is not None
                if other.type.size != value.type.size:
                    raise self.fail(f"{name} writes {value} over {other}, whose elements have other places")
            used.setdefault(range.space, []).append((range.begin, range.end, None))

    def library(self, node: LibraryCall, step: Library) -> None:
        """Either the library's call or the kernels: what is left is what both leave."""
        if step.op != node.op:
            raise self.fail("a library call became another")
        lhs, rhs, result = (self.range(s, v) for s, v in zip(step.slots, (*node.operands, node.result), strict=True))
        self.may_write(step.slots[2], "a library call")
        for value, range in zip(node.operands, (lhs, rhs), strict=True):
            self.expect(range, value, "a library call")
            if range.overlaps(result):
                raise self.fail(f"a library call writes {result} over its operand {value}")
        mark = self.memory.mark()
        token = self.define(node.result)
        self.write(result, frozenset([token]))
        called = self.memory.changes(mark)
        self.memory.rollback(mark)
        if len(step.kernels) != len(node.kernels):
            raise self.fail("a library call's kernels became others")
        for call, launch in zip(node.kernels, step.kernels, strict=True):
            self.launch(call, launch)
        launched = self.memory.changes(mark)
        self.memory.rollback(mark)
        names = [token, self.token[node.result]]
        self.join([called, launched], [[n] for n in names], [node.result])

    def host_call(self, node: HostCallNode, step: HostCall) -> None:
        name = f"the host call {step.target}"
        op = node.op
        operands, results = host_call_inputs(op), op.results
        if len(step.operands) != len(operands) or len(step.results) != len(results):
            raise self.fail(f"{name} has another number of arrays than its op")
        outputs = [self.range(a.slot, v) for a, v in zip(step.results, results, strict=True)]
        taken = {operand: result for result, operand in op.attrs["aliases"]}
        for number, (array, value) in enumerate(zip(step.operands, op.operands, strict=True)):
            range = self.range(array.slot, value)
            self.expect(range, value, name)
            for other, output in enumerate(outputs):
                if range.overlaps(output) and (taken.get(number) != other or range != output):
                    raise self.fail(f"{name} writes result {other} over operand {number}")
            if number in taken and range != outputs[taken[number]]:
                raise self.fail(f"{name}: operand {number} is not in the memory of result {taken[number]}")
        for number, output in enumerate(outputs):
            if any(output.overlaps(other) for other in outputs[:number]):
                raise self.fail(f"{name} writes two results to {output}")
        for array, value, range in zip(step.results, results, outputs, strict=True):
            self.may_write(array.slot, name)
            self.write(range, frozenset([self.define(value)]))

    # Control flow.

    def case(self, node: CaseNode, step: Case) -> None:
        self.expect(self.range(step.index, node.index), node.index, "a case")
        if len(step.branches) != len(node.branches):
            raise self.fail("a case's branches became others")
        mark = self.memory.mark()
        ways, names = [], []
        for sequence, steps in zip(node.branches, step.branches, strict=True):
            self.sequence_steps(sequence, steps)
            ways.append(self.memory.changes(mark))
            names.append([self.token.get(v) for v in sequence.outputs])
            self.memory.rollback(mark)
        self.join(ways, names, node.op.results)

    def join(self, ways: list[Changes], names: list[list[Token | None]], results: list[Value]) -> None:
        """Memory as all of the ways leave it from here; `names`: for each way, what each result is there."""
        tokens: list[Token] = []
        for result, known in zip(results, zip(*names, strict=True), strict=True):
            same = known[0] is not None and all(k == known[0] for k in known)
            tokens.append(known[0] if same else _Name(result))
            self.token[result] = tokens[-1]
        joined: dict[Range, Tokens] = {}
        for range in dict.fromkeys(range for way in ways for range in way):
            before = self.memory.read(range)
            held = [way[range][1] if range in way else before for way in ways]
            common = set(frozenset.intersection(*held))
            for number, token in enumerate(tokens):
                if all(known[number] in tokens_there for known, tokens_there in zip(names, held, strict=True)):
                    common.add(token)
            joined[range] = frozenset(common)
        for range, found in joined.items():
            if not found and self.memory.read(range):
                self.memory.write(range, NOTHING)
        for range, found in joined.items():
            if found:
                self.memory.write(range, found)

    def loop(self, node: WhileNode, step: While) -> None:
        if step.trip_count != node.trip_count:
            raise self.fail(f"a loop of {node.trip_count} iterations became one of {step.trip_count}")
        results = node.op.results
        first = [self.token.get(v) for v in node.op.operands]
        if step.trip_count == 0:
            self.token.update(zip(results, first, strict=True))
            return
        mark = self.memory.mark()
        assumption = self.assumptions.setdefault(id(step), _Assumption())
        while True:
            carried = [_Name(v) for v in results]
            assumed = self.assume(assumption, first, carried)
            start = self.memory.mark()
            for args in (node.condition.args, node.body.args):
                self.token.update(zip(args, carried, strict=True))
            if step.trip_count < 0:
                self.sequence_steps(node.condition, step.condition)
                (predicate,) = node.condition.outputs
                self.expect(self.range(step.predicate, predicate), predicate, "a loop's condition")
            exit = self.memory.mark()
            self.sequence_steps(node.body, step.body)
            following = [self.token.get(v) for v in node.body.outputs]
            if not self.weaken(assumption, start, assumed, carried, following):
                break
            self.memory.rollback(mark)
        if step.trip_count < 0:
            self.memory.rollback(exit)
            following = list(carried)
        self.token.update(zip(results, following, strict=True))

    def assume(self, assumption: _Assumption, first: list[Token | None], carried: list[_Name]) -> dict[Range, set[int]]:
        """Puts memory into the state assumed of each iteration's beginning; which ranges hold which carried values."""
        assumed: dict[Range, set[int]] = {}
        for number, token in enumerate(first):
            for range in self.memory.where(token):
                if (range, number) not in assumption.not_carried:
                    assumed.setdefault(range, set()).add(number)
        for range in assumption.lost | assumed.keys():
            kept = NOTHING if range in assumption.lost else self.memory.read(range)
            tokens = kept | {carried[number] for number in assumed.get(range, ())}
            if tokens != self.memory.read(range):
                self.memory.write(range, tokens)
        return assumed

    def weaken(
        self,
        assumption: _Assumption,
        start: int,
        assumed: dict[Range, set[int]],
        carried: list[_Name],
        following: list[Token | None],
    ) -> bool:
        """Drops from the assumption what an iteration does not leave as it was; whether there was any."""
        changed = False
        names = set(carried)
        for range, (before, now) in self.memory.changes(start).items():
            if range not in assumption.lost and not (before - names) <= now:
                assumption.lost.add(range)
                changed = True
        for range, numbers in assumed.items():
            now = self.memory.read(range)
            for number in numbers:
                if following[number] not in now:
                    assumption.not_carried.add((range, number))
                    changed = True
        return changed


class _Name:
    """What a value is from one time on."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)
