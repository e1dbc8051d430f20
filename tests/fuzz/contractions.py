"""Contractions: dot_general with any dimension numbers, convolutions, products large enough for tiles."""

from __future__ import annotations

import math

import numpy as np

from mlir_lowering.dtypes import BY_NAME
from tests.fuzz.generate import F32, I32, Generator
from tests.fuzz.graph import Shape, dense, i64s
from tests.fuzz.values import Reject


def dot(g: Generator) -> None:
    x = g.pick(lambda v: v.dtype.kind != "pred" and v.dtype.bits >= 8)
    batch = [d for d in range(len(x.shape)) if g.chance(0.2)]
    contract = [d for d in range(len(x.shape)) if d not in batch and g.chance(0.5)]
    free = [g.choose(g.dims) for _ in range(g.between(0, 2))]
    if math.prod(free) > 64:
        free = free[:1]
    sizes = [x.shape[d] for d in batch] + [x.shape[d] for d in contract] + free
    place = [int(i) for i in g.rng.permutation(len(sizes))]
    shape = [0] * len(sizes)
    for p, n in zip(place, sizes, strict=True):
        shape[p] = n
    right_batch = place[: len(batch)]
    right_contract = place[len(batch) : len(batch) + len(contract)]
    if math.prod(shape) > 4 * g.limit or len(shape) > 5:
        raise Reject("large")
    y = g.of(tuple(shape), x.dtype)
    out = [x.shape[d] for d in batch]
    out += [n for d, n in enumerate(x.shape) if d not in (*batch, *contract)]
    out += [n for d, n in enumerate(y.shape) if d not in (*right_batch, *right_contract)]
    wider = {"bf16": F32, "f16": F32, "i8": I32}.get(x.dtype.name)
    result = wider if wider is not None and g.chance(0.4) else x.dtype

    def numbers(name: str, dims: list[int]) -> str:
        return f"{name} = [{', '.join(map(str, dims))}]"

    text = ", ".join(
        (
            numbers("lhs_batching_dimensions", batch),
            numbers("rhs_batching_dimensions", right_batch),
            numbers("lhs_contracting_dimensions", contract),
            numbers("rhs_contracting_dimensions", right_contract),
        )
    )
    g.one(
        "dot_general",
        [x, y],
        (tuple(out), result),
        {"dot_dimension_numbers": f"#stablehlo.dot<{text}>", "_dot": (batch, right_batch, contract, right_contract)},
    )


def convolution(g: Generator) -> None:
    dtype = g.dtype("float") if g.chance(0.9) else g.dtype("int")
    if dtype.bits < 8 or dtype.bits == 64:
        raise Reject("dtype")
    space = g.choose([1, 2, 2])
    groups = g.choose([1, 1, 1, 2, 3])
    batches = 1 if groups > 1 else g.choose([1, 1, 1, 1, 2])
    per_in, per_out = g.choose([1, 2, 3, 4, 5]), g.choose([1, 2, 3, 8])
    n, sizes = g.between(1, 3) * batches, [g.between(1, 60 if g.wide else 9) for _ in range(space)]
    kernel = [g.between(1, 4) for _ in range(space)]
    stride = [g.choose([1, 1, 2, 3]) for _ in range(space)]
    lhs_dilation = [g.choose([1, 1, 1, 2, 3]) for _ in range(space)]
    rhs_dilation = [g.choose([1, 1, 1, 2]) for _ in range(space)]
    reverse = [g.chance(0.15) for _ in range(space)]
    pads = [(g.between(-1, 3), g.between(-1, 3)) if g.chance(0.6) else (0, 0) for _ in range(space)]
    out = []
    for m, k, s, a, b, (lo, hi) in zip(sizes, kernel, stride, lhs_dilation, rhs_dilation, pads, strict=True):
        whole, reach = (m - 1) * a + 1 + lo + hi, (k - 1) * b + 1
        if whole < reach:
            raise Reject("no window fits")
        out.append((whole - reach) // s + 1)
    features = per_out * max(groups, batches)
    logical_lhs, logical_rhs = [n, per_in * groups, *sizes], [features, per_in, *kernel]
    logical_out = [n // batches, features, *out]
    layouts = []
    for _ in range(3):
        usual = [[0, 1, *range(2, 2 + space)], [0, 1 + space, *range(1, 1 + space)]]
        layouts.append(g.choose(usual) if g.chance(0.7) else [int(i) for i in g.rng.permutation(2 + space)])

    def physical(logical: list[int], layout: list[int]) -> Shape:
        shape = [0] * len(logical)
        for n, d in zip(logical, layout, strict=True):
            shape[d] = n
        return tuple(shape)

    def spec(layout: list[int], names: str) -> str:
        words = [""] * len(layout)
        for d, name in zip(layout, [names[0], names[1], *map(str, range(space))], strict=True):
            words[d] = name
        return f"[{', '.join(words)}]"

    if math.prod(logical_out) > 4 * g.limit:
        raise Reject("large")
    x = g.of(physical(logical_lhs, layouts[0]), dtype)
    y = g.of(physical(logical_rhs, layouts[1]), dtype)
    names = f"{spec(layouts[0], 'bf')}x{spec(layouts[1], 'oi')}->{spec(layouts[2], 'bf')}"
    g.one(
        "convolution",
        [x, y],
        (physical(logical_out, layouts[2]), dtype),
        {
            "dimension_numbers": f"#stablehlo.conv<{names}>",
            "feature_group_count": f"{groups} : i64",
            "batch_group_count": f"{batches} : i64",
            "window_strides": i64s(stride),
            "lhs_dilation": i64s(lhs_dilation),
            "rhs_dilation": i64s(rhs_dilation),
            "window_reversal": f"array<i1: {', '.join(str(r).lower() for r in reverse)}>",
            "padding": dense(np.array(pads, np.int64), BY_NAME["i64"]),
            "_conv": {
                "lhs": layouts[0], "rhs": layouts[1], "out": layouts[2], "groups": groups, "batch_groups": batches,
                "stride": stride, "lhs_dilation": lhs_dilation, "rhs_dilation": rhs_dilation, "reverse": reverse,
                "pad": pads,
            },
        },
    )  # fmt: skip


def matmul(g: Generator) -> None:
    """Large enough for packed tiles, and seldom a multiple of one."""
    dtype = g.choose([F32, F32, F32, g.dtype("float"), I32])
    batch = g.choose([[], [], [2]])
    m, k, n = (g.choose([17, 20, 33, 40, 64, 70]) for _ in range(3))
    x = g.fresh((*batch, m, k), dtype, plain=True)
    y = g.fresh((*batch, k, n), dtype, plain=True)
    rank = len(batch)
    dims = ", ".join(f"{side}_batching_dimensions = [{'0' if batch else ''}]" for side in ("lhs", "rhs"))
    dims += f", lhs_contracting_dimensions = [{rank + 1}], rhs_contracting_dimensions = [{rank}]"
    b = list(range(rank))
    g.one(
        "dot_general",
        [x, y],
        ((*batch, m, n), dtype),
        {"dot_dimension_numbers": f"#stablehlo.dot<{dims}>", "_dot": (b, b, [rank + 1], [rank])},
    )
