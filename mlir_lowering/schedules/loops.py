"""What schedules share: merging loops that every access walks as one, naming indices, storing results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Value
from mlir_lowering.index import Index, Ix, delinearize, variable


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


def name_indices(emitter: Emitter, indices: Index, extents: Sequence[int]) -> Index:
    """Indices with divisions become variables, so that the division is done once."""
    named: list[Ix] = []
    for ix, extent in zip(indices, extents, strict=False):
        if ix.has_division:
            name = emitter.fresh("r")
            emitter.line(f"const int {name} = {ix};")
            ix = variable(name, extent)
        named.append(ix)
    return tuple(named)
