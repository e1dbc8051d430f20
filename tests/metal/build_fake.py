"""Builds the fake Metal, libfake_metal.so: once for each content of its sources, for every test that uses it."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests/metal/fake"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-g", f"-I{ROOT}"]
# By the end of a source's name.
COMPILERS = {".m": ["gcc", "-std=gnu11"], ".cc": ["g++", "-std=c++20"]}


def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)  # type: ignore[call-overload,no-any-return]


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


def _built(name: str, inputs: list[Path], build: Callable[[Path], object]) -> Path:
    """The folder that `build` fills, unless a process of this user has filled it from these very inputs."""
    key = hashlib.blake2b(
        b"\0".join(path.read_bytes() for path in [*inputs, Path(__file__)]), digest_size=12
    ).hexdigest()
    folder = ROOT / "build/fake_metal"
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / f"{name}-{key}"
    if not result.exists():
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            build(Path(scratch))
            try:
                Path(scratch).rename(result)  # atomically: another process may be at the same
            except OSError:
                assert result.exists()
            Path(scratch).mkdir(exist_ok=True)
    return result


def _compile_all(sources: list[Path], folder: Path) -> list[Path]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda source: _compile(source, folder), sources))


@functools.cache
def library() -> Path:
    """The fake as a shared library."""
    require_objective_c()

    def build(folder: Path) -> None:
        objects = _compile_all(sources(), folder)
        output = folder / "libfake_metal.so"
        linked = run(["g++", "-shared", *map(str, objects), "-o", str(output), "-lobjc", "-lpthread"])
        assert linked.returncode == 0, linked.stderr

    return _built("fake", sorted(FAKE.iterdir()), build) / "libfake_metal.so"


# csrc/metal and what it uses of csrc/runtime.
DEVICE_SOURCES = [
    *sorted((ROOT / "csrc/metal").glob("*.cc")),
    *(ROOT / "csrc/runtime" / name for name in ("environment.cc", "log.cc", "queue.cc")),
]


@functools.cache
def _objects(name: str, *inputs: Path) -> list[Path]:
    folders = [ROOT / "csrc/metal", ROOT / "csrc/runtime", ROOT / "tests", ROOT / "tests/metal", FAKE]
    headers = [path for folder in folders for path in sorted(folder.glob("*.h"))]
    folder = _built(name, [*inputs, *headers], lambda folder: _compile_all(list(inputs), folder))
    return sorted(folder.glob("*.o"))


def device_objects() -> list[Path]:
    """The Metal device, compiled."""
    return _objects("device", *DEVICE_SOURCES)


def program(test: Path, folder: Path, changed: dict[str, str] | None = None) -> Path:
    """A test program that drives the Metal device, linked with the fake; `changed` are other texts for its sources."""
    fake = library()
    other = changed or {}
    objects = [path for path in device_objects() if f"{path.stem}.cc" not in other]
    for name, text in other.items():
        (folder / name).write_text(text)
    objects += [*_compile_all([folder / name for name in other], folder), *_objects(test.stem, test)]
    binary = folder / test.stem
    libraries = [str(fake), f"-Wl,-rpath,{fake.parent}", "-lobjc", "-lpthread", "-ldl"]
    built = run(["g++", *map(str, objects), "-o", str(binary), *libraries])
    assert built.returncode == 0, built.stderr
    return binary
