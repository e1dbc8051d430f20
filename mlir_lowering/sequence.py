"""Lowered control flow: what a region becomes before memory is planned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from mlir_lowering.errors import unsupported
from mlir_lowering.fusion import View, fuse, is_stored_constant
from mlir_lowering.graph import Op, Region, Value
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.library import LibraryCall, match
from mlir_lowering.passes.trip_count import static_trip_count
from mlir_lowering.registry import OPS
from mlir_lowering.schedules import pointwise, schedule_of
from mlir_lowering.targets import Target, host_target
from mlir_lowering.verify import enabled as verifies
from mlir_lowering.verify.groups import verify_groups


@dataclass
class WhileNode:
    """Runs `body` while `condition` yields true. results[i] holds the carried value i during the whole loop."""

    op: Op
    condition: Sequence
    body: Sequence
    trip_count: int


@dataclass
class CaseNode:
    """Runs one branch, chosen by `index`; results take the branch's outputs."""

    op: Op
    index: Value
    branches: list[Sequence]


@dataclass
class HostCallNode:
    """Calls an FFI handler on the host."""

    op: Op


Node = KernelCall | LibraryCall | View | WhileNode | CaseNode | HostCallNode


@dataclass
class Sequence:
    args: list[Value]
    outputs: list[Value]
    nodes: list[Node] = field(default_factory=list)
    constants: list[Value] = field(default_factory=list)  # stored constants defined here


def build_sequence(region: Region, target: Target) -> Sequence:
    """Fuses a region and schedules its groups."""
    sequence = Sequence(list(region.args), list(region.outputs))
    sequence.constants = [op.result for op in region.ops if is_stored_constant(op)]
    units = fuse(region, target)
    if verifies():
        verify_groups(region, units, target)
    for unit in units:
        match unit:
            case View():
                sequence.nodes.append(unit)
            case Group():
                sequence.nodes.extend(schedule_group(unit, target))
            case Op() if OPS[unit.name].control == "barrier":
                sequence.nodes += [View(r, v) for r, v in zip(unit.results, unit.operands, strict=True)]
            case Op():
                sequence.nodes.append(_control(unit, target))
    return sequence


def schedule_group(group: Group, target: Target) -> list[KernelCall] | list[LibraryCall]:
    """The kernels of one group, or one call of the library that has them; none if it writes nothing."""
    if all(value.type.size == 0 for value in group.outputs):
        return []
    if group.on_host:
        target = host_target(target)
    name = "pointwise" if group.head is None else str(OPS[group.head.name].schedule)
    schedule = pointwise.emit if group.head is None else schedule_of(name, target).emit
    calls = [launch for call in schedule(group, target) for launch in call.launches()]
    what = group.head or group.outputs[0].op
    assert what is not None, "a group writes what its ops make"
    location = str(what.loc)
    for call in calls:
        call.label = replace(call.label, op=what.name, location=location, schedule=name)
    if group.head is None:
        return calls
    found = match(group, target)
    return [LibraryCall(found.op, found.operands, group.outputs[0], calls)] if found else calls


def _control(op: Op, target: Target) -> Node:
    match OPS[op.name].control:
        case "while":
            condition, body = op.regions
            return WhileNode(
                op,
                build_sequence(condition, target),
                build_sequence(body, target),
                static_trip_count(op),
            )
        case "case" | "if":
            branches = [build_sequence(r, target) for r in op.regions]
            return CaseNode(op, op.operands[0], branches)
        case "custom_call":
            return HostCallNode(op)
    raise unsupported(op.signature(), str(op.loc))
