"""Loops and branches: regions with generators of their own."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.evaluate import Env
from tests.fuzz.generate import I32, PRED, Generator
from tests.fuzz.graph import Block, Var
from tests.fuzz.values import Reject


def _inside(g: Generator, block: Block, env: Env, open: bool) -> Generator:
    inner = Generator(g.rng, block, env, g)
    inner.open = open
    return inner


def _compare(g: Generator, direction: str, a: Var, b: Var) -> Var:
    from tests.fuzz.choices import compare_attrs

    return g.one("compare", [a, b], (a.shape, PRED), compare_attrs(direction, a.dtype))


def _several(g: Generator, low: int, high: int) -> None:
    from tests.fuzz.choices import add_op

    for _ in range(g.between(low, high)):
        add_op(g)


def _yielded(g: Generator, like: Var) -> Var:
    """A value of this type from the region, rather a new one."""
    fitting = [v for v in g.visible() if v.shape == like.shape and v.dtype is like.dtype]
    made = [v for v in fitting if v in g.here and v not in g.block.args]
    if made and g.chance(0.75):
        return g.choose(made)  # type: ignore[no-any-return]
    if fitting and g.chance(0.8):
        return g.choose(fitting)  # type: ignore[no-any-return]
    return g.of(like.shape, like.dtype)


def while_(g: Generator) -> None:
    """Up to some trips by a counter; in half of the loops a flag, or a number carried, ends it before."""
    if g.depth > 1:
        raise Reject("deep")
    counter = g.scalar(0, I32)
    carried = [g.pick() for _ in range(g.between(1, 4))]
    if g.chance(0.2):
        carried.append(carried[0])
    if any(v.size > max(400, g.limit // 4 if g.wide else 0) for v in carried):
        raise Reject("large")
    flagged = g.chance(0.5)
    flag = [g.scalar(False, PRED)] if flagged else []
    trips = g.between(0, 6)
    start = [counter, *flag, *carried]

    args = [Var(v.shape, v.dtype) for v in start]
    body = Block(args)
    inner = _inside(g, body, dict(g.env) | {a: g.env[v] for a, v in zip(args, start, strict=True)}, False)
    step = inner.one("add", [args[0], inner.scalar(1, I32)], ((), I32))
    _several(inner, 1, 6)
    outs = [step]
    if flagged:
        scalars = [v for v in inner.visible() if v.shape == () and v.dtype is PRED and v is not args[1]]
        if scalars and g.chance(0.5):
            outs.append(g.choose(scalars))
        else:
            outs.append(_compare(inner, "GE", step, inner.scalar(g.between(1, 5), I32)))
    rest = [_yielded(inner, v) for v in carried]
    same = [i for i in range(1, len(carried)) if carried[i].type == carried[0].type]
    if same and g.chance(0.3):
        i = g.choose(same)
        rest[0], rest[i] = args[-len(carried) + i], args[-len(carried)]
    if g.chance(0.3):
        i = g.between(0, len(carried) - 1)
        rest[i] = args[len(args) - len(carried) + i]
    body.outputs = [*outs, *rest]

    tested = [Var(v.shape, v.dtype) for v in start]
    cond = Block(tested)
    test = _inside(g, cond, dict(g.env) | {a: g.env[v] for a, v in zip(tested, start, strict=True)}, False)
    if g.chance(0.25):
        _several(test, 1, 3)
    go = _compare(test, "LT", tested[0], test.scalar(trips, I32))
    if flagged:
        done = test.one("not", [tested[1]], ((), PRED))
        go = test.one("and", [go, done], ((), PRED)) if g.chance(0.8) else done
    elif g.chance(0.4):
        extra = [v for v in test.visible() if v.shape == () and v.dtype is PRED]
        if extra:
            go = test.one("and", [go, g.choose(extra)], ((), PRED))
    cond.outputs = [go]
    g.emit("while", start, [(v.shape, v.dtype) for v in start], {}, [cond, body])


def _branch(g: Generator, like: list[Var]) -> Block:
    block = Block([])
    inner = _inside(g, block, dict(g.env), True)
    _several(inner, 0, 4)
    block.outputs = [_yielded(inner, v) for v in like]
    return block


def if_(g: Generator) -> None:
    if g.depth > 1:
        raise Reject("deep")
    like = [g.pick() for _ in range(g.between(1, 3))]
    predicates = [v for v in g.visible() if v.shape == () and v.dtype is PRED]
    p = g.choose(predicates) if predicates and g.chance(0.7) else g.fresh((), PRED)
    g.emit("if", [p], [(v.shape, v.dtype) for v in like], {}, [_branch(g, like) for _ in range(2)])


def case(g: Generator) -> None:
    if g.depth > 1:
        raise Reject("deep")
    like = [g.pick() for _ in range(g.between(1, 3))]
    at = g.fresh((), I32, plain=True) if g.chance(0.5) else g.scalar(g.between(-1, 3), I32)
    g.emit("case", [at], [(v.shape, v.dtype) for v in like], {}, [_branch(g, like) for _ in range(g.between(1, 3))])


CONTROL: list[tuple[Callable[[Generator], None], float]] = [(while_, 4), (if_, 2), (case, 1.5)]
