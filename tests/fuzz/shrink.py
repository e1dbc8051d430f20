"""Makes a failing program small: whatever can go goes while it still fails.

Any value can become an argument, since what it held is known: so each step cuts off all that came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tests.fuzz.evaluate import Env, run_op
from tests.fuzz.graph import Array, Block, Case, Op, Var, dense
from tests.fuzz.values import Reject, Val

Fails = Callable[[Case], bool]


def shrink(case: Case, fails: Fails, tries: int = 400) -> Case:
    """A smaller case for which `fails` still holds. `tries` bounds how often it is asked."""
    left = tries
    progress = True
    while progress and left > 0:
        progress = False
        for smaller in _candidates(case):
            try:
                smaller = tidy(smaller)
                if _size(smaller) >= _size(case):
                    continue
                values_of(smaller)
            except Reject:
                continue
            left -= 1
            if left <= 0:
                break
            if fails(smaller):
                case, progress = smaller, True
                break
    return case


def values_of(case: Case) -> Env:
    """Every value of the main block; Reject if one has no sharp value."""
    env: Env = {v: Val(x) for v, x in zip(case.block.args, case.inputs, strict=True)}
    for op in case.block.ops:
        env.update(zip(op.outs, run_op(op, env), strict=True))
    return env


def _size(case: Case) -> tuple[int, int, int, int]:
    return (
        _ops(case.block),
        len(case.block.outputs),
        sum(case.donated),
        len(case.block.args) + sum(v.size for v in case.block.args) // 1000,
    )


def _ops(block: Block) -> int:
    """Constants and views count less, so that they replace what computes."""
    return sum(3 + sum(map(_ops, op.blocks)) if op.kind not in ("constant",) else 2 for op in block.ops)


def tidy(case: Case) -> Case:
    """Without ops that nobody reads and arguments that nobody uses."""
    block = _without_dead(case.block)
    used = {v for op in block.ops for v in op.reads()} | set(block.outputs)
    kept = [i for i, v in enumerate(case.block.args) if v in used]
    block.args = [case.block.args[i] for i in kept]
    return Case(block, [case.inputs[i] for i in kept], [case.donated[i] for i in kept])


def _without_dead(block: Block) -> Block:
    ops: list[Op] = []
    wanted = set(block.outputs)
    for op in reversed(block.ops):
        if wanted.isdisjoint(op.outs):
            continue
        op = Op(op.kind, op.ins, op.outs, op.attrs, [_without_dead(b) for b in op.blocks])
        wanted.update(op.reads())
        ops.append(op)
    return Block(block.args, ops[::-1], block.outputs)


def _candidates(case: Case) -> Iterator[Case]:
    block = case.block
    if len(block.outputs) > 1:
        for n in range(len(block.outputs)):
            yield _with(case, Block(block.args, block.ops, block.outputs[n : n + 1]))
        for n in range(len(block.outputs)):
            yield _with(case, Block(block.args, block.ops, block.outputs[:n] + block.outputs[n + 1 :]))
    if any(case.donated):
        yield Case(block, case.inputs, [False] * len(case.donated))
        for n in range(len(case.donated)):
            yield Case(block, case.inputs, [d and i != n for i, d in enumerate(case.donated)])
    env = values_of(case)
    # From the last op, whose replacement cuts off the most.
    for op in reversed(block.ops):
        if op.kind == "constant":
            continue
        # Its results become arguments.
        arguments = [v for v in op.outs if _plain(env[v])]
        if len(arguments) == len(op.outs):
            yield Case(
                Block([*block.args, *op.outs], [o for o in block.ops if o is not op], block.outputs),
                [*case.inputs, *(env[v].array for v in op.outs)],
                [*case.donated, *(False for _ in op.outs)],
            )
    for op in block.ops:
        for v in op.outs:
            # Its operands, or others of the type, take its place.
            for other in op.ins:
                if other.type == v.type:
                    yield _with(case, _replaced(block, {v: other}))
    for n, op in enumerate(block.ops):
        for smaller in _smaller_ops(op, env):
            yield _with(case, Block(block.args, [*block.ops[:n], smaller, *block.ops[n + 1 :]], block.outputs))
    for op in block.ops:
        if op.kind in ("if", "case"):
            for inner in op.blocks:
                ops = []
                for o in block.ops:
                    ops += inner.ops if o is op else [o]
                yield _with(
                    case,
                    _replaced(Block(block.args, ops, block.outputs), dict(zip(op.outs, inner.outputs, strict=True))),
                )


def _plain(val: Val) -> bool:
    return val.exact


def _smaller_ops(op: Op, env: Env) -> Iterator[Op]:
    """The same op with less in its regions, fewer operands, fewer carried values."""
    if op.kind == "while":
        for n in range(len(op.outs)):
            keep = [i for i in range(len(op.outs)) if i != n]
            cond, body = op.blocks
            gone = {body.args[n], cond.args[n]}
            reads = {v for b in (cond, body) for o in b.ops for v in o.reads()}
            reads |= set(cond.outputs) | {body.outputs[i] for i in keep}
            if gone & reads:
                continue
            yield Op(
                "while",
                [op.ins[i] for i in keep],
                [op.outs[i] for i in keep],
                op.attrs,
                [
                    Block([cond.args[i] for i in keep], cond.ops, cond.outputs),
                    Block([body.args[i] for i in keep], body.ops, [body.outputs[i] for i in keep]),
                ],
            )
    if op.kind == "concatenate" and len(op.ins) > 1:
        return
    if op.kind in ("reduce", "sort", "scatter", "reduce_window", "select_and_scatter"):
        return
    for number, block in enumerate(op.blocks):
        for smaller in _smaller_blocks(block):
            blocks = [*op.blocks[:number], smaller, *op.blocks[number + 1 :]]
            yield Op(op.kind, op.ins, op.outs, op.attrs, blocks)


def _smaller_blocks(block: Block) -> Iterator[Block]:
    made: list[Var] = list(block.args)
    for n, op in enumerate(block.ops):
        for v in op.outs:
            for other in {w.type: w for w in made}.values():
                if other.type == v.type:
                    yield _replaced(block, {v: other})
        for smaller in _smaller_ops(op, {}):
            yield Block(block.args, [*block.ops[:n], smaller, *block.ops[n + 1 :]], block.outputs)
        if op.kind != "constant" and len(op.outs) == 1 and op.outs[0].size <= 64:
            v = op.outs[0]
            yield Block(block.args, [*block.ops[:n], _ones(v), *block.ops[n + 1 :]], block.outputs)
        made += op.outs
    for n, v in enumerate(block.outputs):
        for w in block.args:
            if w.type == v.type and v is not w:
                yield Block(block.args, block.ops, [*block.outputs[:n], w, *block.outputs[n + 1 :]])


def _ones(v: Var) -> Op:
    array: Array = np.ones(v.shape).astype(v.dtype.numpy)
    return Op("constant", [], [v], {"value": dense(array, v.dtype), "_value": array})


def _replaced(block: Block, names: dict[Var, Var]) -> Block:
    def name(v: Var) -> Var:
        while v in names:
            v = names[v]
        return v

    ops = [
        Op(op.kind, [name(v) for v in op.ins], op.outs, op.attrs, [_replaced(b, names) for b in op.blocks])
        for op in block.ops
    ]
    return Block(block.args, ops, [name(v) for v in block.outputs])


def _with(case: Case, block: Block) -> Case:
    return Case(block, list(case.inputs), list(case.donated))


def renumbered(case: Case) -> Case:
    """Values numbered from 0 in the order of the text."""
    names: dict[Var, Var] = {}
    count = 0

    def new(v: Var) -> Var:
        nonlocal count
        names[v] = Var(v.shape, v.dtype, count)
        count += 1
        return names[v]

    def walk(block: Block) -> Block:
        args = [new(v) for v in block.args]
        ops = []
        for op in block.ops:
            ins = [names[v] for v in op.ins]
            blocks = [walk(b) for b in op.blocks]
            ops.append(Op(op.kind, ins, [new(v) for v in op.outs], op.attrs, blocks))
        return Block(args, ops, [names[v] for v in block.outputs])

    return Case(walk(case.block), case.inputs, case.donated)
