"""What shares a kernel, what is copied, and how much memory a program needs, on small StableHLO programs."""

from __future__ import annotations

import mlir_lowering.ops
from mlir_lowering.options import CompileOptions
from mlir_lowering.pipeline import compile_program
from mlir_lowering.program import Copy, Launch, Program, While
from mlir_lowering.targets import parse_target

assert mlir_lowering.ops

SOFTWARE = parse_target("software:threads=2,vector_bytes=64")


def _compile(text: str) -> Program:
    return compile_program(f"func.func @main{text}".encode(), CompileOptions(), SOFTWARE)


def _kinds(program: Program) -> list[str]:
    return [type(step).__name__ for step in program.body]


_T = "tensor<1000xf32>"


def test_a_chain_is_one_kernel() -> None:
    program = _compile(
        f"(%x: {_T}, %y: {_T}) -> {_T} {{ %0 = stablehlo.add %x, %y : {_T} %1 = stablehlo.tanh %0 : {_T}"
        f" %2 = stablehlo.multiply %1, %x : {_T} return %2 : {_T} }}"
    )
    assert _kinds(program) == ["Launch"]
    assert program.arena_bytes == 0
    (launch,) = program.body
    assert isinstance(launch, Launch) and len(launch.slots) == 3


def test_a_value_read_twice_on_the_way_is_written_by_its_reader() -> None:
    program = _compile(
        f"(%x: {_T}) -> ({_T}, {_T}) {{ %0 = stablehlo.tanh %x : {_T} %1 = stablehlo.multiply %0, %0 : {_T}"
        f" return %0, %1 : {_T}, {_T} }}"
    )
    assert _kinds(program) == ["Launch"]


def test_equal_shapes_share_a_kernel_whatever_their_length() -> None:
    def kernel(n: int) -> str:
        t = f"tensor<{n}xf32>"
        return _compile(f"(%x: {t}) -> {t} {{ %0 = stablehlo.tanh %x : {t} return %0 : {t} }}").kernels[0].name

    assert kernel(10) == kernel(12345)


def test_broadcast_of_a_computed_row_is_not_recomputed_for_every_row() -> None:
    program = _compile(
        "(%x: tensor<500xf32>) -> tensor<400x500xf32> { %0 = stablehlo.tanh %x : tensor<500xf32>"
        " %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<500xf32>) -> tensor<400x500xf32>"
        " return %1 : tensor<400x500xf32> }"
    )
    assert _kinds(program) == ["Launch", "Launch"]


def test_a_loop_keeps_its_carried_values_in_place() -> None:
    program = _compile(
        f"(%x: {_T}) -> {_T} {{ %z = stablehlo.constant dense<0> : tensor<i32>"
        " %o = stablehlo.constant dense<1> : tensor<i32> %t = stablehlo.constant dense<9> : tensor<i32>"
        f" %r:2 = stablehlo.while(%i = %z, %y = %x) : tensor<i32>, {_T}"
        " cond { %c = stablehlo.compare LT, %i, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>"
        " stablehlo.return %c : tensor<i1> } do { %n = stablehlo.add %i, %o : tensor<i32>"
        f" %s = stablehlo.tanh %y : {_T} stablehlo.return %n, %s : tensor<i32>, {_T} }}"
        f" return %r#1 : {_T} }}"
    )
    (loop,) = (step for step in program.body if isinstance(step, While))
    assert loop.trip_count == 9
    assert not any(isinstance(step, Copy) for step in loop.body)


def test_an_update_of_a_donated_argument_is_in_place() -> None:
    update = (
        f"(%x: {_T} {{tf.aliasing_output = 0 : i32}}, %u: tensor<5xf32>, %i: tensor<i32>) -> {_T} {{"
        f" %0 = stablehlo.dynamic_update_slice %x, %u, %i : ({_T}, tensor<5xf32>, tensor<i32>) -> {_T}"
        f" return %0 : {_T} }}"
    )
    program = _compile(update)
    assert program.parameters[0].alias == 0
    # The copy is for callers that do not donate; with the same memory at both ends the runtime skips it.
    assert _kinds(program) == ["Copy", "Launch"]


def test_shifted_copies_do_not_multiply() -> None:
    """Each step adds a value to itself rolled by one, which evaluates what is before it once more."""
    rolled = (
        "%s{i} = stablehlo.slice %{i} [9:10] : (tensor<10xf32>) -> tensor<1xf32>"
        " %r{i} = stablehlo.slice %{i} [0:9] : (tensor<10xf32>) -> tensor<9xf32>"
        " %c{i} = stablehlo.concatenate %s{i}, %r{i}, dim = 0 : (tensor<1xf32>, tensor<9xf32>) -> tensor<10xf32>"
        " %{n} = stablehlo.add %c{i}, %{i} : tensor<10xf32> "
    )
    steps = "".join(rolled.format(i=i, n=i + 1) for i in range(60))
    program = _compile(f"(%0: tensor<10xf32>) -> tensor<10xf32> {{ {steps} return %60 : tensor<10xf32> }}")
    assert max(len(kernel.source.splitlines()) for kernel in program.kernels) < 2000


def test_memory_of_dead_values_is_used_again() -> None:
    body = (
        " ^bb0(%a: tensor<f32>, %b: tensor<f32>):"
        " %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>"
        " stablehlo.return %p : tensor<i1> "
    )
    lines = [
        f'%{i + 1} = "stablehlo.sort"(%{i}) <{{dimension = {i % 2} : i64}}> ({{{body}}})'
        " : (tensor<64x64xf32>) -> tensor<64x64xf32>"
        for i in range(8)
    ]
    program = _compile(
        "(%0: tensor<64x64xf32>) -> tensor<64x64xf32> { " + " ".join(lines) + " return %8 : tensor<64x64xf32> }"
    )
    value, permutation = 64 * 64 * 4, 2 * 64 * 64 * 4
    assert program.arena_bytes <= 2 * value + permutation
