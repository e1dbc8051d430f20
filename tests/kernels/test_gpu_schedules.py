"""The GPU's schedules on the strict device: the registry's samples, and shapes that take every path.

The device is chosen when jax starts, so the tests run in processes of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "path",
    [
        "tests/kernels/gpu_cases.py",
        "tests/kernels/test_special_values.py",
        pytest.param("tests/ops/test_ops.py", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("target", ["apple8"])
def test_on_the_strict_device(path: str, target: str) -> None:
    environment = os.environ | {"PJRT_METAL_STRICT": target, "JAX_PLATFORMS": "metal,cpu"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", path]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
    summary = run.stdout.splitlines()[-1]
    assert "passed" in summary and "skipped" not in summary, summary
