"""Fusion: which ops share a kernel.

Works on one region, from its last op to its first. An op whose only readers sit in one kernel is evaluated there
(inlined); an op that several kernels read is written to memory, unless recomputing it is as cheap as reading it. A
scheduled op (reduce, contraction, ...) heads a kernel of its own and takes in the pointwise ops that follow it, its
epilogue. What comes out are Groups, control-flow ops and views, in an order that respects their dependencies.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field

from mlir_lowering.arrays import is_splat
from mlir_lowering.graph import Op, Region, Value, free_values, has_effects
from mlir_lowering.kernel import Group
from mlir_lowering.library import worth_unfusing
from mlir_lowering.monoids import monoid_of
from mlir_lowering.registry import OPS, OpDef
from mlir_lowering.schedules import schedule_of
from mlir_lowering.targets import Target

# Most ops one kernel evaluates: keeps kernels readable and compile time linear.
MAX_OPS = 200
# Recomputation (additions' worth) that costs about as much as launching one more kernel.
LAUNCH_WORK = 50_000
# How many copies of an op's producers a kernel may hold: each operand of a concatenate, each shifted slice that is
# added to another, evaluates what is before it once more.
MAX_COPIES = 32
# An inlined chain dearer than this (in additions) is not evaluated in several kernels.
CHEAP_CHAIN = 6


@dataclass
class View:
    """`result` is `source`'s memory under another shape."""

    result: Value
    source: Value


Unit = Group | Op | View  # an Op is control flow


@dataclass
class _Draft:
    """A group under construction."""

    shape: tuple[int, ...]
    last: int  # position of its last op
    outputs: list[Value] = field(default_factory=list)
    ops: dict[Op, float] = field(default_factory=dict)  # how often each inlined op is evaluated
    aligned: set[Value] = field(default_factory=set)  # values evaluated at the output element's index
    elsewhere: set[Value] = field(default_factory=set)  # values evaluated at other indices; may be aligned as well
    inputs: set[Value] = field(default_factory=set)
    head: Op | None = None
    siblings: list[Op] = field(default_factory=list)
    closed: bool = False  # control flow and views take nothing in


def is_literal(op: Op) -> bool:
    """A constant that a kernel writes as a literal rather than reads from memory."""
    return op.name == "stablehlo.constant" and is_splat(op.attrs["value"])


def is_stored_constant(op: Op) -> bool:
    return op.name == "stablehlo.constant" and not is_literal(op)


def _evaluation_cost(op: Op, record: OpDef) -> int:
    return record.cost if record.pointwise else 0


class _Fuser:
    def __init__(self, region: Region, target: Target) -> None:
        self.region = region
        self.target = target
        self.position = {op: i for i, op in enumerate(region.ops)}
        self.users: dict[Value, list[Op]] = {}
        for op in region.ops:
            reads = list(op.operands)
            for inner in op.regions:
                reads += free_values(inner)
            for value in dict.fromkeys(reads):
                self.users.setdefault(value, []).append(op)
        self.outputs = set(region.outputs)
        effects = [op for op in region.ops if has_effects(op)]
        self.effects = set(effects)
        self.next_effect = dict(itertools.pairwise(effects))
        self.home: dict[Op, list[_Draft]] = {}  # the drafts that evaluate an op
        self.drafts: list[_Draft] = []
        self.chain: dict[Op, int] = {}  # arithmetic of an element if everything before is inlined
        self.leaf_bytes: dict[Op, int] = {}  # bytes read then
        self.copies: dict[Op, int] = {}  # how often what is furthest before it would be written out then
        self._measure_chains()

    def _measure_chains(self) -> None:
        for op in self.region.ops:
            record = OPS[op.name]
            cost, leaves = _evaluation_cost(op, record), 0
            same_index, other_index = 1, 0
            for operand in op.operands:
                producer = operand.op
                if producer is not None and self._is_inlinable(producer):
                    cost += self.chain[producer]
                    leaves += self.leaf_bytes[producer]
                    if record.pointwise and OPS[producer.name].pointwise:
                        same_index = max(same_index, self.copies[producer])
                    else:
                        other_index += self.copies[producer]
                else:
                    leaves += operand.type.bytes
            if is_literal(op):
                leaves = 0
            self.copies[op] = min(max(same_index, other_index), 2 * MAX_COPIES)
            self.chain[op] = min(cost, 1 << 20)
            self.leaf_bytes[op] = min(leaves, 1 << 50)

    def _is_inlinable(self, op: Op) -> bool:
        """Whether an op of this region can be evaluated inside its readers' kernels."""
        return (
            op in self.position
            and OPS[op.name].element is not None
            and self.copies[op] <= MAX_COPIES
            and not is_stored_constant(op)
            and not self._is_view(op)
        )

    def _is_view(self, op: Op) -> bool:
        """A reshape of something that is in memory anyway costs nothing as a view."""
        if op.name != "stablehlo.reshape":
            return False
        producer = op.operands[0].op
        if producer is None or producer not in self.position:
            return True
        record = OPS[producer.name]
        return record.element is None or is_stored_constant(producer) or self._is_view(producer)

    # Drafts.

    def _new_draft(self, op: Op, shape: tuple[int, ...]) -> _Draft:
        draft = _Draft(shape, self.position[op])
        self.drafts.append(draft)
        return draft

    def _add(self, draft: _Draft, op: Op, evaluations: float) -> None:
        """Evaluates `op` inside `draft`."""
        draft.ops[op] = max(evaluations, draft.ops.get(op, 0))
        draft.inputs.difference_update(op.results)
        for operand in op.operands:
            if operand.op not in draft.ops:
                draft.inputs.add(operand)
        self.home.setdefault(op, []).append(draft)
        if op in draft.siblings or op is draft.head or not OPS[op.name].pointwise:
            draft.elsewhere.update(op.operands)
            return
        same_index = [v for v in op.operands if v.shape == draft.shape]
        if op.result in draft.aligned:
            draft.aligned.update(same_index)
        draft.elsewhere.update(op.operands if op.result in draft.elsewhere else set(op.operands).difference(same_index))

    def _evaluations(self, op: Op, draft: _Draft) -> float | None:
        """How often `draft` would evaluate an element of op's result; None if it must be in memory."""
        most = 0.0
        for user in self.users.get(op.result, ()):
            if user not in draft.ops:
                continue
            if user is draft.head or user in draft.siblings:
                schedule = schedule_of(OPS[user.name].schedule, self.target)
                for i, operand in enumerate(user.operands):
                    if operand is op.result:
                        times = schedule.reads(user, i)
                        if times is None:
                            return None
                        most = max(most, times * operand.type.size)
            else:
                most = max(most, draft.ops[user])
        return most

    def _readers(self, op: Op) -> list[_Draft]:
        found: dict[int, _Draft] = {}
        for value in op.results:
            for user in self.users.get(value, ()):
                for draft in self.home[user]:
                    found[id(draft)] = draft
        return list(found.values())

    def _fits(self, draft: _Draft, op: Op) -> bool:
        inputs = (draft.inputs - set(op.results)) | {v for v in op.operands if v.op not in draft.ops}
        buffers = len(inputs) + len(draft.outputs) + 2
        return len(draft.ops) < MAX_OPS and buffers < self.target.max_buffers

    def _reaches(self, sources: list[_Draft], goal: _Draft) -> bool:
        """Whether anything computed from what `sources` compute is read by `goal`."""
        seen = {id(d) for d in sources}
        stack = list(sources)
        while stack:
            draft = stack.pop()
            if draft is goal:
                return True
            users = [user for value in draft.outputs for user in self.users.get(value, ())]
            users += [self.next_effect[op] for op in draft.ops if op in self.next_effect]
            for user in users:
                if self.position[user] > goal.last:
                    continue
                for following in self.home.get(user, ()):
                    if id(following) not in seen:
                        seen.add(id(following))
                        stack.append(following)
        return False

    # The decision for each op, last to first.

    def run(self) -> list[Unit]:
        for op in reversed(self.region.ops):
            record = OPS[op.name]
            if is_stored_constant(op):
                self.home[op] = []
            elif record.control is not None or self._is_view(op):
                self._stand_alone(op)
            elif record.schedule is not None:
                self._head(op, record)
            else:
                self._element(op)
        self._merge_siblings()
        return self._ordered()

    def _stand_alone(self, op: Op) -> None:
        draft = self._new_draft(op, ())
        draft.closed = True
        draft.outputs = list(op.results)
        draft.ops = {op: 1}
        draft.inputs = set(op.operands)
        for inner in op.regions:
            draft.inputs.update(free_values(inner))
        self.home[op] = [draft]

    def _head(self, op: Op, record: OpDef) -> None:
        schedule = schedule_of(record.schedule, self.target)
        readers = self._readers(op)
        read = [v for v in op.results if self.users.get(v) or v in self.outputs]
        if schedule.epilogue and len(readers) == 1 and len(op.results) == 1:
            (draft,) = readers
            if (
                not draft.closed
                and draft.head is None
                and op.result in draft.aligned
                and op.result not in draft.elsewhere  # the accumulator holds the element at the output's index only
                and all(user in draft.ops for user in self.users[op.result])
                and self._fits(draft, op)
                and not worth_unfusing(op, self.users, self.target)
            ):
                draft.head = op
                if op.result in self.outputs:
                    draft.outputs.append(op.result)
                self._add(draft, op, op.result.type.size)
                return
        draft = self._new_draft(op, op.results[0].shape)
        draft.head = op
        draft.outputs = read or [op.results[0]]
        draft.aligned = set(op.results)
        self._add(draft, op, op.results[0].type.size)

    def _element(self, op: Op) -> None:
        value = op.result
        readers = self._readers(op)
        if not readers and value not in self.outputs:
            self.home[op] = []  # dead
            return
        if is_literal(op) and value not in self.outputs and not any(d.closed for d in readers):
            needs_memory = [d for d in readers if self._evaluations(op, d) is None]
            if not needs_memory:
                for draft in readers:
                    self._add(draft, op, 0)
                return
        evaluations = {id(d): self._evaluations(op, d) for d in readers if not d.closed}
        inlinable = (
            value not in self.outputs
            and self.copies[op] <= MAX_COPIES
            and len(evaluations) == len(readers)
            and all(n is not None for n in evaluations.values())
            and all(self._fits(d, op) for d in readers)
            and (len(readers) == 1 or self._cheap_to_repeat(op, len(readers)))
            and all(self._may_repeat(op, evaluations[id(d)] or 0.0) for d in readers)
        )
        if inlinable:
            for draft in readers:
                self._add(draft, op, evaluations[id(draft)] or 0.0)
            return
        joined = self._join(op, readers)
        if joined is not None:
            joined.outputs.append(value)
            self._add(joined, op, value.type.size)
            return
        draft = self._new_draft(op, value.shape)
        draft.outputs = [value]
        draft.aligned = {value}
        self._add(draft, op, value.type.size)

    def _cheap_to_repeat(self, op: Op, times: int) -> bool:
        """Whether evaluating `op` in several kernels costs less than writing and reading it."""
        return (
            times <= 4 and self.chain[op] <= CHEAP_CHAIN and self.leaf_bytes[op] <= 1.25 * op.result.type.bytes + 4096
        )

    def _may_repeat(self, op: Op, evaluations: float) -> bool:
        """Whether evaluating an element more often than once is cheap enough."""
        extra = (evaluations - op.result.type.size) * max(self.chain[op] - 1, 0)
        return extra <= LAUNCH_WORK

    def _join(self, op: Op, readers: list[_Draft]) -> _Draft | None:
        """A draft that evaluates this value once an element anyway, so may as well write it."""
        for draft in readers:
            if (
                draft.closed
                or op.result not in draft.aligned
                or op.result.shape != draft.shape
                or not self._fits(draft, op)
                or self._evaluations(op, draft) is None
                # At its other indices it would be evaluated once more, with all that it was to be kept apart from.
                or (op.result in draft.elsewhere and self.copies[op] > MAX_COPIES)
            ):
                continue
            others = [d for d in readers if d is not draft]
            if not self._reaches(others, draft):
                return draft
        return None

    def _merge_siblings(self) -> None:
        """Reductions of one shape over the same dimensions that read a common input share a loop nest."""
        alike: dict[tuple[object, ...], list[_Draft]] = {}
        for draft in self.drafts:
            head = draft.head
            if head is None or head.name != "stablehlo.reduce" or monoid_of(head) is None:
                continue
            key = (head.operands[0].shape, tuple(head.attrs["dimensions"]), draft.shape)
            merged = next((d for d in alike.get(key, ()) if self._may_share(d, draft)), None)
            if merged is None:
                alike.setdefault(key, []).append(draft)
                continue
            merged.siblings.append(head)
            merged.outputs += draft.outputs
            merged.inputs = (merged.inputs | draft.inputs) - set(merged.outputs)
            merged.aligned |= draft.aligned
            merged.elsewhere |= draft.elsewhere
            merged.last = max(merged.last, draft.last)
            merged.ops |= draft.ops
            for op in draft.ops:
                home = [d for d in self.home[op] if d is not draft and d is not merged]
                self.home[op] = [*home, merged]
            draft.outputs = []

    def _may_share(self, a: _Draft, b: _Draft) -> bool:
        big = {v for v in a.inputs & b.inputs if v.type.size > 1}
        buffers = len(a.inputs | b.inputs) + len(a.outputs) + len(b.outputs) + 2
        if not big or buffers >= self.target.max_buffers or len(a.ops) + len(b.ops) > MAX_OPS:
            return False
        return self._feeds_only_epilogue(a, b) and self._feeds_only_epilogue(b, a)

    def _feeds_only_epilogue(self, a: _Draft, b: _Draft) -> bool:
        """Whether what b reads of a, if anything, is read where b stores its results, and nowhere on the way."""
        others: list[_Draft] = []
        for value in a.outputs:
            for user in self.users.get(value, ()):
                if user in b.ops and (value not in b.aligned or value in b.elsewhere):
                    return False
                others += [d for d in self.home[user] if d is not b]
        return not self._reaches(others, b)

    # Result.

    def _ordered(self) -> list[Unit]:
        """Units in dependency order; among the ready ones, the program's order."""
        self.drafts = [draft for draft in self.drafts if draft.outputs or not self.effects.isdisjoint(draft.ops)]
        producer: dict[Value, int] = {}
        for number, draft in enumerate(self.drafts):
            for value in draft.outputs:
                producer[value] = number
        # An effect comes after the one before it in the program.
        number_of = {op: number for number, draft in enumerate(self.drafts) for op in draft.ops if op in self.effects}
        previous = {number_of[after]: number_of[op] for op, after in self.next_effect.items()}
        waiting: list[int] = []
        followers: list[list[int]] = [[] for _ in self.drafts]
        for number, draft in enumerate(self.drafts):
            before = {producer[v] for v in draft.inputs if v in producer} - {number}
            if number in previous:
                before.add(previous[number])
            waiting.append(len(before))
            for b in before:
                followers[b].append(number)
        ready = [(d.last, n) for n, d in enumerate(self.drafts) if not waiting[n]]
        heapq.heapify(ready)
        units: list[Unit] = []
        while ready:
            _, number = heapq.heappop(ready)
            units.append(self._unit(self.drafts[number]))
            for following in followers[number]:
                waiting[following] -= 1
                if not waiting[following]:
                    heapq.heappush(ready, (self.drafts[following].last, following))
        if len(units) != len(self.drafts):
            raise AssertionError("fusion made kernels that need one another")
        return units

    def _unit(self, draft: _Draft) -> Unit:
        if not draft.closed:
            return Group(draft.outputs, set(draft.ops), draft.head, draft.siblings)
        (op,) = draft.ops
        if op.name == "stablehlo.reshape":
            return View(op.result, op.operands[0])
        return op


def fuse(region: Region, target: Target) -> list[Unit]:
    """The region's kernels, control flow and views in execution order; stored constants are in none of them."""
    return _Fuser(region, target).run()
