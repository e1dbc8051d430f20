"""Fusion: which ops share a kernel.

Works on one region, from its last op to its first. An op whose only readers sit in one kernel is evaluated there
(inlined); an op that several kernels read is written to memory, unless recomputing it is as cheap as reading it. A
scheduled op (reduce, contraction, ...) heads a kernel of its own and takes in the pointwise ops that follow it, its
epilogue. What comes out are Groups, control-flow ops and views, in an order that respects their dependencies: kernels
never need one another, since an op joins a kernel, and two kernels become one, only where mlir_lowering/order.py finds
a place for that.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from mlir_lowering.arrays import is_splat
from mlir_lowering.graph import Op, Region, Value, has_effects, values_read
from mlir_lowering.kernel import Group
from mlir_lowering.library import worth_unfusing
from mlir_lowering.monoids import monoid_of
from mlir_lowering.order import Order
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
# Kernels that a reduction is compared with in search of one to share a loop nest with: the last ones that read an input
# of its own.
MAX_SIBLINGS_TRIED = 4


@dataclass
class View:
    """`result` is `source`'s memory under another shape."""

    result: Value
    source: Value


Unit = Group | Op | View  # an Op is control flow


@dataclass(eq=False)
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
        self.reads = {op: values_read(op) for op in region.ops}
        self.users: dict[Value, list[Op]] = {}
        for op, values in self.reads.items():
            for value in values:
                self.users.setdefault(value, []).append(op)
        self.outputs = set(region.outputs)
        effects = [op for op in region.ops if has_effects(op)]
        self.effects = set(effects)
        self.next_effect = dict(itertools.pairwise(effects))
        self.last_effect = {after: op for op, after in self.next_effect.items()}
        self.home: dict[Op, list[_Draft]] = {}  # the drafts that evaluate an op
        self.drafts: list[_Draft] = []
        self.maker: dict[Value, _Draft] = {}  # the draft that writes a value
        self.order = Order(self._following, self._preceding)
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
        self.order.add_first(draft)
        return draft

    def _write(self, draft: _Draft, values: list[Value]) -> None:
        """Makes `draft` write values that it evaluates."""
        draft.outputs += values
        self.maker.update(dict.fromkeys(values, draft))

    def _add(self, draft: _Draft, op: Op, evaluations: float) -> None:
        """Evaluates `op` inside `draft`."""
        draft.ops[op] = max(evaluations, draft.ops.get(op, 0))
        draft.inputs.difference_update(op.results)
        draft.inputs.update(v for v in self.reads[op] if v.op not in draft.ops)
        self.home.setdefault(op, []).append(draft)
        if op in draft.siblings or op is draft.head or not OPS[op.name].pointwise:
            draft.elsewhere.update(self.reads[op])
            return
        same_index = [v for v in op.operands if v.shape == draft.shape]
        if op.result in draft.aligned:
            draft.aligned.update(same_index)
        draft.elsewhere.update(op.operands if op.result in draft.elsewhere else set(op.operands).difference(same_index))

    def _evaluations(self, op: Op, draft: _Draft, users: list[Op]) -> float | None:
        """How often `draft` would evaluate an element of op's result, for its `users`; None if it must be in memory."""
        most = 0.0
        for user in users:
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

    def _readers(self, op: Op) -> dict[_Draft, list[Op]]:
        """The drafts that need a result of `op`, and for which of their ops."""
        found: dict[_Draft, list[Op]] = {}
        for value in op.results:
            for user in self.users.get(value, ()):
                for draft in self.home[user]:
                    found.setdefault(draft, []).append(user)
        return found

    def _fits(self, draft: _Draft, op: Op) -> bool:
        added = {v for v in self.reads[op] if v.op not in draft.ops and v not in draft.inputs}
        inputs = len(draft.inputs) + len(added) - sum(v in draft.inputs for v in op.results)
        buffers = inputs + len(draft.outputs) + 2
        return len(draft.ops) < MAX_OPS and buffers < self.target.max_buffers

    def _following(self, draft: _Draft) -> Iterator[_Draft]:
        """The drafts that read what this one writes, or whose effects come next."""
        for value in draft.outputs:
            for user in self.users.get(value, ()):
                yield from (d for d in self.home[user] if d is not draft)
        for op in self.effects.intersection(draft.ops) if draft.closed else ():
            if op in self.next_effect:
                yield from self.home[self.next_effect[op]]

    def _preceding(self, draft: _Draft) -> Iterator[_Draft]:
        for value in draft.inputs:
            maker = self.maker.get(value)
            if maker is not None and maker is not draft:
                yield maker
        for op in self.effects.intersection(draft.ops) if draft.closed else ():
            if op in self.last_effect:
                yield from self.home.get(self.last_effect[op], ())

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
        self._write(draft, list(op.results))
        draft.ops = {op: 1}
        draft.inputs = set(self.reads[op])
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
                    self._write(draft, [op.result])
                self._add(draft, op, op.result.type.size)
                return
        draft = self._new_draft(op, op.results[0].shape)
        draft.head = op
        self._write(draft, read or [op.results[0]])
        draft.aligned = set(op.results)
        self._add(draft, op, op.results[0].type.size)

    def _element(self, op: Op) -> None:
        value = op.result
        readers = self._readers(op)
        if not readers and value not in self.outputs:
            self.home[op] = []  # dead
            return
        evaluations = {d: self._evaluations(op, d, users) for d, users in readers.items() if not d.closed}
        anywhere = (
            value not in self.outputs
            and len(evaluations) == len(readers)
            and all(n is not None for n in evaluations.values())
        )
        if anywhere and is_literal(op):
            for draft in readers:
                self._add(draft, op, 0)
            return
        inlinable = (
            anywhere
            and self.copies[op] <= MAX_COPIES
            and all(self._fits(d, op) for d in readers)
            and (len(readers) == 1 or self._cheap_to_repeat(op, len(readers)))
            and all(self._may_repeat(op, evaluations[d] or 0.0) for d in readers)
        )
        if inlinable:
            for draft in readers:
                self._add(draft, op, evaluations[draft] or 0.0)
            return
        joined = self._join(op, evaluations, readers)
        if joined is not None:
            self._write(joined, [value])
            self._add(joined, op, value.type.size)
            return
        draft = self._new_draft(op, value.shape)
        self._write(draft, [value])
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

    def _join(self, op: Op, evaluations: dict[_Draft, float | None], readers: dict[_Draft, list[Op]]) -> _Draft | None:
        """A draft that evaluates this value once an element anyway, so may as well write it."""
        for draft, times in evaluations.items():
            if (
                times is not None
                and op.result in draft.aligned
                and op.result.shape == draft.shape
                and self._fits(draft, op)
                # At its other indices it would be evaluated once more, with all that it was to be kept apart from.
                and not (op.result in draft.elsewhere and self.copies[op] > MAX_COPIES)
                and self.order.connect(draft, [d for d in readers if d is not draft])
            ):
                return draft
        return None

    def _merge_siblings(self) -> None:
        """Reductions of one shape over the same dimensions that read a common input share a loop nest."""
        alike: dict[tuple[object, ...], list[_Draft]] = {}
        for draft in self.drafts:
            head = draft.head
            if head is None or head.name != "stablehlo.reduce" or monoid_of(head) is None:
                continue
            nest = (head.operands[0].shape, tuple(head.attrs["dimensions"]), draft.shape)
            inputs = [v for op in draft.ops for v in op.operands if v in draft.inputs and v.type.size > 1]
            keys = [(nest, value) for value in dict.fromkeys(inputs)]
            candidates = dict.fromkeys(d for key in keys for d in alike.get(key, ())[-MAX_SIBLINGS_TRIED:])
            merged = next((d for d in candidates if self._may_share(d, draft) and self.order.merge(d, draft)), None)
            for key in keys:
                known = alike.setdefault(key, [])
                if (merged or draft) not in known[-MAX_SIBLINGS_TRIED:]:
                    known.append(merged or draft)
            if merged is not None:
                self._absorb(merged, draft, head)

    def _absorb(self, merged: _Draft, draft: _Draft, head: Op) -> None:
        merged.siblings.append(head)
        merged.inputs = (merged.inputs | draft.inputs) - {*merged.outputs, *draft.outputs}
        self._write(merged, draft.outputs)
        merged.aligned |= draft.aligned
        merged.elsewhere |= draft.elsewhere
        merged.last = max(merged.last, draft.last)
        merged.ops |= draft.ops
        for op in draft.ops:
            if not op.operands:
                continue  # reads nothing, and a literal is evaluated in every other kernel
            home = [d for d in self.home[op] if d is not draft and d is not merged]
            self.home[op] = [*home, merged]
        draft.outputs = []

    def _may_share(self, a: _Draft, b: _Draft) -> bool:
        buffers = len(a.inputs | b.inputs) + len(a.outputs) + len(b.outputs) + 2
        if buffers >= self.target.max_buffers or len(a.ops) + len(b.ops) > MAX_OPS:
            return False
        return self._feeds_only_epilogue(a, b) and self._feeds_only_epilogue(b, a)

    def _feeds_only_epilogue(self, a: _Draft, b: _Draft) -> bool:
        """Whether what b reads of a, if anything, is read where b stores its results, and nowhere on the way."""
        return not any(value in b.inputs and (value not in b.aligned or value in b.elsewhere) for value in a.outputs)

    # Result.

    def _ordered(self) -> list[Unit]:
        """Units in dependency order; among the ready ones, the program's order."""
        self.drafts = [draft for draft in self.drafts if draft.outputs or not self.effects.isdisjoint(draft.ops)]
        numbers = {draft: number for number, draft in enumerate(self.drafts)}
        waiting: list[int] = []
        followers: list[list[int]] = [[] for _ in self.drafts]
        for number, draft in enumerate(self.drafts):
            before = {numbers[d] for d in self._preceding(draft)}
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
    fuser = _Fuser(region, target)
    units = fuser.run()
    del fuser.order  # knows the fuser: a reference cycle
    return units
