"""Contractions through MPSGraph: JAX on the fake GPU, and who does them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.library_cases import CASES
from tests.programs import ROOT

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
    return [line.split()[2] for line in log.splitlines() if re.match(r"pjrt_metal: library: (mpsgraph|kernels) ", line)]


def sealed(text: bytes) -> bytes:
    """A remembered choice with the hash that fits."""
    return text + hashlib.blake2b(text, digest_size=32).hexdigest().encode() + b"\n"


def test_auto_times_once_and_remembers(tmp_path: Path) -> None:
    found, log = run(tmp_path, "auto", "dot", "dot_long", "dot")
    first = choices(log)
    assert first == ["mpsgraph", "mpsgraph"]  # the fake's is faster
    assert all(calls > 2 for name, (calls, _) in found.items() if name == "dot_long")  # timing
    files = {path: path.read_bytes() for path in tmp_path.glob("library-*.txt")}
    assert len(files) == 2
    found, log = run(tmp_path, "auto", "dot", "dot_long")
    assert choices(log) == first
    assert [calls for calls, _ in found.values()] == [1, 1]

    # What was remembered decides.
    for path, text in files.items():
        *key, times, _ = text.splitlines(keepends=True)
        assert sealed(b"".join([*key, times])) == text
        path.write_bytes(sealed(b"".join([*key, b"0x1p-9 0x1p-10\n"])))
    found, log = run(tmp_path, "auto", "dot", "dot_long")
    assert choices(log) == ["kernels", "kernels"]
    assert "(mpsgraph 1.9531 ms, kernels 0.9766 ms)" in log
    assert [calls for calls, _ in found.values()] == [0, 0]


def test_damaged_memory_is_timed_again(tmp_path: Path) -> None:
    run(tmp_path, "auto", "dot")
    (path,) = tmp_path.glob("library-*.txt")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-10], whole.replace(b"0x1", b"0x3"), whole + b"x", sealed(b"other\n0x1p-9 0x1p-10\n")):
        path.write_bytes(damaged)
        found, log = run(tmp_path, "auto", "dot")
        assert f"{path} will be replaced" in log
        assert found["dot"][0] > 2
        text = path.read_bytes()
        assert text.startswith(whole[: whole.index(b"0x1")]) and sealed(text[:-65]) == text
    path.unlink()
    path.parent.chmod(0o777)
    found, log = run(tmp_path, "auto", "dot")
    assert "others may write there" in log and found["dot"][0] > 2 and not path.exists()


def test_what_ended_a_process_is_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        run(tmp_path, "auto", "asserting", "dot")
    (path,) = tmp_path.glob("*.trying")
    for _ in range(2):
        found, log = run(tmp_path, "auto", "dot", "dot_long")
        assert str(path) in log and choices(log) == ["kernels", "mpsgraph"]
        assert found["dot"][0] == 0
    path.unlink()
    assert choices(run(tmp_path, "auto", "dot")[1]) == ["mpsgraph"]


def test_a_wrong_choice_is_refused() -> None:
    environment = {**os.environ, "PJRT_METAL_LIBRARY": "metal", "JAX_PLATFORMS": "metal"}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert "PJRT_METAL_LIBRARY=metal: expected auto, mpsgraph or kernels" in ran.stderr
