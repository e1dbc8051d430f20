"""The doctor's schedule cases on the strict device (see test_gpu_schedules.py), and that each takes its path."""

from __future__ import annotations

import jax
import pytest

from mlir_lowering import work
from mlir_lowering.options import read_options
from mlir_lowering.pipeline import compile_program
from mlir_lowering.targets import parse_target
from pjrt_metal.doctor_schedules import CASES, Case, arguments, compare

TARGET = parse_target("apple8:simd_width=32,threads=1024,threadgroup_bytes=32768,language=31")
# MSL's highest buffer index and an Apple GPU's threadgroup memory.
MAX_BUFFERS = 31


def test_runs_on_the_strict_device() -> None:
    (device,) = jax.devices("metal")
    assert "strict" in device.device_kind.lower()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_takes_its_path_and_agrees_with_the_cpu(case: Case) -> None:
    with jax.enable_x64(case.dtype == "int64"):
        text = jax.jit(case.run).lower(*arguments(case)).as_text()
    program = compile_program(text.encode(), read_options(b""), TARGET)
    details = "\n".join(label.detail for label in program.labels)
    assert [s for s in case.says if s not in details] == [], details
    assert all(len(kernel.params) <= MAX_BUFFERS and not kernel.on_host for kernel in program.kernels)
    compare(case)


PARTS = (
    "flat_vectors",
    "rows_by_threadgroup",
    "dot_edges",
    "scatter_add",
    "scatter_sorted_add",
    "sort_merge",
    "scan_blocks",
)


@pytest.mark.parametrize("case", [case for case in CASES if case.name in PARTS], ids=lambda case: case.name)
def test_in_parts(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a launch could do no more than a few thousand iterations."""
    monkeypatch.setattr(work, "LAUNCH", 3000)
    jax.clear_caches()
    text = jax.jit(case.run).lower(*arguments(case)).as_text()
    program = compile_program(text.encode(), read_options(b""), TARGET)
    in_parts = [kernel.name for kernel in program.kernels if "constant int* part" in kernel.source]
    assert in_parts
    compare(case)
    jax.clear_caches()
