"""The soak's short form."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_short_soak() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--programs", "200", "--executions", "20000"],
        env={name: value for name, value in os.environ.items() if not name.startswith("PJRT_METAL_")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert result.stdout.endswith("grown: nothing\n")
