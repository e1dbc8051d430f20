"""The test run itself: its last lines say what was not tested for want of a tool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ROOT


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_what_was_not_tested(tmp_path: Path, workers: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/test_lint.py", *workers]
    result = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("NOT TESTED")]
    assert len(lines) == 1, result.stdout + result.stderr
    assert lines[0].endswith("needs clang: apt-get install clang-19")
