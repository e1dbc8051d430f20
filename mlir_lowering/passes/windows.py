"""Large windows in O(n): a reduce_window over many elements becomes scans, a select_and_scatter's windows select once.

A window over several dimensions is one along each, the innermost first, which keeps the order of its fold. Along one
dimension, of a window of w elements:
- if it is as long as the dimension, every window is a prefix or a suffix: two scans (schedules/scan.py);
- else the dimension is cut into pieces of w, so that a window is the end of one piece and the beginning of the next:

      piece            | piece            |
           |<- window ------->|             = fold(suffix of the left piece, prefix of the right one)

  and one scan each way of every piece gives all suffixes and prefixes (van Herk, Gil and Werman).
Nothing is subtracted, so the result is as good as a direct sum, and any associative body will do. Holes of dilated
operands and padding become the body's identity: StableHLO lets an implementation take initial values in any number of
times, and what is known not to be an identity is taken in once.

A select_and_scatter looks at every window that covers an element; where these are many, a reduce_window finds what
each window selects, and a scatter adds to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from mlir_lowering.dtypes import I32, PRED
from mlir_lowering.graph import (
    Graph,
    Op,
    Region,
    ScatterDimensionNumbers,
    TensorType,
    Value,
    clone_region,
    free_values,
    sequences,
)
from mlir_lowering.monoids import identity, monoid_of
from mlir_lowering.passes.fold import splat_of
from mlir_lowering.registry import OPS
from mlir_lowering.schedules.scan import direction_of
from mlir_lowering.schedules.window import attribute, padding_of
from mlir_lowering.targets import Target

# Elements of a window, on average over the array's elements, up to which a direct fold costs less than scans.
FEW = 32
# Comparisons of a select_and_scatter, for an element, up to which a GPU computes it directly: selecting once for each
# window costs a scatter, whose rows it must sort. Without that (measured on 4x112x112x64) it is always half the time.
FEW_COMPARISONS = 128


def run(graph: Graph, target: Target) -> None:
    """Rewrites windows in the graph and in every region of control flow."""
    for region in sequences(graph):
        _rewrite(region, target)


def _rewrite(region: Region, target: Target) -> None:
    if not any(op.name in _RULES for op in region.ops):
        return
    ops: list[Op] = []
    for op in region.ops:
        rule = _RULES.get(op.name)
        ops += [op] if rule is None else rule(op, target)
    region.ops = ops


@dataclass
class _Builder:
    """Appends ops; `loc` is the user's line."""

    loc: object
    ops: list[Op] = field(default_factory=list)

    def add(self, name: str, operands: list[Value], type: TensorType, **attrs: object) -> Value:
        op = Op(f"stablehlo.{name}", operands, [type], attrs, loc=self.loc)
        self.ops.append(op)
        return op.result

    def constant(self, value: complex, type: TensorType) -> Value:
        array = np.broadcast_to(np.asarray(value).astype(type.dtype.numpy), type.shape)
        return self.add("constant", [], type, value=array)

    def spread(self, scalar: Value, shape: tuple[int, ...]) -> Value:
        return self.add("broadcast_in_dim", [scalar], TensorType(shape, scalar.dtype), broadcast_dimensions=())

    def reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self.add("reshape", [x], TensorType(shape, x.dtype))

    def pad(self, x: Value, value: Value, d: int, low: int, high: int, interior: int = 0) -> Value:
        if not (low or high or interior):
            return x
        n = x.shape[d]
        length = n + max(n - 1, 0) * interior + low + high

        def at(k: int) -> tuple[int, ...]:
            return tuple(k if i == d else 0 for i in range(len(x.shape)))

        type = TensorType((*x.shape[:d], length, *x.shape[d + 1 :]), x.dtype)
        return self.add(
            "pad",
            [x, value],
            type,
            edge_padding_low=at(low),
            edge_padding_high=at(high),
            interior_padding=at(interior),
        )

    def slice(self, x: Value, d: int, begin: int, end: int, step: int = 1) -> Value:
        if (begin, end, step) == (0, x.shape[d], 1):
            return x
        shape = (*x.shape[:d], -(-(end - begin) // step), *x.shape[d + 1 :])
        rank = len(shape)
        return self.add(
            "slice",
            [x],
            TensorType(shape, x.dtype),
            start_indices=tuple(begin if i == d else 0 for i in range(rank)),
            limit_indices=tuple(end if i == d else n for i, n in enumerate(x.shape)),
            strides=tuple(step if i == d else 1 for i in range(rank)),
        )

    def concatenate(self, parts: list[Value], d: int) -> Value:
        parts = [v for v in parts if v.shape[d]]
        if len(parts) == 1:
            return parts[0]
        x = parts[0]
        shape = (*x.shape[:d], sum(v.shape[d] for v in parts), *x.shape[d + 1 :])
        return self.add("concatenate", parts, TensorType(shape, x.dtype), dimension=d)

    def apply(self, region: Region, arguments: list[Value]) -> list[Value]:
        """A region of scalars, applied to arrays of one shape."""
        shape = arguments[0].shape
        of = dict(zip(region.args, arguments, strict=True))
        for value in free_values(region):
            of[value] = self.spread(value, shape)
        for op in region.ops:
            attrs = dict(op.attrs)
            if op.name == "stablehlo.constant":
                attrs["value"] = np.broadcast_to(attrs["value"], shape)
            types = [TensorType(shape, v.dtype) for v in op.results]
            lifted = Op(op.name, [of[v] for v in op.operands], types, attrs, loc=self.loc)
            self.ops.append(lifted)
            of.update(zip(op.results, lifted.results, strict=True))
        return [of[v] for v in region.outputs]


def _take_over(ops: list[Op], results: list[Value], op: Op, builder: _Builder) -> list[Op]:
    """The ops, where the old op's results name what was computed, so that no reader changes."""
    for old, new in zip(op.results, results, strict=True):
        # A reshape to the same shape; it is a view.
        last = Op("stablehlo.reshape", [new], [old.type], loc=builder.loc)
        last.results = [old]
        old.op, old.index = last, 0
        ops.append(last)
    return ops


# reduce_window.


def _reduce_window(op: Op, target: Target) -> list[Op]:
    window = op.attrs["window_dimensions"]
    folded = op.results[0].type.size * math.prod(window)
    size = max(op.operands[0].type.size, op.results[0].type.size)
    if not op.operands[0].type.size or folded <= FEW * size or op.attrs.get("in_order"):
        return [op]
    if direction_of(op) is not None or not all(OPS[inner.name].pointwise for inner in op.regions[0].ops):
        return [op]
    return _Windows(op).ops()


class _Windows:
    """A reduce_window as windows along one dimension after another."""

    def __init__(self, op: Op) -> None:
        self.op = op
        count = len(op.operands) // 2
        self.operands, self.inits = op.operands[:count], op.operands[count:]
        self.region = op.regions[0]
        self.builder = _Builder(op.loc)
        # What padding and holes hold. Of a known monoid the identity; else what the program says is one.
        monoid = monoid_of(op) if count == 1 else None
        self.neutral = list(self.inits)
        self.takes_init = False
        if monoid is not None:
            value, splat = identity(monoid, op.results[0].dtype), splat_of(self.inits[0])
            self.takes_init = splat is None or splat.item() != value
            if self.takes_init:
                self.neutral = [self.builder.constant(value, TensorType((), op.results[0].dtype))]

    def ops(self) -> list[Op]:
        op, builder = self.op, self.builder
        names = ("window_strides", "base_dilations", "window_dilations")
        strides, holes, dilations = (attribute(op, name, 1) for name in names)
        values = self.operands
        for d in reversed(range(len(op.operands[0].shape))):
            w, padding = op.attrs["window_dimensions"][d], padding_of(op)[d]
            if w == 1 and padding == (0, 0) and holes[d] == 1:
                values = [builder.slice(x, d, 0, x.shape[d], strides[d]) for x in values]
            elif w <= FEW:
                values = self._direct(values, d, w, strides[d], holes[d], dilations[d], padding)
            else:
                values = self._pad(values, d, 0, 0, holes[d] - 1)
                values = self._along(values, d, w, dilations[d], padding)
                values = [builder.slice(x, d, 0, x.shape[d], strides[d]) for x in values]
        if self.takes_init:
            spread = [builder.spread(init, values[0].shape) for init in self.inits]
            values = builder.apply(self.region, [*spread, *values])
        return _take_over(builder.ops, values, op, builder)

    def _pad(self, values: list[Value], d: int, low: int, high: int, interior: int = 0) -> list[Value]:
        return [self.builder.pad(x, e, d, low, high, interior) for x, e in zip(values, self.neutral, strict=True)]

    def _window(
        self, values: list[Value], d: int, w: int, padding: tuple[int, int], length: int, **attrs: int
    ) -> list[Value]:
        """A reduce_window along one dimension."""
        shape = values[0].shape
        rank = len(shape)
        pads = np.array([padding if i == d else (0, 0) for i in range(rank)], np.int64)
        found = {name: tuple(value if i == d else 1 for i in range(rank)) for name, value in attrs.items()}
        found["window_dimensions"] = tuple(w if i == d else 1 for i in range(rank))
        types = [TensorType((*shape[:d], length, *shape[d + 1 :]), x.dtype) for x in values]
        region = clone_region(self.region)
        op = Op(
            "stablehlo.reduce_window", [*values, *self.neutral], types, found | {"padding": pads}, [region], self.op.loc
        )
        self.builder.ops.append(op)
        return op.results

    def _direct(
        self, values: list[Value], d: int, w: int, stride: int, holes: int, dilation: int, padding: tuple[int, int]
    ) -> list[Value]:
        dilated = (values[0].shape[d] - 1) * holes + 1 + sum(padding)
        length = (dilated - ((w - 1) * dilation + 1)) // stride + 1
        attrs = {"window_strides": stride, "base_dilations": holes, "window_dilations": dilation}
        return self._window(values, d, w, padding, length, **attrs)

    def _scan(self, values: list[Value], d: int, reverse: bool) -> list[Value]:
        n = values[0].shape[d]
        return self._window(values, d, n, (0, n - 1) if reverse else (n - 1, 0), n) if n > 1 else values

    def _along(self, values: list[Value], d: int, w: int, dilation: int, padding: tuple[int, int]) -> list[Value]:
        """Windows of `w` along dimension d, one at every place."""
        builder = self.builder
        low, high = padding
        if dilation > 1:
            # Elements `dilation` apart become neighbours: dimension d is (steps, dilation).
            values = self._pad(values, d, low, high)
            n = values[0].shape[d]
            length = n - (w - 1) * dilation
            steps = -(-n // dilation)
            values = self._pad(values, d, 0, steps * dilation - n)
            split = [builder.reshape(x, (*x.shape[:d], steps, dilation, *x.shape[d + 1 :])) for x in values]
            found = self._along(split, d, w, 1, (0, 0))
            flat = [builder.reshape(x, (*x.shape[:d], x.shape[d] * dilation, *x.shape[d + 2 :])) for x in found]
            return [builder.slice(x, d, 0, length) for x in flat]
        if w >= values[0].shape[d]:
            return self._whole(values, d, w, low, values[0].shape[d] + low + high - w + 1)
        values = self._pad(values, d, low, high)
        n = values[0].shape[d]
        pieces = n // w + 1
        values = self._pad(values, d, 0, pieces * w - n)
        split = [builder.reshape(x, (*x.shape[:d], pieces, w, *x.shape[d + 1 :])) for x in values]
        suffixes = self._scan(split, d + 1, True)
        # What a piece has before each of its elements.
        before = self._scan(self._pad(split, d + 1, 1, -1), d + 1, False)
        flat = [builder.reshape(x, y.shape) for x, y in zip((*suffixes, *before), (*values, *values), strict=True)]
        ends, beginnings = flat[: len(values)], flat[len(values) :]
        length = n - w + 1
        left = [builder.slice(x, d, 0, length) for x in ends]
        right = [builder.slice(x, d, w, w + length) for x in beginnings]
        return builder.apply(self.region, [*left, *right])

    def _whole(self, values: list[Value], d: int, w: int, low: int, length: int) -> list[Value]:
        """Windows as long as the dimension: the first is `low` before it, and each ends or begins inside, or
        neither."""
        builder = self.builder
        n = values[0].shape[d]
        prefixes, suffixes = self._scan(values, d, False), self._scan(values, d, True)

        def count(begin: int, end: int) -> int:
            """How many of the windows begin in [begin, end)."""
            return max(min(end, length - low) - max(begin, -low), 0)

        found = []
        for k, x in enumerate(values):

            def filled(source: Value | None, times: int, k: int = k, x: Value = x) -> Value:
                shape = (*x.shape[:d], times, *x.shape[d + 1 :])
                if source is None:
                    return builder.spread(self.neutral[k], shape)
                rank = tuple(range(len(shape)))
                return builder.add("broadcast_in_dim", [source], TensorType(shape, x.dtype), broadcast_dimensions=rank)

            # Windows that begin at r end at r + w - 1.
            nothing = count(-low, 1 - w)
            first, last = max(-low, 1 - w) + w - 1, min(1, length - low, n - w) + w - 1
            whole = count(max(n - w, 1 - w), 1)
            begin, end = max(1, -low), min(n, length - low)
            parts = [filled(None, nothing)] if nothing else []
            if last > first:
                parts.append(builder.slice(prefixes[k], d, first, last))
            if whole:
                parts.append(filled(builder.slice(prefixes[k], d, n - 1, n), whole))
            if end > begin:
                parts.append(builder.slice(suffixes[k], d, begin, end))
            rest = count(n, length - low)
            if rest:
                parts.append(filled(None, rest))
            found.append(builder.concatenate(parts, d))
        return found


# select_and_scatter.


def _select_and_scatter(op: Op, target: Target) -> list[Op]:
    operand, source, init = op.operands
    window, strides = attribute(op, "window_dimensions", 1), attribute(op, "window_strides", 1)
    covering = math.prod(-(-w // s) for w, s in zip(window, strides, strict=True))
    few = 1 if target.is_software else FEW_COMPARISONS
    if covering * math.prod(window) <= few or not source.type.size or not operand.type.size:
        return [op]
    builder = _Builder(op.loc)
    shape, size = operand.shape, operand.type.size
    places = builder.reshape(
        builder.add("iota", [], TensorType((size,), I32), iota_dimension=0),
        shape,
    )
    # Of each window, what is selected, and its place; -1 as long as there is nothing.
    nothing = builder.constant(-1, TensorType((), I32))
    zero = builder.constant(0, TensorType((), operand.dtype))
    types = [TensorType(source.shape, operand.dtype), TensorType(source.shape, I32)]
    names = ("window_dimensions", "window_strides", "padding")
    attrs = {name: op.attrs[name] for name in names if op.attrs.get(name) is not None}
    # What selects need not be associative: no NaN is greater than another.
    attrs["in_order"] = True
    select = Op("stablehlo.reduce_window", [operand, places, zero, nothing], types, attrs, [_selection(op)], op.loc)
    builder.ops.append(select)
    rows = builder.reshape(select.results[1], (source.type.size, 1))
    updates = builder.reshape(source, (source.type.size,))
    into = builder.spread(init, (size,))
    numbers = ScatterDimensionNumbers((), (0,), (), (), (0,), 1)
    scatter = Op(
        "stablehlo.scatter",
        [into, rows, updates],
        [TensorType((size,), operand.dtype)],
        {"scatter_dimension_numbers": numbers},
        [clone_region(op.regions[1])],
        op.loc,
    )
    builder.ops.append(scatter)
    return _take_over(builder.ops, scatter.results, op, builder)


def _selection(op: Op) -> Region:
    """(best, its place, value, its place) to the better and its place."""
    dtype = op.operands[0].dtype
    types = [TensorType((), t) for t in (dtype, I32, dtype, I32)]
    best, at, value, place = arguments = [Value(t) for t in types]
    builder = _Builder(op.loc)
    (keeps,) = builder.apply(op.regions[0], [best, value])
    flag = TensorType((), PRED)
    zero = builder.constant(0, types[1])
    found = builder.add("compare", [at, zero], flag, comparison_direction="GE")
    stays = builder.add("and", [found, keeps], flag)
    chosen = builder.add("select", [stays, best, value], types[0])
    where = builder.add("select", [stays, at, place], types[1])
    return Region(arguments, builder.ops, [chosen, where])


_RULES = {"stablehlo.reduce_window": _reduce_window, "stablehlo.select_and_scatter": _select_and_scatter}
