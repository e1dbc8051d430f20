"""Every kernel for a GPU is MSL (lint.py): those of the op records' samples and of every path through the schedules.

Planted faults are found.
"""

from __future__ import annotations

import functools
import re

import jax
import pytest

import mlir_lowering.ops
from mlir_lowering import msl, pipeline
from mlir_lowering.errors import CompileError
from mlir_lowering.options import CompileOptions
from mlir_lowering.registry import OPS
from mlir_lowering.targets import Target, parse_target
from pjrt_metal import doctor_schedules
from tests.kernels import lint

assert mlir_lowering.ops

TARGETS = ["apple7:language=30", "apple7:language=31", "apple8:language=32", "apple9:language=40"]


@pytest.fixture(scope="module")
def clang() -> str:
    found = lint.find_clang()
    if found is None:
        pytest.skip("needs clang: apt-get install clang-19")
    return found


def kernels_of(programs: dict[str, str], target: Target) -> dict[str, str]:
    """The sources, by kernel, of what StableHLO texts become. Each has a comment that names its program."""
    kernels: dict[str, str] = {}
    for name, text in programs.items():
        try:
            program = pipeline.compile_program(text.encode(), CompileOptions(), target)
        except CompileError as error:
            assert target.language < 31 and "bf16" in text, f"{name}: {error}"
            continue
        kernels |= {k.name: f"// {name}\n{k.source}" for k in program.kernels if not k.on_host}
    return kernels


def case_text(case: doctor_schedules.Case) -> str:
    with jax.enable_x64(case.dtype == "int64"):
        arguments = [jax.ShapeDtypeStruct(shape, case.dtype) for shape in case.shapes]
        return str(jax.jit(case.run).lower(*arguments).as_text())


@functools.cache
def kernels_for(text: str) -> dict[str, str]:
    """The sources of all samples' and cases' kernels for a target."""
    programs = {
        f"{name} {number}": f"func.func @main{sample.text}"
        for name, record in OPS.items()
        for number, sample in enumerate(record.samples)
    }
    programs |= {case.name: case_text(case) for case in doctor_schedules.CASES}
    return kernels_of(programs, parse_target(text))


def test_a_kernel_carries_what_it_calls_and_nothing_else(clang: str) -> None:
    """The lint reads every function of ours by itself, with what it calls; a kernel has those that it calls."""
    for function in msl._functions():
        if function.for_host:
            continue
        text = msl.with_functions(f"// {function.name}\nkernel void k(device float* x [[buffer(0)]]) {{\n}}\n", False)
        assert lint.check(msl.PREAMBLE + text, clang, 30) == [], function.name
    defined = {f.name for f in msl._functions()}
    for source in kernels_for("apple8:language=32").values():
        kernel = source[source.rindex("kernel void") :]
        called = set(msl._NAME.findall(kernel))
        carried = [f for f in msl._functions() if f"#ifndef {f.guard}\n" in source]
        names = {f.name for f in carried}
        assert called <= names <= defined
        overloads = [f for f in msl._functions() if f.name in names and not f.for_host]
        assert carried == overloads, "each once, and all of a name"
        users = kernel + "".join(f.text for f in carried)
        for f in carried:
            definitions = sum(other.name == f.name for other in carried)
            assert len(re.findall(rf"\b{f.name}\b", re.sub(r"//.*", "", users))) > definitions, f.name


def test_all_families_get_the_same_kernels() -> None:
    """So that what passes strict mode as apple8 (test_gpu_schedules.py) passes as every family. If schedules come to
    differ, that test must run them all."""
    apple7, apple8, apple9 = (kernels_for(f"apple{n}:language=31") for n in (7, 8, 9))
    assert apple7 == apple8 == apple9


@pytest.mark.parametrize("text", TARGETS)
def test_emitted_kernels(clang: str, text: str) -> None:
    target = parse_target(text)
    kernels = kernels_for(text)
    assert len(kernels) > 300
    problems = lint.check("\n".join([msl.PREAMBLE, *kernels.values()]), clang, target.language)
    assert problems == []


GOOD = """\
#include <metal_stdlib>
using namespace metal;
kernel void k(device const float* __restrict x [[buffer(0)]], constant uint& n [[buffer(1)]],
    device float* __restrict out [[buffer(2)]], uint3 tid [[thread_position_in_grid]],
    uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float tile[32][4 + 1];
  threadgroup float* p = &tile[0][0];
  p[lane] = x[tid.x] + 1.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float sum = simd_sum(tile[lane / 5u][lane % 5u]);
  if (tid.x < n) out[tid.x] = fma(sum, 2.0f, exp(sum));
}
"""


def test_good_kernel(clang: str) -> None:
    assert lint.check(GOOD, clang) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("threadgroup float* p", "device float* p", "cannot initialize a variable of type '__global"),
        ("threadgroup float* p", "float* p", "cannot initialize"),
        ("exp(sum)", "erf(sum)", "undeclared identifier 'erf'"),
        ("exp(sum)", "metal::cbrt(sum)", "no member named 'cbrt'"),
        ("exp(sum)", "__builtin_expf(sum)", "__builtin_expf is no function of MSL"),
        ("const float sum", "const double sum", "type 'double'"),
        ("2.0f", "2.0", "double precision constant"),
        ("exp(sum)", "float2{sum, sum}.x", "a vector is made with parentheses"),
        ("exp(sum)", "fmod(sum, 2.0f)", "Metal's fmod is not exact"),
        ("exp(sum)", "float(clamp(long(n), 0l, 5l))", "call to 'clamp' is ambiguous"),
        ("exp(sum)", "float(clz(ulong(n)))", "call to 'clz' is ambiguous"),
        ("exp(sum)", "float(popcount(ulong(n)))", "call to 'popcount' is ambiguous"),
        ("simd_sum(", "simd_sum((long)", "no matching function for call to 'simd_sum'"),
        ("out[tid.x] =", "x[tid.x] =", "not assignable"),
        ("if (tid.x < n)", "for (;;) { threadgroup float t[4]; t[0] = 1.0f; }", "outermost scope"),
        ("float tile[32][4 + 1]", "float tile[32][257]", "32896 bytes of threadgroup memory"),
        ("float tile[32][4 + 1]", "float big[8192], tile[32][5]", "33408 bytes of threadgroup memory"),
        ("[[buffer(2)]]", "[[buffer(3)]]", "[[buffer(3)]] where 2 comes next"),
        ("[[thread_index_in_simdgroup]]", "[[thread_position_in_grid]]", "[[thread_position_in_grid]] twice"),
        ("[[thread_index_in_simdgroup]]", "[[lane]]", "[[lane]] is no attribute"),
        ("uint3 tid", "uint2 tid", "[[thread_position_in_grid]] is a uint3, not uint2"),
        (" [[thread_position_in_grid]]", "", "no attribute in parameter 'uint3 tid'"),
        ("constant uint& n", "uint n", "neither in device nor in constant memory"),
        ("kernel void", "void", "no kernel is defined"),
    ],
)
def test_planted_fault(clang: str, old: str, new: str, message: str) -> None:
    assert old in GOOD
    problems = lint.check(GOOD.replace(old, new, 1), clang)
    assert any(message in problem for problem in problems), problems


def test_too_many_buffers(clang: str) -> None:
    more = "".join(f"device int* b{i} [[buffer({i})]], " for i in range(3, 32))
    problems = lint.check(GOOD.replace("uint3 tid", more + "uint3 tid"), clang)
    assert problems == ["k: 32 buffers; there are 31"]


def test_bfloat_needs_its_language(clang: str) -> None:
    text = GOOD.replace("const float sum", "const bfloat b = bfloat(x[0]); const float sum")
    assert lint.check(text, clang, 31) == []
    assert any("bfloat" in problem for problem in lint.check(text, clang, 30))
