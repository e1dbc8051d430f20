"""The compiler's work grows as the program does: the lines of it that run, counted, for programs of n and 2n parts."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import mlir_lowering
from mlir_lowering import fusion
from mlir_lowering.arena import ALIGNMENT, place
from mlir_lowering.graph import Value
from mlir_lowering.options import CompileOptions
from mlir_lowering.pipeline import compile_program
from mlir_lowering.targets import parse_target

ROW, SQUARE = "tensor<8xf32>", "tensor<8x8xf32>"
ZERO = "%z = stablehlo.constant dense<0.0> : tensor<f32>"


def program(args: list[str], lines: list[str], results: list[str], type: str, functions: str = "") -> str:
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(args))
    types = ", ".join([type] * len(results))
    body = "\n".join([*lines, f"return {', '.join(results)} : {types}"])
    return f"module @m {{ func.func public @main({arguments}) -> ({types}) {{\n{body}\n}}\n{functions}\n}}"


def chain(step: str, type: str = SQUARE, args: tuple[str, ...] = (), functions: str = "") -> Callable[[int], str]:
    """n times `step`, which makes %x? from $ (%x of the last step)."""

    def text(n: int) -> str:
        lines = [step.replace("$", f"%x{i - 1}" if i else "%a0").replace("?", str(i)) for i in range(n)]
        return program([type, *args], [ZERO, *lines], [f"%x{n - 1}"], type, functions)

    return text


def dot(x: str, y: str) -> str:
    return f"stablehlo.dot_general {x}, {y}, contracting_dims = [1] x [0] : ({SQUARE}, {SQUARE}) -> {SQUARE}"


def reduced(x: str) -> str:
    types = f"({SQUARE}, tensor<f32>) -> {ROW}"
    return f"stablehlo.reduce({x} init: %z) applies stablehlo.add across dimensions = [1] : {types}"


def independent(n: int) -> str:
    lines = [f"%x{i} = stablehlo.sine %a{i} : {ROW}" for i in range(n)]
    return program([ROW] * n, lines, [f"%x{i}" for i in range(n)], ROW)


def readers(n: int) -> str:
    lines = [f"%s = stablehlo.sine %a0 : {SQUARE}"]
    for i in range(n):
        lines += [f"%d{i} = {dot('%s', f'%a{i + 1}')}", f"%x{i} = stablehlo.add %d{i}, %s : {SQUARE}"]
    return program([SQUARE] * (n + 1), lines, [f"%x{i}" for i in range(n)], SQUARE)


def backward(n: int) -> str:
    """What a chain of dots made, read in the opposite order."""
    lines = []
    for i in range(n):
        lines += [f"%d{i} = {dot(f'%x{i - 1}' if i else '%a0', '%a1')}", f"%x{i} = stablehlo.tanh %d{i} : {SQUARE}"]
    gradient = f"%x{n - 1}"
    for i in reversed(range(n)):
        lines += [f"%h{i} = stablehlo.multiply {gradient}, %x{i} : {SQUARE}", f"%g{i} = {dot(f'%h{i}', '%a1')}"]
        gradient = f"%g{i}"
    return program([SQUARE] * 2, lines, [gradient], SQUARE)


def concatenate(n: int) -> str:
    lines = [f"%x{i} = stablehlo.sine %a{i} : {ROW}" for i in range(n)]
    operands = ", ".join(f"%x{i}" for i in range(n))
    result = f"tensor<{8 * n}xf32>"
    lines.append(f"%c = stablehlo.concatenate {operands}, dim = 0 : ({', '.join([ROW] * n)}) -> {result}")
    return program([ROW] * n, lines, ["%c"], result)


def branches(n: int) -> str:
    regions = ", ".join(f"{{ %u = stablehlo.sine %a{i} : {ROW}\nstablehlo.return %u : {ROW} }}" for i in range(n))
    line = f'%c = "stablehlo.case"(%i) ({regions}) : (tensor<i32>) -> {ROW}'
    index = "%i = stablehlo.convert %z : (tensor<f32>) -> tensor<i32>"
    lines = [f"%z = stablehlo.slice %a{n} [0:1] : ({ROW}) -> tensor<1xf32>", index.replace("%z", "%s")]
    lines.insert(1, "%s = stablehlo.reshape %z : (tensor<1xf32>) -> tensor<f32>")
    return program([ROW] * (n + 1), [*lines, line], ["%c"], ROW)


def carried(n: int) -> str:
    """A loop that carries n arrays, each from another one's present value."""
    types = ", ".join(["tensor<i32>", *[ROW] * n])
    start = ", ".join(["%i = %k", *(f"%y{i} = %a{i}" for i in range(n))])
    following = [f"%q{i} = stablehlo.add %y{i}, %y{(i + 1) % n} : {ROW}" for i in range(n)]
    loop = [
        "%k = stablehlo.constant dense<0> : tensor<i32>",
        "%one = stablehlo.constant dense<1> : tensor<i32>",
        "%ten = stablehlo.constant dense<10> : tensor<i32>",
        f"%w:{n + 1} = stablehlo.while({start}) : {types} cond {{",
        "%p = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>",
        "stablehlo.return %p : tensor<i1> } do {",
        "%j = stablehlo.add %i, %one : tensor<i32>",
        *following,
        f"stablehlo.return {', '.join(['%j', *(f'%q{i}' for i in range(n))])} : {types} }}",
    ]
    return program([ROW] * n, loop, [f"%w#{i + 1}" for i in range(n)], ROW)


LOOP = f"""%k? = stablehlo.constant dense<0> : tensor<i32>
%ten? = stablehlo.constant dense<10> : tensor<i32>
%w?:2 = stablehlo.while(%i = %k?, %y = $) : tensor<i32>, {ROW} cond {{
  %p = stablehlo.compare LT, %i, %ten? : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %p : tensor<i1> }} do {{
  %one = stablehlo.constant dense<1> : tensor<i32>
  %j = stablehlo.add %i, %one : tensor<i32>
  %q = stablehlo.sine %y : {ROW}
  stablehlo.return %j, %q : tensor<i32>, {ROW} }}
%x? = stablehlo.negate %w?#1 : {ROW}"""


def handed_on(n: int) -> str:
    """A chain of loops that hand on what none of them changes."""
    lines = ["%s = stablehlo.constant dense<true> : tensor<i1>"]
    for i in range(n):
        p, x, w = (f"%w{i - 1}#0", f"%w{i - 1}#1", f"%w{i - 1}#2") if i else ("%s", "%a0", "%a1")
        lines += [
            f"%w{i}:3 = stablehlo.while(%p = {p}, %x = {x}, %y = {w}) : tensor<i1>, {ROW}, {ROW} cond {{",
            "stablehlo.return %p : tensor<i1> } do {",
            "%q = stablehlo.not %p : tensor<i1>",
            f"%z = stablehlo.add %x, %y : {ROW}",
            f"stablehlo.return %q, %z, %y : tensor<i1>, {ROW}, {ROW} }}",
        ]
    return program([ROW] * 2, lines, [f"%w{n - 1}#1", f"%w{n - 1}#2"], ROW)


CASE = f"""%x? = "stablehlo.case"(%a1) ({{ %u = stablehlo.sine $ : {ROW}
  stablehlo.return %u : {ROW} }}, {{ %u = stablehlo.cosine $ : {ROW}
  stablehlo.return %u : {ROW} }}) : (tensor<i32>) -> {ROW}"""

SCATTER = f"""%x? = "stablehlo.scatter"($, %a1, %a2) <{{scatter_dimension_numbers = #stablehlo.scatter<
  inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}> ({{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.add %p, %q : tensor<f32>
  stablehlo.return %s : tensor<f32> }}) : ({ROW}, tensor<4x1xi32>, tensor<4xf32>) -> {ROW}"""

GATHER = f"""%g? = "stablehlo.gather"($, %a1) <{{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0],
  start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1>}}> : ({ROW}, tensor<8x1xi32>) -> {ROW}
%x? = stablehlo.sine %g? : {ROW}"""

SORT = f"""%s? = "stablehlo.sort"($) <{{dimension = 0 : i64}}> ({{
  ^bb0(%p: tensor<f32>, %q: tensor<f32>): %s = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
  stablehlo.return %s : tensor<i1> }}) : ({ROW}) -> {ROW}
%x? = stablehlo.sine %s? : {ROW}"""

FUNCTION = f"""func.func private @f(%x: {SQUARE}, %w: {SQUARE}) -> {SQUARE} {{
  %d = {dot("%x", "%w")}
  %t = stablehlo.tanh %d : {SQUARE}
  return %t : {SQUARE} }}"""

FAMILIES: dict[str, Callable[[int], str]] = {
    "reductions": chain(
        f"%r? = {reduced('$')}\n%b? = stablehlo.broadcast_in_dim %r?, dims = [0] : ({ROW}) -> {SQUARE}\n"
        f"%x? = stablehlo.add $, %b? : {SQUARE}"
    ),
    "dots": chain(f"%d? = {dot('$', '%a1')}\n%x? = stablehlo.tanh %d? : {SQUARE}", args=(SQUARE,)),
    "pointwise": chain(f"%x? = stablehlo.sine $ : {ROW}", ROW),
    "updates": chain(
        f"%s? = stablehlo.dynamic_slice $, %a1, sizes = [4] : ({ROW}, tensor<i32>) -> tensor<4xf32>\n"
        f"%t? = stablehlo.sine %s? : tensor<4xf32>\n"
        f"%x? = stablehlo.dynamic_update_slice $, %t?, %a1 : ({ROW}, tensor<4xf32>, tensor<i32>) -> {ROW}",
        ROW,
        ("tensor<i32>",),
    ),
    "gathers": chain(GATHER, ROW, ("tensor<8x1xi32>",)),
    "scatters": chain(SCATTER, ROW, ("tensor<4x1xi32>", "tensor<4xf32>")),
    "sorts": chain(SORT, ROW),
    "transposes": chain(
        "%r? = stablehlo.reshape $ : (tensor<6x10xf32>) -> tensor<10x6xf32>\n"
        "%x? = stablehlo.transpose %r?, dims = [1, 0] : (tensor<10x6xf32>) -> tensor<6x10xf32>",
        "tensor<6x10xf32>",
    ),
    "constants": chain(
        f"%k? = stablehlo.constant dense<[?.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : {ROW}\n"
        f"%x? = stablehlo.add $, %k? : {ROW}",
        ROW,
    ),
    "barriers": chain(f"%s? = stablehlo.sine $ : {ROW}\n%x? = stablehlo.optimization_barrier %s? : {ROW}", ROW),
    "loops": chain(LOOP, ROW),
    "handed_on": handed_on,
    "cases": chain(CASE, ROW, ("tensor<i32>",)),
    "calls": chain(
        f"%x? = func.call @f($, %a1) : ({SQUARE}, {SQUARE}) -> {SQUARE}", args=(SQUARE,), functions=FUNCTION
    ),
    "independent": independent,
    "readers": readers,
    "backward": backward,
    "concatenate": concatenate,
    "branches": branches,
    "carried": carried,
}


class Counted(set[Value]):
    """A set that counts the elements that are looked at one after the other."""

    looked_at = 0

    def __sub__(self, other: Any) -> set[Value]:
        Counted.looked_at += len(self)
        return set.__sub__(self, other)

    def __or__(self, other: Any) -> set[Any]:
        Counted.looked_at += len(self)
        return set.__or__(self, other)


def lines_run(run: Callable[[], object]) -> int:
    """Lines of the compiler's Python that `run` executes."""
    folder = str(Path(mlir_lowering.__file__).parent)
    lines = 0

    def in_function(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return in_function

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        return in_function if frame.f_code.co_filename.startswith(folder) else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return lines


def work(text: str, target: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Lines of the compiler that run, and elements of drafts' inputs that set operations go through."""
    draft_init = fusion._Draft.__init__

    def counted(self: Any, *args: Any, **keywords: Any) -> None:
        draft_init(self, *args, **keywords)
        self.inputs = Counted(self.inputs)

    Counted.looked_at = 0
    with monkeypatch.context() as patched:
        patched.delenv("PJRT_METAL_VERIFY_IR", raising=False)
        patched.setattr(fusion._Draft, "__init__", counted)
        lines = lines_run(lambda: compile_program(text.encode(), CompileOptions(), parse_target(target)))
    return lines + Counted.looked_at


@pytest.mark.parametrize("target", ["software", "apple9"])
@pytest.mark.parametrize("family", FAMILIES)
def test_twice_the_program_is_twice_the_work(family: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    n = 64
    work(FAMILIES[family](4), target, monkeypatch)  # what is imported and cached once
    once, twice = (work(FAMILIES[family](k * n), target, monkeypatch) for k in (1, 2))
    assert twice <= 2.2 * once, f"{n} parts: {once} lines; {2 * n} parts: {twice}"


def test_an_arena_of_many_holes() -> None:
    """Every other storage is given back, and what comes then fits into none of the holes."""

    def lines(n: int) -> int:
        first = [(i, 10 * n if i % 2 else n + i, ALIGNMENT * (1 + i)) for i in range(n)]
        then = [(2 * n + i, 10 * n, ALIGNMENT * (n + i)) for i in range(n)]
        return lines_run(lambda: place([*first, *then]))

    once, twice = lines(1000), lines(2000)
    assert twice <= 2.5 * once, f"{once}, {twice}"
