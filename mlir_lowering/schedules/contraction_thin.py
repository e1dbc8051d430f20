"""Contractions without tiles on a GPU: few rows or columns, little to sum, or integers. Each result is a fold."""

from __future__ import annotations

import math

from mlir_lowering.dtypes import F32
from mlir_lowering.emit import Emitter
from mlir_lowering.index import Index, linearize
from mlir_lowering.kernel import Group, KernelCall
from mlir_lowering.schedules.contraction import Contraction, Nest, conditions, element, finished, probe
from mlir_lowering.schedules.fold_gpu import Fold
from mlir_lowering.schedules.loops import store
from mlir_lowering.schedules.reduce_gpu import monoid_accumulator
from mlir_lowering.targets import Target

# Rows and columns from which on tiles pay, and k.
TILE = 16
DEPTH = 8


def is_thin(contraction: Contraction) -> bool:
    rows, columns = math.prod(contraction.rows), math.prod(contraction.columns)
    return min(rows, columns) < TILE or math.prod(contraction.folded) < DEPTH or contraction.accumulator is not F32


def emit(nest: Nest, group: Group, target: Target) -> KernelCall:
    emitter = group.emitter(target)
    dtype = nest.contraction.accumulator
    emitter.use(dtype)
    op = nest.contraction.op
    parts = (nest.batch, nest.rows, nest.columns)
    variables = [loops.variables(stem) for loops, stem in zip(parts, "bmn", strict=True)]
    offset = linearize(nest.result(*variables), op.result.shape)
    extents = [n for loops in parts for n in loops.extents]
    names = [f"{stem}{i}" for loops, stem in zip(parts, "bmn", strict=True) for i in range(len(loops.extents))]
    # The loop whose results lie next to one another is walked along x.
    inner = next((i for i, name in enumerate(names) if offset.coefficient(name) == 1), len(names) - 1)
    order = [*(i for i in range(len(names)) if i != inner), *([inner] if names else [])]
    columns = bool(names) and _by_columns(nest, group, target, names[inner])
    accumulator = monoid_accumulator("total", dtype, "stablehlo.add")

    def split(kept: Index) -> tuple[Index, Index, Index]:
        position = dict(zip(order, kept, strict=True))
        flat = tuple(position[i] for i in range(len(order)))
        first, second = len(nest.batch.extents), len(nest.batch.extents) + len(nest.rows.extents)
        return flat[:first], flat[first:second], flat[second:]

    def elements(kept: Index, folded: Index) -> list[list[str]]:
        b, m, n = split(kept)
        factors = []
        for access in (nest.a(b, m, folded), nest.b(b, folded, n)):
            tests, _ = conditions(emitter, access.tests)
            factors.append(str(element(emitter, access, dtype, tests)))
        return [[" * ".join(factors)]]

    def finish(kept: Index) -> None:
        finished(emitter, nest, "total")
        index = nest.result(*split(kept))
        store(emitter, group.outputs, index, linearize(index, op.result.shape))

    kept = [extents[i] for i in order]
    return Fold(
        emitter, group, op.signature(), kept, nest.folded.extents, columns, [accumulator], elements, finish
    ).call()


def _by_columns(nest: Nest, group: Group, target: Target, inner: str) -> bool:
    """Whether neighbouring results read neighbouring elements, rather than each its own row."""
    b, m, n = (loops.variables(s) for loops, s in ((nest.batch, "b"), (nest.rows, "m"), (nest.columns, "n")))
    k = nest.folded.variables("k")
    emitters: list[Emitter] = probe(nest, group, target, (b, m, k, n))[:2]
    offsets = [offset for emitter in emitters for reads in emitter.reads.values() for offset in reads]

    def steps(name: str) -> set[int | None]:
        return {offset.coefficient(name) for offset in offsets}

    if not k or not steps(inner) - {0, 1}:
        return True
    along_k = steps(f"k{len(k) - 1}")
    return 1 not in along_k
