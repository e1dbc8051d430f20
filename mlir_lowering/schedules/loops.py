"""What schedules share: merging loops that every access walks as one, naming indices, storing
results."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Value
from mlir_lowering.index import Index, Ix, delinearize, variable
from mlir_lowering.kernel import Group, KernelCall, kernel_call


def merged_extents(shape: Sequence[int], starts: Sequence[int]) -> list[int]:
    """The lengths of the loops that start at dimensions `starts`."""
    ends = [*starts[1:], len(shape)] if starts else []
    return [math.prod(shape[s:e]) for s, e in zip(starts, ends, strict=True)]


def loop_index(shape: Sequence[int], starts: Sequence[int], variables: Sequence[Ix]) -> Index:
    """The index of an array of `shape` whose dimensions starts[i] up to starts[i+1] are walked by variables[i]."""
    index: list[Ix] = []
    for i, (start, var) in enumerate(zip(starts, variables, strict=True)):
        end = starts[i + 1] if i + 1 < len(starts) else len(shape)
        index.extend(delinearize(var, shape[start:end]))
    return tuple(index)


def merge_loops(
    shape: Sequence[int],
    visit: Callable[[Index], set[Ix]],
    apart: Callable[[int], bool] = lambda d: False,
) -> list[int]:
    """Where the merged loops over `shape` start: adjacent dimensions that every access walks as one are merged.

    `visit` evaluates the loop body at an index and returns every index expression it depends on. `apart(d)`:
    dimension d must not merge with the one before it.
    """
    names = [f"v{d}" for d in range(len(shape))]
    accesses = visit(tuple(variable(n, e) for n, e in zip(names, shape, strict=True)))

    def walks_as_one(access: Ix, outer: str, inner: str, extent: int) -> bool:
        a, b = access.coefficient(outer), access.coefficient(inner)
        return a is not None and b is not None and a == b * extent

    starts: list[int] = []
    for d, extent in enumerate(shape):
        if starts and not apart(d):
            # A dimension of one element has no variable; what counts is the nearest outer one that has.
            outer = next((o for o in range(d - 1, starts[-1] - 1, -1) if shape[o] > 1), None)
            if extent == 1 or outer is None:
                continue
            if all(walks_as_one(a, names[outer], names[d], extent) for a in accesses):
                continue
        starts.append(d)
    return starts


def store(emitter: Emitter, values: list[Value], index: Index, offset: Ix) -> None:
    """Computes every output at `index`, then writes them at `offset` (outputs may share memory with inputs)."""
    exprs = [emitter.load(value, index) for value in values]
    for i, expr in enumerate(exprs):
        emitter.line(f"out{i}[{offset}] = {expr};")


def assign(emitter: Emitter, variables: Sequence[str], values: Sequence[Expr]) -> None:
    """Sets the variables; all values are computed before the first of several changes."""
    if len(values) > 1:
        new = [emitter.fresh("new") for _ in values]
        for name, value in zip(new, values, strict=True):
            emitter.line(f"const {value.dtype.msl} {name} = {value};")
        values = [Expr(name, value.dtype) for name, value in zip(new, values, strict=True)]
    for name, value in zip(variables, values, strict=True):
        emitter.line(f"{name} = {value};")


def nested(emitter: Emitter, loops: Sequence[tuple[str, int]], body: Callable[[], None], innermost: str = "") -> None:
    """`body` inside loops, each a variable's name and its extent, outer to inner; one of a single step is no loop.

    `innermost` is a pragma for the last loop.
    """
    if not loops:
        body()
        return
    (name, extent), *rest = loops
    if extent == 1:
        nested(emitter, rest, body, innermost)
        return
    if innermost and not rest:
        emitter.line(innermost)
    with emitter.block(f"for (int {name} = 0; {name} < {extent}; ++{name})"):
        nested(emitter, rest, body, innermost)


def unravel(emitter: Emitter, number: Ix, extents: Sequence[int]) -> Index:
    """The indices of loops whose position has `number` in row-major order; those that take a division become
    variables, so that it is done once."""
    named: list[Ix] = []
    for ix, extent in zip(delinearize(number, extents), extents, strict=True):
        if ix.has_division:
            name = emitter.fresh("r")
            emitter.line(f"const int {name} = {ix};")
            ix = variable(name, extent)
        named.append(ix)
    return tuple(named)


def elementwise_call(
    emitter: Emitter, group: Group, comment: str, threads: tuple[int, int, int], offset: Ix, n: int | None = None
) -> KernelCall:
    """The call of a kernel that writes outputs at `offset`, which may share memory with inputs read only there.

    `n`: the number of elements, as the launch argument of that name, if the kernel has no other way to know it.
    """
    return kernel_call(
        emitter,
        group.outputs,
        comment,
        threads,
        restrict=False,
        args=None if n is None else ("constant int& n", struct.pack("<i", n)),
        same_index=frozenset(v for v, reads in emitter.reads.items() if reads == {offset}),
    )
