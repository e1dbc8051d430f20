"""A compiled program leaves no reference cycles: nothing of it waits for Python's cycle collector."""

from __future__ import annotations

import gc

import pytest

import mlir_lowering.ops
from mlir_lowering.options import CompileOptions
from mlir_lowering.pipeline import compile_program
from mlir_lowering.registry import OPS
from mlir_lowering.targets import parse_target

assert mlir_lowering.ops

TARGETS = ("software:threads=2,vector_bytes=64", "apple8:simd_width=32,threads=1024,threadgroup_bytes=32768,language=31")


@pytest.mark.parametrize("target", TARGETS)
def test_no_garbage(target: str) -> None:
    """One program of each op: the first sample of its record."""
    chosen = parse_target(target)
    options = CompileOptions()
    texts = [f"func.func @main{op.samples[0].text}".encode() for op in OPS.values() if op.samples]

    def compile_all() -> None:
        for text in texts:
            compile_program(text, options, chosen)

    compile_all()  # fills caches
    gc.collect()
    gc.disable()
    flags = gc.get_debug()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        compile_all()
        gc.collect()
        left = [o for o in gc.garbage if type(o).__module__.startswith("mlir_lowering") or callable(o)]
        assert [repr(o)[:200] for o in left] == []
    finally:
        gc.set_debug(flags)
        gc.garbage.clear()
        gc.enable()
