"""Builds the fake Metal, libfake_metal.so: each source once for each content of what it is made from, in build/."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests/metal/fake"
BUILD = ROOT / "build/fake_metal"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-g", f"-I{ROOT}"]
# By the end of a source's name. The library's own symbols do not meet those of the process it is loaded into.
COMPILERS = {
    ".m": ["gcc", "-std=gnu11", *WARNINGS, "-O1", "-fPIC"],
    ".cc": ["g++", "-std=c++20", *WARNINGS, "-O2", "-fPIC", "-fvisibility=hidden", "-Wno-restrict"],
}
# What runs kernels: all of the software device that the strict machine needs.
SOFTWARE = [
    *(f"csrc/software/{name}.cc" for name in ("compiler", "disk_cache", "host_cpu", "kernel_cache")),
    *(f"csrc/software/{name}.cc" for name in ("kernel_unit", "process", "stand_in_headers", "strict_fiber")),
    *(f"csrc/software/{name}.cc" for name in ("strict_machine", "strict_memory", "strict_run", "strict_unit")),
    *(f"csrc/runtime/{name}.cc" for name in ("cache_folder", "environment", "files", "hash", "log")),
]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def require_objective_c() -> None:
    """Skips where no compiler reads Objective-C."""
    if not shutil.which("gcc") or run(["gcc", "-print-prog-name=cc1obj"]).stdout.strip() == "cc1obj":
        pytest.skip("needs gcc for Objective-C: apt-get install gobjc")


def _digest(paths: Iterable[Path], *more: str) -> str:
    parts = [path.read_bytes() for path in paths] + [text.encode() for text in more]
    return hashlib.blake2b(b"\0".join(parts), digest_size=12).hexdigest()


def _make(command: list[str], output: Path) -> Path:
    """Runs the command with an output beside the wanted one, then renames it: another process may be at the same."""
    if not output.exists():
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
            made = Path(scratch) / output.name
            built = run([*command, "-o", str(made)])
            assert built.returncode == 0, built.stderr
            made.rename(output)
    return output


@functools.cache
def library() -> Path:
    """The fake as a shared library, for a process that is linked with it or gets it by LD_PRELOAD."""
    require_objective_c()
    stand_in = sorted((ROOT / "csrc/software/include").iterdir())
    embedded = BUILD / f"include-{_digest(stand_in)}" / "stand_in_headers.inc"
    if not embedded.exists():
        embedded.parent.mkdir(parents=True, exist_ok=True)
        made = embedded.with_name(f"{os.getpid()}.inc")
        subprocess.run(["sh", ROOT / "csrc/software/embed_headers.sh", made, *stand_in], check=True)
        made.rename(embedded)
    folders = [FAKE, *(ROOT / "csrc" / name for name in ("runtime", "software", "software/include"))]
    headers = sorted(path for folder in folders for path in folder.glob("*.h"))
    sources = [*(path for path in sorted(FAKE.iterdir()) if path.suffix in COMPILERS), *(ROOT / s for s in SOFTWARE)]

    def compile(source: Path) -> Path:
        command = [*COMPILERS[source.suffix], f"-I{embedded.parent}", "-c", str(source)]
        return _make(command, BUILD / f"{source.stem}-{_digest([source, *headers, *stand_in], *command)}.o")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compile, sources))
    script = FAKE / "exports.txt"
    link = ["g++", "-shared", *map(str, objects), f"-Wl,--version-script={script}", "-Wl,--no-undefined"]
    link += ["-lobjc", "-lpthread", "-ldl"]
    return _make(link, BUILD / _digest([script], *link) / "libfake_metal.so")


# csrc/metal and what it uses of csrc/runtime.
DEVICE = [
    *sorted((ROOT / "csrc/metal").glob("*.cc")),
    *(
        ROOT / "csrc/runtime" / name
        for name in (
            "allocator.cc",
            "cache_folder.cc",
            "dtype.cc",
            "environment.cc",
            "files.cc",
            "hash.cc",
            "library_op.cc",
            "log.cc",
            "queue.cc",
        )
    ),
]


def _compile_all(sources: Iterable[Path]) -> list[Path]:
    folders = [FAKE, FAKE.parent, ROOT / "tests", *(ROOT / "csrc" / name for name in ("runtime", "metal"))]
    headers = sorted(path for folder in folders for path in folder.glob("*.h"))

    def compile(source: Path) -> Path:
        command = ["g++", "-std=c++20", *WARNINGS, "-c", str(source)]
        return _make(command, BUILD / f"{source.stem}-{_digest([source, *headers], *command)}.o")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile, sources))


def device_objects() -> list[Path]:
    """The Metal device, compiled."""
    return _compile_all(DEVICE)


def program(test: Path, changed: Path | None = None) -> Path:
    """A test program that drives the Metal device, linked with the fake; `changed` takes a source's place."""
    fake = library()
    sources = [path for path in DEVICE if changed is None or path.name != changed.name]
    objects = _compile_all([*sources, *filter(None, [changed]), test])
    link = ["g++", *map(str, objects), str(fake), f"-Wl,-rpath,{fake.parent}", "-lobjc", "-lpthread", "-ldl"]
    return _make(link, BUILD / _digest([], *link) / test.stem)
