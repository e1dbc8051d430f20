"""PJRT_METAL_DUMP and PJRT_METAL_LOG show what was made and what ran."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_CODE = """
import jax, jax.numpy as jnp, numpy as np
x = jax.device_put(np.arange(4, dtype=np.float32), jax.devices("metal")[0])
print(jax.jit(lambda x: jnp.tanh(x) + 1)(x).sum())
"""


def _run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _CODE],
        env={**os.environ, "JAX_PLATFORMS": "metal", **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_dump_has_every_stage(tmp_path: Path) -> None:
    _run(PJRT_METAL_DUMP=str(tmp_path))
    (folder,) = tmp_path.glob("jit__lambda*")
    names = {path.name for path in folder.iterdir()}
    assert {"stablehlo.mlir", "00-import.txt", "kernels.metal", "plan.txt"} <= names
    assert "stablehlo.tanh" in (folder / "stablehlo.mlir").read_text()
    assert "stablehlo.tanh" in (folder / "00-import.txt").read_text()
    kernels = (folder / "kernels.metal").read_text()
    assert "kernel void k_" in kernels
    assert kernels.count("// stablehlo.") == kernels.count("kernel void k_")  # what each is for
    assert "launch k_" in (folder / "plan.txt").read_text()
    assert any("simplify" in name for name in names)


def test_log_has_phases_and_times() -> None:
    lines = [line for line in _run(PJRT_METAL_LOG="1").stderr.splitlines() if line.startswith("pjrt_metal: ")]
    for phase in ("compile: decode", "compile: fuse and schedule", "compile: kernels", "execute"):
        assert any(phase in line and " ms" in line for line in lines), phase


def test_nothing_is_said_unasked() -> None:
    environment = {"PJRT_METAL_LOG": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    assert "pjrt_metal" not in _run(**environment).stderr
