"""How loops become a GPU's grid: the innermost along x, the next along y, the others along z.

A grid axis costs nothing where a division costs tens of cycles, so only a fourth loop and a short innermost one are
divided out of an axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mlir_lowering.emit import Emitter
from mlir_lowering.index import Index, variable
from mlir_lowering.program import ParamKind
from mlir_lowering.schedules.loops import unravel

Threads = tuple[int, int, int]

# An innermost loop shorter than this would leave most of a SIMD group's memory transaction to its neighbours in y.
SHORT_LOOP = 8
# Threadgroup memory that a kernel may declare, on every Apple GPU.
THREADGROUP_BYTES = 32 << 10

PLACE = (ParamKind.THREADGROUP_POSITION_IN_GRID, "place")
LOCAL = (ParamKind.THREAD_POSITION_IN_THREADGROUP, "local")
LANE = (ParamKind.THREAD_INDEX_IN_SIMDGROUP, "lane")
SIMD = (ParamKind.SIMDGROUP_INDEX_IN_THREADGROUP, "group")


@dataclass(frozen=True)
class Axes:
    """The loops that x, y and z walk; those of z are the outermost."""

    loops: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    @property
    def lengths(self) -> Threads:
        x, y, z = (math.prod(extents) for extents in self.loops)
        return x, y, z

    def position(self, emitter: Emitter, source: str, x: str | None = None) -> Index:
        """The loops' indices from the uint3 called `source`; `x` is the text of the x axis if it is another."""
        texts = (x or f"int({source}.x)", f"int({source}.y)", f"int({source}.z)")
        position: list[Index] = []
        for text, extents in zip(texts, self.loops, strict=True):
            position.append(unravel(emitter, variable(text, math.prod(extents)), extents))
        return tuple(ix for part in reversed(position) for ix in part)


def axes(extents: Sequence[int]) -> Axes:
    """Loops on three axes; a short innermost one and all others share x."""
    if extents and extents[-1] < SHORT_LOOP:
        return Axes((tuple(extents), (), ()))
    return columns(extents)


def columns(extents: Sequence[int]) -> Axes:
    """x walks the innermost loop alone, however short."""
    x, y, z = tuple(extents[-1:]), tuple(extents[-2:-1]), tuple(extents[:-2])
    return Axes((x, y, z))
