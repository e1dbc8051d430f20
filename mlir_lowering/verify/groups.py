"""Checks what fusion made of a region: kernels, control flow and views in the order in which they run.

Each value has one maker; what a unit reads is made before it (so no units need one another); a group evaluates only
what can be evaluated where it is asked for; effects keep the program's order.
"""

from __future__ import annotations

from mlir_lowering.fusion import Unit, View, is_stored_constant
from mlir_lowering.graph import Op, Region, Value, has_effects, values_read
from mlir_lowering.kernel import Group
from mlir_lowering.registry import OPS
from mlir_lowering.schedules import schedule_of
from mlir_lowering.targets import Target
from mlir_lowering.verify import VerificationError


def verify_groups(region: Region, units: list[Unit], target: Target) -> None:
    """Raises VerificationError if the units do not compute the region."""
    inside = {value for op in region.ops for value in op.results}
    made = {op.result for op in region.ops if is_stored_constant(op)}
    effects = [op for op in region.ops if has_effects(op)]
    done: list[Op] = []
    for unit in units:
        reads, makes = _reads(unit, target), _makes(unit)
        for value in dict.fromkeys(reads):
            if value in inside and value not in made:
                raise _wrong(unit, f"reads {value}, which is not made before it")
        for value in makes:
            if value not in inside:
                raise _wrong(unit, f"makes {value}, which is not of its region")
            if value in made:
                raise _wrong(unit, f"makes {value}, which is made already")
            made.add(value)
        if isinstance(unit, Op) and has_effects(unit):
            done.append(unit)
    if done != effects:
        raise VerificationError("fusion", f"effects happen as {done} and not as {effects}")
    for value in region.outputs:
        if value in inside and value not in made:
            raise VerificationError("fusion", f"nothing makes the output {value}")


def _wrong(unit: Unit, message: str) -> VerificationError:
    what = f"a kernel for {unit.outputs}" if isinstance(unit, Group) else repr(unit)
    return VerificationError("fusion", f"{what} {message}")


def _makes(unit: Unit) -> list[Value]:
    match unit:
        case View():
            return [unit.result]
        case Group():
            return unit.outputs
    return unit.results


def _reads(unit: Unit, target: Target) -> list[Value]:
    match unit:
        case View():
            if unit.result.type.bytes != unit.source.type.bytes:
                raise _wrong(unit, "changes the size of its memory")
            return [unit.source]
        case Group():
            return _group_reads(unit, target)
    return values_read(unit)


def _group_reads(group: Group, target: Target) -> list[Value]:
    """What a group's kernel reads from memory, after checks that it may evaluate the rest."""
    heads = [op for op in (group.head, *group.siblings) if op is not None]
    if not group.outputs or len(set(group.outputs)) != len(group.outputs):
        raise _wrong(group, "writes nothing, or a value twice")
    for op in heads:
        if op not in group.inlined or OPS[op.name].schedule is None:
            raise _wrong(group, f"is headed by {op}, which is not evaluated in it or has no schedule")
    for op in group.inlined:
        if op not in heads and (OPS[op.name].element is None or is_stored_constant(op)):
            raise _wrong(group, f"evaluates {op}, whose elements cannot be evaluated on their own")
    for op in heads:
        schedule = schedule_of(OPS[op.name].schedule, target)
        for number, operand in enumerate(op.operands):
            if schedule.reads(op, number) is None and operand.op in group.inlined:
                raise _wrong(group, f"evaluates {operand}, which {op} needs in memory")
    _check_epilogue(group, heads)
    shape = heads[0].results[0].shape if heads else group.outputs[0].shape
    for value in group.outputs:
        if value.op not in group.inlined:
            raise _wrong(group, f"writes {value}, which it does not evaluate")
        if value.shape != shape and value.op not in heads:
            raise _wrong(group, f"writes {value}, whose elements are not those of its loops")
    made = {value for op in group.inlined for value in op.results}
    return [v for op in group.inlined for v in values_read(op) if v not in made]


def _check_epilogue(group: Group, heads: list[Op]) -> None:
    """What is evaluated on the heads' results must be so at the very index of the result."""
    users: dict[Value, list[Op]] = {}
    for op in group.inlined:
        for value in op.operands:
            users.setdefault(value, []).append(op)
    stack = [value for op in heads for value in op.results]
    after = set(stack)
    while stack:
        for op in users.get(stack.pop(), ()):
            if op in heads:
                raise _wrong(group, f"folds, in {op}, what is computed from its own results")
            if not OPS[op.name].pointwise or op.result.shape != heads[0].results[0].shape:
                raise _wrong(group, f"evaluates {op} on its head's result at another index")
            if op.result not in after:
                after.add(op.result)
                stack.append(op.result)
