"""The package as the macOS wheel has it: without `_core`, the library reaches the compiler through ctypes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import pjrt_metal
from tests.registration import processes


@pytest.fixture
def without_core(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with this package's Python files and library, but no `_core`."""
    source = Path(pjrt_metal.__file__).parent
    shutil.copytree(source, tmp_path / "pjrt_metal", ignore=shutil.ignore_patterns("_core*", "__pycache__"))
    shutil.copytree(source.parent / "mlir_lowering", tmp_path / "mlir_lowering")
    return tmp_path


def _output(code: str, folder: Path) -> list[str]:
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    return processes.output(code, folder, "metal,cpu", PYTHONPATH=path)


def test_compiles_runs_and_ends(without_core: Path) -> None:
    code = """
    import jax, jax.numpy as jnp, sys
    print(jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((8, 8)))[0, 0])
    print(sys.modules["pjrt_metal.compiler_hook"].core.__name__)
    print("pjrt_metal._core" in sys.modules)
    """
    lines = _output(code, without_core)
    assert abs(float(lines[0]) - 6.7317678) < 1e-5
    assert lines[1:] == ["pjrt_metal.core_ctypes", "False"]


def test_errors_keep_their_code_and_text(without_core: Path) -> None:
    code = """
    import jax
    from jaxlib import xla_client
    device = jax.devices("metal")[0]
    def compile(text):
        try:
            device.client.compile_and_load(text, [device], xla_client.CompileOptions())
        except Exception as error:
            print(str(error).splitlines()[0])
    # The compiler refuses the first itself; the second time it fails, as a mistake of ours would.
    operation = "stablehlo.custom_call @nobody_has_this(%a) : (tensor<2xf32>) -> tensor<2xf32>"
    text = "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = " + operation + " return %0 : tensor<2xf32> }"
    compile(text)
    from mlir_lowering import pipeline
    def fail(*arguments):
        raise KeyError("planted")
    pipeline.compile_program = fail
    compile(text)
    """
    lines = _output(code, without_core)
    assert "nobody_has_this" in lines[0] and "INTERNAL" not in lines[0]
    assert lines[1].startswith("INTERNAL: the compiler failed:")
