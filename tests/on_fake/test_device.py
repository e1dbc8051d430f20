"""The device under JAX: memory pressure, threadgroups, captures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.on_fake.processes import run, run_tests

PROGRAM = "import jax; print(jax.jit(lambda x: x + 1)(jax.numpy.ones(4)).sum())"


def test_device() -> None:
    run_tests("tests/on_fake/device_cases.py")


def test_a_program_is_captured(tmp_path: Path) -> None:
    path = tmp_path / "work.gputrace"
    result = run(["-c", PROGRAM], PJRT_METAL_CAPTURE=str(path))
    assert result.returncode == 0, result.stderr
    assert path.exists()
    again = run(["-c", PROGRAM], PJRT_METAL_CAPTURE=str(path), JAX_PLATFORMS="metal")
    assert again.returncode != 0
    assert f"PJRT_METAL_CAPTURE={path} exists" in again.stderr


def test_nothing_to_capture_without_a_gpu(tmp_path: Path) -> None:
    environment = os.environ | {"PJRT_METAL_CAPTURE": str(tmp_path / "x.gputrace"), "JAX_PLATFORMS": "metal"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "records a GPU's work, and there is no GPU here" in result.stderr
