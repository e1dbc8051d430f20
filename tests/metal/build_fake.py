"""Builds the fake Metal, libfake_metal.so: once for each content of its sources, for every test that uses it."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests/metal/fake"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-g", f"-I{ROOT}"]
# By the end of a source's name.
COMPILERS = {".m": ["gcc", "-std=gnu11"], ".cc": ["g++", "-std=c++20"]}


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)  # type: ignore[call-overload,no-any-return]


def require_objective_c() -> None:
    """Skips where no compiler reads Objective-C."""
    if not shutil.which("gcc") or run(["gcc", "-print-prog-name=cc1obj"]).stdout.strip() == "cc1obj":
        pytest.skip("needs gcc for Objective-C: apt-get install gobjc")


def sources() -> list[Path]:
    return sorted(path for path in FAKE.iterdir() if path.suffix in COMPILERS)


def _compile(source: Path, folder: Path) -> Path:
    output = folder / f"{source.stem}.o"
    command = [*COMPILERS[source.suffix], *WARNINGS, "-fPIC", "-O1", "-c", str(source), "-o", str(output)]
    built = run(command)
    assert built.returncode == 0, built.stderr
    return output


@functools.cache
def library() -> Path:
    """The fake as a shared library, built now unless a process of this user has built these very sources."""
    require_objective_c()
    inputs = [*sorted(FAKE.iterdir()), Path(__file__)]
    key = hashlib.blake2b(b"\0".join(path.read_bytes() for path in inputs), digest_size=12).hexdigest()
    folder = ROOT / "build/fake_metal"
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / key / "libfake_metal.so"
    if not result.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: _compile(source, Path(scratch)), sources()))
            output = Path(scratch) / result.name
            linked = run(["g++", "-shared", *map(str, objects), "-o", str(output), "-lobjc", "-lpthread"])
            assert linked.returncode == 0, linked.stderr
            result.parent.mkdir(exist_ok=True)
            output.rename(result)  # atomically: another process may be at the same
    return result
