"""Processes whose GPU is the fake Metal: the library is in them before anything else, as Metal is on a Mac."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.metal import build_fake

ROOT = Path(__file__).resolve().parents[2]


def run(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments; the variables are added to its environment."""
    environment = os.environ | {"JAX_PLATFORMS": "metal,cpu", "PJRT_METAL_DEVICE": "gpu"} | variables
    environment["LD_PRELOAD"] = str(build_fake.library())
    command = [sys.executable, *arguments]
    # Sources of kernels that could not be compiled go into TMPDIR.
    with tempfile.TemporaryDirectory() as scratch:
        environment["TMPDIR"] = scratch
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1200, check=False
        )


def run_tests(*arguments: str, orders: int = 1) -> None:
    """A run of pytest that must pass. `orders`: of threads in which each dispatch runs."""
    plugin = ["-p", "tests.on_fake.session"]
    result = run(["-m", "pytest", "-q", "--no-header", *plugin, *arguments], PJRT_METAL_STRICT_ORDERS=str(orders))
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    summary = result.stdout.splitlines()[-1]
    assert "passed" in summary and "skipped" not in summary, summary
    assert "fake Metal: " in result.stdout, result.stdout[-2000:]
