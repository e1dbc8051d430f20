"""Scatters of many rows on a GPU, in O(updates * log(updates)) work, deterministic without atomics.

An item is what a row writes to one place of the scattered and batching dimensions: its whole window, or where the
window reaches along scattered dimensions, the part at one place of those. Its key is that place, -1 if the row's window
does not lie inside the operand. Items are sorted by key, stably, so that those of one place are neighbours in the
program's order. Then, by what the body does:
- it takes the update (`set`): a thread an element of the last item of each place;
- a known monoid: a thread folds a CHUNK of neighbours. Places that lie in its chunk are finished there; what is left is
  at most two items a chunk, one at each end, which the next launch folds, until they are few;
- anything else: a thread applies a place's items one after another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mlir_lowering.dtypes import I32, DType
from mlir_lowering.emit import Emitter, Expr, literal, wrap
from mlir_lowering.graph import Op, TensorType, Value
from mlir_lowering.index import Index, Ix, delinearize, linearize, variable
from mlir_lowering.kernel import Group, KernelCall, kernel_call
from mlir_lowering.monoids import identity, monoid_of
from mlir_lowering.schedules import grid, sort_gpu
from mlir_lowering.schedules.loops import assign, unravel
from mlir_lowering.schedules.scan import accumulation, retyped
from mlir_lowering.schedules.update import Scatter
from mlir_lowering.targets import Target

# Items that a thread folds one after another.
CHUNK = 32


def emit(group: Group, target: Target, scatter: Scatter) -> list[KernelCall]:
    return _Sorted(group, target, scatter).calls()


@dataclass
class _Level:
    """Items in order of their keys: those of the scatter (`order` gives their numbers) or partial folds."""

    count: int
    keys: Value
    order: Value | None
    parts: Value | None


class _Sorted:
    def __init__(self, group: Group, target: Target, scatter: Scatter) -> None:
        self.group, self.target, self.scatter = group, target, scatter
        self.op = scatter.op
        numbers = scatter.numbers
        scattered = numbers.scattered_dims_to_operand_dims
        self.places = [*scattered, *numbers.input_batching_dims]
        self.place_shape = [scatter.shape[d] for d in self.places]
        # Window dimensions along scattered dimensions make items, the others are an item's elements.
        self.item_dims = [w for w, d in enumerate(scatter.window_operand_dims) if d in scattered]
        self.element_dims = [w for w, d in enumerate(scatter.window_operand_dims) if d not in scattered]
        self.item_extents = [*scatter.scatter_extents, *(scatter.window_extents[w] for w in self.item_dims)]
        self.element_extents = [scatter.window_extents[w] for w in self.element_dims]
        self.items, self.elements = math.prod(self.item_extents), math.prod(self.element_extents)

    def calls(self) -> list[KernelCall]:
        keys = Value(TensorType((self.items,), I32))
        calls = [self._keys(keys)]
        order = None
        # Sorted starts are sorted keys, or at least equal ones are neighbours, if an item is a row.
        if not (self.op.attrs.get("indices_are_sorted") and self.items == self.scatter.rows):
            sorting, order = sort_gpu.permutation(keys, self.target)
            calls += sorting
        level = _Level(self.items, keys, order, None)
        region = self.op.regions[0]
        if region.outputs == region.args[len(region.outputs) :]:
            return [*calls, self._set(level)]
        monoid = monoid_of(self.op)
        if monoid is None:
            return [*calls, self._one_after_another(level)]
        return [*calls, *self._folds(level, monoid)]

    @property
    def _what(self) -> str:
        return f"Scatters {self.items} sorted items of {self.elements} elements"

    # The pieces.

    def _keys(self, keys: Value) -> KernelCall:
        scatter, emitter = self.scatter, self.group.emitter(self.target)
        emitter.line("const int item = int(tid.x);")
        item = unravel(emitter, variable("item", self.items), self.item_extents)
        row, inner = item[: len(scatter.scatter_extents)], item[len(scatter.scatter_extents) :]
        starts = scatter.starts(emitter, row)
        inside = scatter.inside(starts)
        emitter.line("int key = -1;")
        with emitter.block(f"if ({inside})" if inside else ""):
            where = list(scatter.base(emitter, row, starts))
            for w, ix in zip(self.item_dims, inner, strict=True):
                where[scatter.window_operand_dims[w]] += ix
            emitter.line(f"key = {linearize(tuple(where[d] for d in self.places), self.place_shape)};")
        emitter.line("out0[item] = key;")
        return kernel_call(
            emitter, [keys], f"Where {self.items} items of a scatter go, one a thread.", (self.items, 1, 1)
        )

    def _key(self, emitter: Emitter, level: _Level, name: str, at: str) -> None:
        """Declares `name`, the key at position `at`."""
        emitter.line(f"const int {name} = {self._key_text(emitter, level, at)};")

    def _key_text(self, emitter: Emitter, level: _Level, at: str) -> str:
        keys = emitter.input(level.keys)
        return f"{keys}[{self._item_text(emitter, level, at)}]"

    def _item_text(self, emitter: Emitter, level: _Level, at: str) -> str:
        return at if level.order is None else f"{emitter.input(level.order)}[{at}]"

    def _updates(self, emitter: Emitter, level: _Level, at: str, element: Index) -> list[Expr]:
        """The elements of the item at position `at`."""
        if level.parts is not None:
            return [emitter.load(level.parts, (variable(at, level.count), linearize(element, self.element_extents)))]
        scatter = self.scatter
        name = emitter.fresh("item")
        emitter.line(f"const int {name} = {self._item_text(emitter, level, at)};")
        item = unravel(emitter, variable(name, self.items), self.item_extents)
        row, own = item[: len(scatter.scatter_extents)], item[len(scatter.scatter_extents) :]
        inner = dict(zip((*self.item_dims, *self.element_dims), (*own, *element), strict=True))
        return scatter.elements(emitter, row, tuple(inner[w] for w in range(len(inner))))

    def _offset(self, emitter: Emitter, key: str, element: Index) -> Ix:
        """Where element `element` of the items with a key goes."""
        scatter = self.scatter
        where = [Ix(())] * len(scatter.shape)
        place = delinearize(variable(key, math.prod(self.place_shape)), self.place_shape)
        for d, ix in zip(self.places, place, strict=True):
            where[d] = ix
        for w, ix in zip(self.element_dims, element, strict=True):
            where[scatter.window_operand_dims[w]] = ix
        return linearize(tuple(where), scatter.shape)

    def _walk(self, emitter: Emitter, count: int) -> tuple[Ix, Index, grid.Threads]:
        """A thread for each of `count` and each element: the one, the other, and the launch."""
        walk = grid.axes([count, *self.element_extents])
        position = walk.position(emitter, "tid")
        return position[0], position[1:], walk.lengths

    def _call(
        self, emitter: Emitter, outputs: list[Value], how: str, threads: grid.Threads, updates: dict[Value, Value]
    ) -> KernelCall:
        return kernel_call(emitter, outputs, f"{self._what}; {how}", threads, restrict=False, updates=updates)

    # The three ways.

    def _set(self, level: _Level) -> KernelCall:
        emitter = self.group.emitter(self.target)
        position, element, threads = self._walk(emitter, level.count)
        emitter.line(f"const int at = {position};")
        self._key(emitter, level, "key", "at")
        later = f"at + 1 < {level.count} && {self._key_text(emitter, level, 'at + 1')} == key"
        emitter.line(f"if (key < 0 || ({later})) return;")
        offset = self._offset(emitter, "key", element)
        for k, new in enumerate(self._updates(emitter, level, "at", element)):
            emitter.line(f"out{k}[{offset}] = {new};")
        updates = dict(zip(self.op.results, self.op.operands, strict=False))
        return self._call(emitter, self.op.results, "the last of each place is stored.", threads, updates)

    def _one_after_another(self, level: _Level) -> KernelCall:
        emitter = self.group.emitter(self.target)
        position, element, threads = self._walk(emitter, level.count)
        emitter.line(f"const int first = {position};")
        self._key(emitter, level, "key", "first")
        earlier = f"first > 0 && {self._key_text(emitter, level, 'first - 1')} == key"
        emitter.line(f"if (key < 0 || ({earlier})) return;")
        offset = self._offset(emitter, "key", element)
        current = []
        for k, result in enumerate(self.op.results):
            emitter.use(result.dtype)
            emitter.line(f"{result.dtype.msl} current{k} = {wrap(f'out{k}[{offset}]', result.dtype)};")
            current.append(Expr(f"current{k}", result.dtype))
        emitter.line("int at = first;")
        more = f"at < {level.count} && {self._key_text(emitter, level, 'at')} == key"
        with emitter.block(f"for (; {more}; ++at)", total=level.count * self.elements):
            found = emitter.region(self.op.regions[0], [*current, *self._updates(emitter, level, "at", element)])
            assign(emitter, [expr.code for expr in current], found)
        for k, expr in enumerate(current):
            emitter.line(f"out{k}[{offset}] = {expr};")
        updates = dict(zip(self.op.results, self.op.operands, strict=False))
        return self._call(emitter, self.op.results, "a thread applies those of one place.", threads, updates)

    def _folds(self, level: _Level, monoid: str) -> list[KernelCall]:
        calls: list[KernelCall] = []
        before = self.op.operands[0]
        while True:
            last = level.count <= CHUNK
            after = self.op.results[0] if last else Value(before.type)
            call, level = self._fold(level, monoid, before, after)
            calls.append(call)
            if last:
                return calls
            before = after

    def _fold(self, level: _Level, monoid: str, before: Value, after: Value) -> tuple[KernelCall, _Level]:
        emitter = self.group.emitter(self.target)
        fold = _Fold(self.op, monoid)
        emitter.use(fold.dtype)
        kind = fold.dtype.msl
        chunks = -(-level.count // CHUNK)
        chunk, element, threads = self._walk(emitter, chunks)
        e = linearize(element, self.element_extents)
        emitter.line(f"const int begin = {chunk * CHUNK};")
        emitter.line(f"const int end = min(begin + {CHUNK}, {level.count});")
        self._key(emitter, level, "earlier", "begin > 0 ? begin - 1 : 0")
        self._key(emitter, level, "later", f"end < {level.count} ? end : 0")
        emitter.line("int head = -1, tail = -1;")
        emitter.line(f"{kind} head_part = {fold.identity}, tail_part = {fold.identity}, sum = {fold.identity};")
        emitter.line("int key = begin > 0 ? earlier : -1;")
        # Whether the key's items began before this chunk.
        emitter.line("bool open = true;")
        with emitter.block("for (int at = begin; at < end; ++at)", trips=CHUNK):
            self._key(emitter, level, "here", "at")
            with emitter.block("if (here != key)"):
                # `at > begin`: else there is nothing yet.
                with emitter.block("if (key >= 0 && at > begin)"):
                    with emitter.block("if (open)"):
                        emitter.line("head = key;")
                        emitter.line("head_part = sum;")
                    with emitter.block("else"):
                        self._finish(emitter, fold, element)
                emitter.line("open = false;")
                emitter.line("key = here;")
                emitter.line(f"sum = {fold.identity};")
            with emitter.block("if (here >= 0)"):
                (new,) = self._updates(emitter, level, "at", element)
                emitter.line(f"sum = {fold.apply(emitter, 'sum', fold.cast(new))};")
        with emitter.block(f"if (key >= 0 && end < {level.count} && later == key)"):
            # With items beyond both ends, one part holds them all, and the other keeps the neighbours together.
            emitter.line("tail = key;")
            emitter.line("if (open) head = key;")
            emitter.line("if (open) head_part = sum;")
            emitter.line("else tail_part = sum;")
        with emitter.block("else if (key >= 0)"):
            with emitter.block("if (open)"):
                emitter.line("head = key;")
                emitter.line("head_part = sum;")
            with emitter.block("else"):
                self._finish(emitter, fold, element)
        left = 2 * chunks
        keys, parts = Value(TensorType((left,), I32)), Value(TensorType((left, self.elements), fold.dtype))
        outputs = [after]
        if level.count > CHUNK:
            outputs += [keys, parts]
            with emitter.block(f"if ({e} == 0)" if self.elements > 1 else ""):
                emitter.line(f"out1[{chunk * 2}] = head;")
                emitter.line(f"out1[{chunk * 2 + 1}] = tail;")
            emitter.line(f"out2[{chunk * 2 * self.elements + e}] = head_part;")
            emitter.line(f"out2[{(chunk * 2 + 1) * self.elements + e}] = tail_part;")
        how = f"a thread folds {CHUNK} of {level.count} with {monoid}."
        return self._call(emitter, outputs, how, threads, {after: before}), _Level(left, keys, None, parts)

    def _finish(self, emitter: Emitter, fold: _Fold, element: Index) -> None:
        """Folds `sum` into the element that `key` means."""
        offset = self._offset(emitter, "key", element)
        dtype = self.op.results[0].dtype
        old = emitter.fresh("old")
        emitter.line(f"const {dtype.msl} {old} = {wrap(f'out0[{offset}]', dtype)};")
        new = fold.apply(emitter, fold.cast(Expr(old, dtype)), "sum")
        emitter.line(f"out0[{offset}] = {wrap(f'{dtype.msl}({new})', dtype)};")


class _Fold:
    """A known monoid, in the type that its partial results are kept in."""

    def __init__(self, op: Op, monoid: str) -> None:
        self.dtype: DType = accumulation(op, op.results[0].dtype)
        self.region = retyped(op.regions[0], [self.dtype])
        value = identity(monoid, self.dtype)
        # A negative zero is what leaves both zeros unchanged.
        zero = monoid == "stablehlo.add" and self.dtype.is_float
        self.identity = literal(-0.0 if zero else value, self.dtype)

    def cast(self, expr: Expr) -> str:
        return expr.code if expr.dtype is self.dtype else f"{self.dtype.msl}({expr})"

    def apply(self, emitter: Emitter, a: str, b: str) -> Expr:
        (result,) = emitter.region(self.region, [Expr(a, self.dtype), Expr(b, self.dtype)])
        return result
