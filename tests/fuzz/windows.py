"""Windows: reduce_window with strides, dilations and padding, cumulative ones, select_and_scatter."""

from __future__ import annotations

import math

import numpy as np

from mlir_lowering.dtypes import BY_NAME
from tests.fuzz.bodies import body, comparison, identity, monoids
from tests.fuzz.generate import Generator
from tests.fuzz.graph import dense, i64s
from tests.fuzz.values import Reject


def reduce_window(g: Generator) -> None:
    most = g.limit if g.wide else 600
    x = g.pick(lambda v: 0 < len(v.shape) <= 4 and v.size <= most and v.dtype.name not in ("i4", "ui4"))
    kind = g.choose([k for k in monoids(x.dtype) if k not in ("multiply", "xor")])
    if kind in ("and", "or") and x.dtype.kind != "pred":
        kind = "add"
    cumulative = g.chance(0.6 if g.wide else 0.35)
    axis = g.between(0, len(x.shape) - 1)
    if g.wide and g.chance(0.7):
        axis = int(np.argmax(x.shape))
    size, stride, base, dilation, pads, shape = [], [], [], [], [], []
    for d, n in enumerate(x.shape):
        if cumulative:
            k, s, b, w = (n if d == axis else 1), 1, 1, 1
            lo, hi = ((n - 1, 0) if g.chance(0.7) else (0, n - 1)) if d == axis else (0, 0)
            if n == 0:
                raise Reject("empty")
        elif g.chance(0.4):
            k = s = b = w = 1
            lo = hi = 0
        else:
            k, s, b, w = g.between(1, 4), g.choose([1, 1, 2, 3]), g.choose([1, 1, 1, 2]), g.choose([1, 1, 1, 2])
            lo, hi = g.between(0, 3), g.between(0, 3)
        whole = max(n + max(n - 1, 0) * (b - 1) + lo + hi, 0)
        reach = (k - 1) * w + 1
        size.append(k)
        stride.append(s)
        base.append(b)
        dilation.append(w)
        pads.append((lo, hi))
        shape.append((whole - reach) // s + 1 if whole >= reach else 0)
    if not cumulative and math.prod(size) * math.prod(shape) > 40 * max(g.limit, 1000):
        raise Reject("large")
    init = g.constant(identity(kind, x.dtype), x.dtype)
    g.emit(
        "reduce_window",
        [x, init],
        [(tuple(shape), x.dtype)],
        {
            "window_dimensions": i64s(size),
            "window_strides": i64s(stride),
            "base_dilations": i64s(base),
            "window_dilations": i64s(dilation),
            "padding": dense(np.array(pads, np.int64), BY_NAME["i64"]),
            "_window": {"size": size, "stride": stride, "base": base, "dilation": dilation, "pad": pads},
            # Along which axis, and whether from its end.
            "_cumulative": (axis, pads[axis][0] == 0) if cumulative else None,
            "_kinds": [kind],
        },
        [body([kind], [x.dtype])],
    )


def select_and_scatter(g: Generator) -> None:
    """The gradient of a pooling: windows that overlap, leave gaps or stand beyond the edges, ties."""
    x = g.pick(lambda v: 0 < len(v.shape) <= 4 and v.size > 0 and v.dtype.kind in ("float", "int", "uint"))
    size, stride, pads, shape = [], [], [], []
    for n in x.shape:
        k, s, lo, hi = 1, 1, 0, 0
        if g.chance(0.6):
            k, s = g.between(1, min(4, n)), g.choose([1, 1, 2, 3, 4])
            lo, hi = (g.between(0, k - 1), g.between(0, k - 1)) if g.chance(0.5) else (0, 0)
        if n + lo + hi < k:
            raise Reject("no window fits")
        size.append(k)
        stride.append(s)
        pads.append((lo, hi))
        shape.append((n + lo + hi - k) // s + 1)
    if math.prod(size) * math.prod(shape) > 40 * max(g.limit, 1000):
        raise Reject("large")
    kind = g.choose(["add", "add", "add", *monoids(x.dtype)])
    source = g.of(tuple(shape), x.dtype)
    init = g.constant(identity(kind, x.dtype), x.dtype) if g.chance(0.8) else g.fresh((), x.dtype, plain=True)
    direction = g.choose(["GE", "GE", "GE", "LE", "GT", "LT"])
    g.emit(
        "select_and_scatter",
        [x, source, init],
        [(x.shape, x.dtype)],
        {
            "window_dimensions": i64s(size),
            "window_strides": i64s(stride),
            "padding": dense(np.array(pads, np.int64), BY_NAME["i64"]),
            "_window": {"size": size, "stride": stride, "pad": pads},
            "_select": direction,
            "_kinds": [kind],
        },
        [comparison(direction, x.dtype), body([kind], [x.dtype])],
    )
