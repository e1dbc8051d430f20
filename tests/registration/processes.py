"""Runs a piece of Python in a process of its own, as a user's program would start."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path


def run(code: str, folder: Path, platforms: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `code` in `folder` with JAX_PLATFORMS=`platforms`, or without that variable."""
    full = {**os.environ, **environment}
    full.pop("JAX_PLATFORMS", None)
    if platforms is not None:
        full["JAX_PLATFORMS"] = platforms
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=folder,
        env=full,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def output(code: str, folder: Path, platforms: str | None = None, **environment: str) -> list[str]:
    """The lines that `code` prints; it must succeed and write nothing to stderr."""
    result = run(code, folder, platforms, **environment)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.splitlines()
