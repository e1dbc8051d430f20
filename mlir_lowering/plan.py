"""The buffer plan: where each value lives, and the copies that are left.

First every place where a value must move to other memory gets a copy: before a kernel that updates an array in
part, into and around a loop's carried values, out of a branch, into the program's outputs. Then copies are
coalesced: source and destination become one storage when neither is written while the other is still needed.
Each storage ends as a parameter, an output, a constant or a range of one arena.

Time is a clock that ticks once a node, nested sequences in line (mlir_lowering/lifetimes.py says what that means for
loops and branches). A loop's carried value has one storage, its cell: written before the loop and at the body's end,
needed by each iteration's reads and, if anything reads it after the loop, whenever the loop may be left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mlir_lowering.arena import place
from mlir_lowering.fusion import View
from mlir_lowering.graph import Graph, Op, Value
from mlir_lowering.kernel import KernelCall
from mlir_lowering.library import LibraryCall
from mlir_lowering.lifetimes import Scope, Span, joined, near, reach, united
from mlir_lowering.program import (
    Case,
    Copy,
    HostArray,
    HostCall,
    Kernel,
    Label,
    Launch,
    Library,
    ParamKind,
    Slot,
    SlotKind,
    Step,
    While,
)
from mlir_lowering.sequence import CaseNode, HostCallNode, Node, Sequence, WhileNode

FOREVER = 1 << 60


@dataclass(eq=False)
class _Storage:
    bytes: int
    kind: SlotKind = SlotKind.ARENA
    index: int = 0
    offset: int = 0
    slot: int = -1
    live: list[Span] = field(default_factory=list)  # ascending, none touch
    # Ticks and the scopes they are in.
    reads: list[tuple[int, Scope | None]] = field(default_factory=list)
    writes: list[tuple[int, Scope | None]] = field(default_factory=list)


@dataclass(eq=False)
class _CopyNode:
    source: Value
    destination: Value


@dataclass
class _Cell:
    """How a carried value's storage is written: before the loop, and by the copy at the body's end (-1: never)."""

    loop: Scope
    end_copy: int


@dataclass
class BufferPlan:
    """Slots, the steps that name them, and which parameters outputs may take over (parameter: output)."""

    slots: list[Slot] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    labels: dict[Label, int] = field(default_factory=dict)
    constants: list[bytes] = field(default_factory=list)
    arena_bytes: int = 0
    body: tuple[Step, ...] = ()
    aliases: dict[int, int] = field(default_factory=dict)


def call_inputs(call: KernelCall) -> Iterator[Value]:
    return (v for v, kind in _buffers(call) if kind is ParamKind.INPUT)


def call_outputs(call: KernelCall) -> Iterator[Value]:
    return (v for v, kind in _buffers(call) if kind is ParamKind.OUTPUT)


def host_call_inputs(op: Op) -> list[Value]:
    """A host call's operands; one whose memory a result must have is that result, into which it was copied."""
    taken = {operand: op.results[result] for result, operand in op.attrs["aliases"]}
    return [taken.get(number, value) for number, value in enumerate(op.operands)]


def _buffers(call: KernelCall) -> Iterator[tuple[Value, ParamKind]]:
    kinds = (k for k in call.kernel.params if k in (ParamKind.INPUT, ParamKind.OUTPUT))
    return zip(call.buffers, kinds, strict=True)


class _Planner:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.result = BufferPlan()
        self.of: dict[Value, _Storage] = {}
        self.merged: dict[_Storage, _Storage] = {}
        self.node_at: list[_PlanNode | None] = []
        self.copies: list[tuple[int, _CopyNode]] = []
        self.scope: Scope | None = None
        self.cells: dict[_Storage, _Cell] = {}
        self.joins: dict[_Storage, int] = {}  # cases' results: the tick behind the branches
        self.constant_numbers: dict[bytes, int] = {}
        self.kernel_numbers: dict[str, int] = {}

    # Storages.

    def storage(self, value: Value) -> _Storage:
        if value not in self.of:
            self.new(value)
        return self.root(self.of[value])

    def root(self, storage: _Storage) -> _Storage:
        found = storage
        while found in self.merged:
            found = self.merged[found]
        while storage is not found:
            following = self.merged[storage]
            self.merged[storage], storage = found, following
        return found

    def new(self, value: Value, kind: SlotKind = SlotKind.ARENA, index: int = 0) -> _Storage:
        storage = self.of[value] = _Storage(value.type.bytes, kind, index)
        return storage

    def constant(self, value: Value) -> None:
        assert value.op is not None
        data = np.ascontiguousarray(value.op.attrs["value"]).tobytes()
        number = self.constant_numbers.setdefault(data, len(self.result.constants))
        if number == len(self.result.constants):
            self.result.constants.append(data)
        self.new(value, SlotKind.CONSTANT, number)

    # First walk: copies where needed, ticks, reads and writes.

    def tick(self, node: _PlanNode | None) -> int:
        self.node_at.append(node)
        return len(self.node_at) - 1

    def read(self, value: Value, at: int) -> None:
        self.storage(value).reads.append((at, self.scope))

    def write(self, value: Value, at: int) -> None:
        self.storage(value).writes.append((at, self.scope))

    def copy(self, source: Value, destination: Value) -> _CopyNode:
        node = _CopyNode(source, destination)
        at = self.tick(node)
        self.read(source, at)
        self.write(destination, at)
        self.copies.append((at, node))
        return node

    def walk(self, sequence: Sequence) -> list[_PlanNode]:
        """Places the sequence on the clock; returns its nodes with the copies among them."""
        for value in sequence.constants:
            self.constant(value)
        nodes: list[_PlanNode] = []
        for node in sequence.nodes:
            match node:
                case View():
                    self.of[node.result] = self.storage(node.source)
                case KernelCall():
                    for output, before in node.updates.items():
                        nodes.append(self.copy(before, output))
                    at = self.tick(node)
                    for value in call_inputs(node):
                        self.read(value, at)
                    for value in call_outputs(node):
                        self.write(value, at)
                    nodes.append(node)
                case LibraryCall():
                    self.walk_library(node)
                    nodes.append(node)
                case WhileNode():
                    nodes += self.walk_while(node)
                case CaseNode():
                    nodes.append(self.walk_case(node))
                case HostCallNode():
                    for result, operand in node.op.attrs["aliases"]:
                        nodes.append(self.copy(node.op.operands[operand], node.op.results[result]))
                    at = self.tick(node)
                    for value in host_call_inputs(node.op):
                        self.read(value, at)
                    for value in node.op.results:
                        self.write(value, at)
                    nodes.append(node)
        return nodes

    def walk_library(self, node: LibraryCall) -> None:
        """The kernels in line, and the operands until after the last of them: the library reads them as it writes."""
        for call in node.kernels:
            at = self.tick(call)
            for value in call_inputs(call):
                self.read(value, at)
            for value in call_outputs(call):
                self.write(value, at)
        end = self.tick(None)
        for value in node.operands:
            self.read(value, end)

    def walk_case(self, node: CaseNode) -> _PlannedCase:
        entry = self.tick(None)
        self.read(node.index, entry)
        for value in node.op.results:
            self.new(value)
        branches = []
        for branch in node.branches:
            outer, self.scope = self.scope, Scope(self.scope, False, entry, self.tick(None))
            steps = self.walk(branch)
            for source, result in zip(branch.outputs, node.op.results, strict=True):
                steps.append(self.copy(source, result))
            self.scope.end = self.tick(None)
            self.scope = outer
            branches.append(steps)
        join = self.tick(None)
        for value in node.op.results:
            self.joins[self.storage(value)] = join
        return _PlannedCase(node.index, branches)

    def walk_while(self, node: WhileNode) -> list[_PlanNode]:
        results = node.op.results
        before: list[_PlanNode] = [self.copy(v, r) for v, r in zip(node.op.operands, results, strict=True)]
        for args in (node.condition.args, node.body.args):
            for arg, result in zip(args, results, strict=True):
                self.of[arg] = self.storage(result)
        start = self.tick(None)
        outer, loop = self.scope, Scope(self.scope, True, start, start)
        self.scope = loop
        condition = self.walk(node.condition)
        (predicate,) = node.condition.outputs
        loop.exit = self.tick(None)
        self.read(predicate, loop.exit)
        body = self.walk(node.body)
        changed = [
            (source, result)
            for source, result in zip(node.body.outputs, results, strict=True)
            if self.storage(source) is not self.storage(result)
        ]
        # A next value that is another carried value's present one must be saved before that is overwritten.
        cells = {self.storage(result): _Cell(loop, -1) for result in results}
        for i, (source, result) in enumerate(changed):
            if self.storage(source) in cells:
                saved = Value(source.type)
                body.append(self.copy(source, saved))
                changed[i] = (saved, result)
        for source, result in changed:
            body.append(self.copy(source, result))
            cells[self.storage(result)].end_copy = len(self.node_at) - 1
        self.cells |= cells
        self.scope = outer
        loop.end = self.tick(None)
        return [*before, _PlannedWhile(predicate, condition, body, node.trip_count)]

    # Lifetimes.

    def set_lifetimes(self) -> None:
        for storage in dict.fromkeys(self.root(s) for s in self.of.values()):
            if storage in self.cells:
                spans = self.cell_spans(storage, self.cells[storage])
            elif storage in self.joins:
                spans = self.join_spans(storage, self.joins[storage])
            else:
                spans = self.value_spans(storage)
            if storage.kind is SlotKind.OUTPUT:
                spans.append((min(spans)[0], FOREVER))
            storage.live = joined(spans)

    def value_spans(self, storage: _Storage) -> list[Span]:
        """Of a storage that is first written in one place; later writes change it in part."""
        start, scope = min(storage.writes, default=(-1, None), key=lambda write: write[0])
        if storage.kind in (SlotKind.PARAMETER, SlotKind.CONSTANT):
            start, scope = -1, None
        spans = [(start, start)]
        for tick, inner in (*storage.writes, *storage.reads):
            spans += reach(start, scope, tick, inner)
        return spans

    def join_spans(self, storage: _Storage, join: int) -> list[Span]:
        """Of a case's result, which each branch writes at its end."""
        spans = [(tick, branch.end) for tick, branch in storage.writes if branch is not None]
        scope = storage.writes[0][1]
        assert scope is not None
        for tick, inner in storage.reads:
            spans += reach(join, scope.parent, tick, inner)
        return spans

    def cell_spans(self, storage: _Storage, cell: _Cell) -> list[Span]:
        """Of a carried value: written before the loop's start and at the body's end, read in the loop or after it."""
        loop = cell.loop
        first = storage.writes[0][0]
        spans = [(first, loop.start), (first if cell.end_copy < 0 else cell.end_copy, loop.end)]
        for tick, inner in storage.reads:
            if loop.contains(tick):
                spans += reach(loop.start, loop, tick, inner)
            else:
                spans.append((loop.start, loop.exit))
                spans += reach(loop.end, loop.parent, tick, inner)
        return spans

    # Coalescing.

    def coalesce(self) -> None:
        for at, copy in self.copies:
            self.try_unite(self.storage(copy.source), self.storage(copy.destination), at)
        for at, node in enumerate(self.node_at):
            if isinstance(node, KernelCall) and node.same_index:
                for output in call_outputs(node):
                    for value in node.same_index:
                        if self.try_unite(self.storage(value), self.storage(output), at):
                            break

    def try_unite(self, source: _Storage, destination: _Storage, at: int) -> bool:
        kinds = {source.kind, destination.kind}
        if source is destination or source.bytes != destination.bytes:
            return False
        if SlotKind.ARENA not in kinds or kinds & {SlotKind.PARAMETER, SlotKind.CONSTANT}:
            return False
        if self.interfere(source, destination):
            return False
        keep, gone = (destination, source) if source.kind is SlotKind.ARENA else (source, destination)
        keep.live = united(keep.live, gone.live)
        self.merged[gone] = keep
        return True

    def interfere(self, a: _Storage, b: _Storage) -> bool:
        """Whether one is written while the other is needed."""
        few, many = sorted((a, b), key=lambda storage: len(storage.live))
        for span in few.live:
            for number in near(many.live, span):
                if self.collide(few, span, many, many.live[number]):
                    return True
        return False

    def collide(self, a: _Storage, a_span: Span, b: _Storage, b_span: Span) -> bool:
        (a0, a1), (b0, b1) = a_span, b_span
        if a0 == b0 or (a0 < b1 and b0 < a1):
            return True
        return (a1 == b0 and not self.in_place(b0, a, b)) or (b1 == a0 and not self.in_place(a0, b, a))

    def in_place(self, tick: int, old: _Storage, new: _Storage) -> bool:
        """Whether the node at `tick` may write `new` over the `old` that it reads."""
        node = self.node_at[tick]
        if old.bytes != new.bytes:
            return False
        if isinstance(node, KernelCall):
            reads = (value in node.same_index for value in call_inputs(node) if self.storage(value) is old)
            return all(reads) and not any(self.storage(value) is old for value in call_outputs(node))
        return isinstance(node, _CopyNode)

    def find_aliases(self) -> None:
        """Which donated parameters' memory the outputs may take: all reads come before the first write."""
        outputs = {}
        for storage in dict.fromkeys(self.root(s) for s in self.of.values()):
            if storage.kind is SlotKind.OUTPUT:
                outputs[storage.index] = storage
        for number, (arg, info) in enumerate(zip(self.graph.args, self.graph.arguments, strict=True)):
            output = outputs.get(info.alias)
            parameter = self.storage(arg)
            if output is None or output.bytes != parameter.bytes:
                continue
            if not self.interfere(parameter, output):
                self.result.aliases[number] = info.alias

    # Memory.

    def allocate(self) -> None:
        storages = dict.fromkeys(self.root(s) for s in self.of.values())
        placed = [s for s in storages if s.kind is SlotKind.ARENA and s.bytes]
        offsets, self.result.arena_bytes = place([(s.live[0][0], s.live[-1][1], s.bytes) for s in placed])
        for storage, offset in zip(placed, offsets, strict=True):
            storage.offset = offset

    # Second walk: steps.

    def slot(self, value: Value) -> int:
        storage = self.storage(value)
        if storage.slot < 0:
            storage.slot = len(self.result.slots)
            self.result.slots.append(Slot(storage.kind, storage.index, storage.offset, storage.bytes))
        return storage.slot

    def steps(self, nodes: list[_PlanNode]) -> tuple[Step, ...]:
        steps: list[Step] = []
        for node in nodes:
            match node:
                case _CopyNode():
                    moves = self.storage(node.source) is not self.storage(node.destination)
                    if moves and node.source.type.bytes:
                        steps.append(Copy(self.slot(node.source), self.slot(node.destination)))
                case KernelCall():
                    steps.append(self.launch(node))
                case LibraryCall():
                    lhs, rhs = node.operands
                    slots = (self.slot(lhs), self.slot(rhs), self.slot(node.result))
                    steps.append(Library(node.op, slots, tuple(self.launch(call) for call in node.kernels)))
                case _PlannedWhile():
                    condition, body = self.steps(node.condition), self.steps(node.body)
                    steps.append(While(self.slot(node.predicate), condition, body, node.trip_count))
                case _PlannedCase():
                    branches = tuple(self.steps(b) for b in node.branches)
                    steps.append(Case(self.slot(node.index), branches))
                case HostCallNode():
                    op = node.op
                    steps.append(
                        HostCall(
                            op.attrs["call_target_name"],
                            self.host_arrays(host_call_inputs(op), op.attrs["operand_arrays"]),
                            self.host_arrays(op.results, op.attrs["result_arrays"]),
                            op.attrs["attributes"],
                        )
                    )
        return tuple(steps)

    def host_arrays(
        self, values: list[Value], arrays: tuple[tuple[int, tuple[int, ...]], ...]
    ) -> tuple[HostArray, ...]:
        return tuple(HostArray(self.slot(v), dtype, dims) for v, (dtype, dims) in zip(values, arrays, strict=True))

    def launch(self, call: KernelCall) -> Launch:
        slots = tuple(self.slot(v) for v in call.buffers)
        kernel = self.kernel_number(call.kernel)
        label = self.result.labels.setdefault(call.label, len(self.result.labels))
        return Launch(kernel, slots, call.args, call.threads, call.per_threadgroup, call.work, label)

    def kernel_number(self, kernel: Kernel) -> int:
        number = self.kernel_numbers.setdefault(kernel.name, len(self.result.kernels))
        if number == len(self.result.kernels):
            self.result.kernels.append(kernel)
        return number


@dataclass
class _PlannedWhile:
    predicate: Value
    condition: list[_PlanNode]
    body: list[_PlanNode]
    trip_count: int


@dataclass
class _PlannedCase:
    index: Value
    branches: list[list[_PlanNode]]


_PlanNode = Node | _CopyNode | _PlannedWhile | _PlannedCase


def plan(graph: Graph, sequence: Sequence) -> BufferPlan:
    """Plans memory for a whole program and turns its nodes into steps."""
    planner = _Planner(graph)
    for number, arg in enumerate(graph.args):
        planner.new(arg, SlotKind.PARAMETER, number)
    nodes = planner.walk(sequence)
    for number, value in enumerate(sequence.outputs):
        result = Value(value.type)
        planner.new(result, SlotKind.OUTPUT, number)
        nodes.append(planner.copy(value, result))
    planner.set_lifetimes()
    planner.coalesce()
    planner.find_aliases()
    planner.allocate()
    planner.result.body = planner.steps(nodes)
    return planner.result
