"""Windows: reduce_window and select_and_scatter, each output element computed on its own.

Both run in the pointwise nest. A reduce_window element folds the operand's elements under its window. A
select_and_scatter element looks at every window that covers it and takes that window's source element if it is the
one the window selects; no two threads write one element, so the result does not depend on their order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from mlir_lowering.emit import Emitter, Expr
from mlir_lowering.graph import Op
from mlir_lowering.index import Index, Ix, constant, variable
from mlir_lowering.kernel import Group, KernelCall, ScheduleDef
from mlir_lowering.schedules import pointwise, scan, scan_gpu, scan_software
from mlir_lowering.schedules.loops import assign, nested
from mlir_lowering.targets import Target

# Windows of at most this many elements are unrolled; larger ones are loops.
UNROLLED = 16


def attribute(op: Op, name: str, default: int) -> tuple[int, ...]:
    found = op.attrs.get(name)
    return tuple(found) if found is not None else (default,) * op.operands[0].type.rank


def padding_of(op: Op) -> tuple[tuple[int, int], ...]:
    found = op.attrs.get("padding")
    if found is None:
        return ((0, 0),) * op.operands[0].type.rank
    return tuple((int(lo), int(hi)) for lo, hi in found)


def _over_window(emitter: Emitter, window: Sequence[int], visit: Callable[[Index], None]) -> None:
    """Calls `visit` for every position of the window in row-major order, unrolled if it is small."""
    if math.prod(window) <= UNROLLED:
        for position in itertools.product(*(range(n) for n in window)):
            visit(tuple(constant(p) for p in position))
        return
    names = [emitter.fresh("w") for _ in window]

    loops = list(zip(names, window, strict=True))
    nested(emitter, loops, lambda: visit(tuple(variable(n, e) for n, e in loops)))


def _when(emitter: Emitter, conditions: list[str], then: Callable[[], None]) -> None:
    with emitter.block(f"if ({' && '.join(conditions)})" if conditions else ""):
        then()


def _condition(emitter: Emitter, ix: Ix, extent: int) -> list[str]:
    test = emitter.in_range(ix, 0, extent)
    return [test] if test else []


def _reduce_window_element(emitter: Emitter, op: Op, index: Index) -> list[Expr]:
    """The element of every result at `index`."""
    count = len(op.operands) // 2
    operands, inits = op.operands[:count], op.operands[count:]
    shape = operands[0].shape
    window = tuple(op.attrs["window_dimensions"])
    strides = attribute(op, "window_strides", 1)
    base_dilations = attribute(op, "base_dilations", 1)
    window_dilations = attribute(op, "window_dilations", 1)
    padding = padding_of(op)

    accumulators = []
    for init, result in zip(inits, op.results, strict=True):
        name = emitter.fresh("acc")
        emitter.use(result.dtype)
        emitter.line(f"{result.dtype.msl} {name} = {emitter.load(init, ())};")
        accumulators.append(Expr(name, result.dtype))

    def visit(position: Index) -> None:
        at: list[Ix] = []
        conditions: list[str] = []
        for d, extent in enumerate(shape):
            ix = index[d] * strides[d] + position[d] * window_dilations[d] - padding[d][0]
            dilation = base_dilations[d]
            if dilation > 1:
                dilated = (extent - 1) * dilation + 1
                conditions += _condition(emitter, ix, dilated)
                conditions += _condition(emitter, ix % dilation, 1)  # else a hole
                ix = ix // dilation
            else:
                conditions += _condition(emitter, ix, extent)
            at.append(ix)

        def fold() -> None:
            values = [emitter.load(operand, tuple(at)) for operand in operands]
            results = emitter.region(op.regions[0], [*accumulators, *values])
            assign(emitter, [accumulator.code for accumulator in accumulators], results)

        _when(emitter, conditions, fold)

    _over_window(emitter, window, visit)
    return accumulators


def _select_and_scatter_element(emitter: Emitter, op: Op, index: Index) -> Expr:
    operand, source, init = op.operands
    select, scatter = op.regions
    shape = operand.shape
    window = attribute(op, "window_dimensions", 1)
    strides = attribute(op, "window_strides", 1)
    padding = padding_of(op)
    dtype = op.result.dtype
    emitter.use(dtype)
    total = Expr(emitter.fresh("acc"), dtype)
    emitter.line(f"{dtype.msl} {total} = {emitter.load(init, ())};")

    def covering(position: Index) -> None:
        """The window in which this element stands at `position`, if there is one."""
        at: list[Ix] = []
        conditions: list[str] = []
        for d, extent in enumerate(source.shape):
            shifted = index[d] - position[d] + padding[d][0]
            conditions += _condition(emitter, shifted % strides[d], 1)
            ix = shifted // strides[d]
            conditions += _condition(emitter, ix, extent)
            at.append(ix)

        def take() -> None:
            mine = emitter.fresh("mine")
            best = Expr(emitter.fresh("best"), operand.dtype)
            found = emitter.fresh("found")
            emitter.line(f"bool {mine} = false, {found} = false;")
            emitter.line(f"{operand.dtype.msl} {best} = {operand.dtype.msl}(0);")
            _over_window(emitter, window, lambda other: consider(other, mine, best, found))
            with emitter.block(f"if ({mine})"):
                (folded,) = emitter.region(scatter, [total, emitter.load(source, tuple(at))])
                emitter.line(f"{total} = {folded};")

        def consider(other: Index, mine: str, best: Expr, found: str) -> None:
            where = tuple(a * s + o - p[0] for a, s, o, p in zip(at, strides, other, padding, strict=True))
            inside = [c for ix, n in zip(where, shape, strict=True) for c in _condition(emitter, ix, n)]

            def compare() -> None:
                value = emitter.load(operand, where)
                (keep,) = emitter.region(select, [best, value])
                with emitter.block(f"if (!{found} || !{keep})"):
                    emitter.line(f"{best} = {value};")
                    emitter.line(f"{found} = true;")
                    same = [f"{a} == {b}" for a, b in zip(other, position, strict=True) if a != b]
                    if all(a.is_const and b.is_const for a, b in zip(other, position, strict=True)):
                        emitter.line(f"{mine} = {'false' if same else 'true'};")
                    else:
                        emitter.line(f"{mine} = {' && '.join(same) or 'true'};")

            _when(emitter, inside, compare)

        _when(emitter, conditions, take)

    _over_window(emitter, window, covering)
    return total


def _emit_reduce_window(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    direction = scan.direction_of(op)
    if direction is not None:
        nests = scan_software.NESTS if target.is_software else scan_gpu.NESTS
        return scan.emit(group, target, direction, nests)

    def prepare(emitter: Emitter) -> None:
        # Results of one op share the window walk: remembered by index within the innermost scope.
        memo: dict[Index, list[Expr]] = {}

        def element(number: int) -> Callable[[Index], Expr]:
            def at(index: Index) -> Expr:
                if index not in memo:
                    memo[index] = _reduce_window_element(emitter, op, index)
                return memo[index][number]

            return at

        for number, value in enumerate(op.results):
            emitter.bind(value, element(number))

    return pointwise.emit(group, target, prepare)


def _emit_select_and_scatter(group: Group, target: Target) -> list[KernelCall]:
    op = group.head
    assert op is not None
    return pointwise.emit(
        group,
        target,
        lambda emitter: emitter.bind(op.result, lambda index: _select_and_scatter_element(emitter, op, index)),
    )


def _window_reads(op: Op, i: int) -> float:
    """How many windows cover an element, on average."""
    if op.name == "stablehlo.reduce_window" and i >= len(op.operands) // 2:
        return 1.0
    if op.name == "stablehlo.reduce_window" and scan.direction_of(op) is not None:
        return 2.0
    window = math.prod(attribute(op, "window_dimensions", 1))
    strides = math.prod(attribute(op, "window_strides", 1))
    overlap = max(1.0, window / strides)
    return overlap * window if op.name == "stablehlo.select_and_scatter" else overlap


REDUCE_WINDOW = ScheduleDef(_emit_reduce_window, _window_reads, epilogue=True)
SELECT_AND_SCATTER = ScheduleDef(_emit_select_and_scatter, _window_reads, epilogue=True)
