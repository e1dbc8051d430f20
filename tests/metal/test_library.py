"""Contractions through MPSGraph: JAX on the fake GPU, and who does them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.build_fake import ROOT
from tests.metal.library_cases import CASES

OURS = {"prologue", "epilogue", "integers"}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for tests that need nothing of its being empty."""
    return tmp_path_factory.mktemp("cache")


def run(cache: Path, library: str, *names: str) -> tuple[dict[str, tuple[int, float]], str]:
    """Calls and error of each case, and the log."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(build_fake.library()),
        "JAX_PLATFORMS": "metal,cpu",
        "PJRT_METAL_DEVICE": "gpu",
        "PJRT_METAL_LIBRARY": library,
        "PJRT_METAL_CACHE_DIR": str(cache),
        "PJRT_METAL_LOG": "1",
        "PJRT_METAL_STRICT_ORDERS": "1",
    }
    command = [sys.executable, "-m", "tests.metal.library_cases", *names]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr
    *lines, last = ran.stdout.splitlines()
    assert last == "violations: "
    found = {name: (int(calls), float(error)) for name, calls, error in map(str.split, lines)}
    assert set(found) == set(names)
    return found, ran.stderr


def test_mpsgraph_agrees_with_the_cpu(kernels: Path) -> None:
    found, _ = run(kernels, "mpsgraph", *CASES)
    assert {name: calls for name, (calls, _) in found.items() if (calls == 0) != (name in OURS)} == {}
    assert found["dot_dot"][0] == 3
    # Rounded once; a chain three times, of sums of 30 products.
    assert {
        name: error for name, (_, error) in found.items() if error > (1 if name not in {*OURS, "dot_dot"} else 64)
    } == {}


def test_kernels_never_calls_the_library(kernels: Path) -> None:
    found, log = run(kernels, "kernels", "dot", "nhwc")
    assert [calls for calls, _ in found.values()] == [0, 0]
    assert "library:" not in log


def choices(log: str) -> list[str]:
    return [line.split()[2] for line in log.splitlines() if line.startswith("pjrt_metal: library:")]


def test_auto_times_once_and_remembers(tmp_path: Path) -> None:
    """The fake takes a millisecond a command: `dot` is as fast either way, `dot_long` has two kernels."""
    first, log = run(tmp_path, "auto", "dot", "dot_long", "dot")
    assert choices(log) == ["kernels", "mpsgraph"]
    assert first["dot_long"][0] > 2  # timing, then its own
    assert "(mpsgraph 2.0000 ms, kernels 3.0000 ms)" in log
    files = {path: path.read_bytes() for path in tmp_path.glob("library-*.txt")}
    assert len(files) == 2
    again, log = run(tmp_path, "auto", "dot", "dot_long")
    assert choices(log) == ["kernels", "mpsgraph"]
    assert [calls for calls, _ in again.values()] == [0, 1]
    # What is damaged is timed again; the other is still known.
    damaged = next(path for path, text in files.items() if b"512" not in text)
    damaged.write_bytes(files[damaged].replace(b"0x1.", b"0x3."))
    again, log = run(tmp_path, "auto", "dot", "dot_long")
    assert again["dot"][0] > 2 and again["dot_long"][0] == 1
    assert f"{damaged} will be replaced" in log
    assert {path: path.read_bytes() for path in files} == files


def test_a_wrong_choice_is_refused() -> None:
    environment = {**os.environ, "PJRT_METAL_LIBRARY": "metal", "JAX_PLATFORMS": "metal"}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert "PJRT_METAL_LIBRARY=metal: expected auto, mpsgraph or kernels" in ran.stderr
