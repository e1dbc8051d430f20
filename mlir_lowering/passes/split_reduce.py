"""Splits a large reduction to few elements into two stages, so that every thread has work.

reduce(x: 64x8x8x32, dims 0,1,2) becomes reduce(reshape(x): 16x4x8x8x32, dims 1,2,3) and reduce(16x32, dim 0). The
pieces depend on shapes and the kind of target alone, so results do not depend on how many threads there are.
"""

from __future__ import annotations

import math

from mlir_lowering.graph import Graph, Op, Region, TensorType, clone_region, sequences
from mlir_lowering.passes.simplify import starts_from_identity
from mlir_lowering.schedules import fold_gpu
from mlir_lowering.schedules.reduce import COLUMNS, WORK
from mlir_lowering.targets import Target

# Most pieces on the software device; it splits if half as many threads have work.
MAX_PIECES = 16
# Threadgroups that occupy any Apple GPU; it splits if a quarter as many have work.
GPU_THREADGROUPS = 256
# Elements a GPU's thread should fold at least.
GPU_WORK = 16


def run(graph: Graph, target: Target) -> None:
    """Rewrites reductions in the graph and in every region of control flow."""
    for region in sequences(graph):
        _rewrite(region, target)


def _rewrite(region: Region, target: Target) -> None:
    if not any(op.name == "stablehlo.reduce" for op in region.ops):
        return
    ops: list[Op] = []
    for op in region.ops:
        # Both stages start from the initial value: only an identity may be taken in twice.
        if op.name == "stablehlo.reduce" and starts_from_identity(op):
            pieces, dimension = _pieces(op, target)
            if pieces > 1:
                ops += _split(op, pieces, dimension)
                continue
        ops.append(op)
    region.ops = ops


def _wanted(op: Op, target: Target) -> int:
    """How many pieces would give all threads work."""
    shape = op.operands[0].shape
    columns = shape[-1] if max(op.attrs["dimensions"]) != len(shape) - 1 else 0
    kept = op.result.type.size
    if target.is_software:
        threads = -(-kept // COLUMNS) if columns else kept
        return 1 if threads >= MAX_PIECES // 2 else min(MAX_PIECES, math.prod(shape) // WORK)
    # The schedule's threadgroups: so many columns wide, the rest of the threads share a column's elements.
    width = min(fold_gpu.LANES, columns) if columns else 1
    groups = kept // columns * -(-columns // width) if columns else kept
    each = math.prod(shape) // kept // (fold_gpu.THREADS // width * GPU_WORK)
    return 1 if groups >= GPU_THREADGROUPS // 4 else min(GPU_THREADGROUPS // groups, each)


def _pieces(op: Op, target: Target) -> tuple[int, int]:
    """How many pieces, and of which dimension (the outermost reduced one that divides)."""
    shape = op.operands[0].shape
    dims = sorted(op.attrs["dimensions"])
    if not dims or not math.prod(shape):
        return 1, 0
    wanted = _wanted(op, target)
    if wanted < 2:
        return 1, 0
    for d in dims:
        # A piece of the only, innermost dimension must stay long enough for vectors.
        limit = wanted if d != len(shape) - 1 else min(wanted, shape[d] // 1024)
        pieces = next((p for p in range(limit, 1, -1) if shape[d] % p == 0), 1)
        if pieces > 1:
            return pieces, d
    return 1, 0


def _split(op: Op, pieces: int, dimension: int) -> list[Op]:
    x, init = op.operands
    shape = x.shape
    dims = sorted(op.attrs["dimensions"])
    inner = (*shape[:dimension], pieces, shape[dimension] // pieces, *shape[dimension + 1 :])
    reshape = Op("stablehlo.reshape", [x], [TensorType(inner, x.dtype)], loc=op.loc)
    first_dims = tuple(d + (d >= dimension) for d in dims)
    kept_before = sum(1 for d in range(dimension) if d not in dims)
    partial = tuple(n for d, n in enumerate(inner) if d not in first_dims)
    first = Op(
        "stablehlo.reduce",
        [reshape.result, init],
        [TensorType(partial, op.result.dtype)],
        {"dimensions": first_dims},
        op.regions,
        op.loc,
    )
    second = Op(
        "stablehlo.reduce",
        [first.result, init],
        [op.result.type],
        {"dimensions": (kept_before,)},
        [clone_region(region) for region in op.regions],
        op.loc,
    )
    # The last op takes over the old op's result, so that no reader changes.
    second.results = op.results
    op.results[0].op = second
    return [reshape, first, second]
