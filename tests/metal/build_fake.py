"""Builds the fake Metal, libfake_metal.so, and the programs that drive csrc/metal against it."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest

from tests.programs import BUILD, ROOT, SOFTWARE, WARNINGS, compile_all, digest, make, program, run

FAKE = ROOT / "tests/metal/fake"
# The library's own symbols do not meet those of the process it is loaded into.
COMPILERS = {
    ".m": ["gcc", "-std=gnu11", *WARNINGS, "-O1", "-fPIC"],
    ".cc": ["g++", "-std=c++20", *WARNINGS, "-O2", "-fPIC", "-fvisibility=hidden", "-Wno-restrict"],
}
# csrc/metal and what it uses of csrc/runtime.
DEVICE = [
    *sorted((ROOT / "csrc/metal").glob("*.cc")),
    *(ROOT / f"csrc/runtime/{name}.cc" for name in ("allocator", "cache_folder", "dtype", "environment", "files")),
    *(ROOT / f"csrc/runtime/{name}.cc" for name in ("hash", "library_op", "log", "queue")),
]


def require_objective_c() -> None:
    """Skips where no compiler reads Objective-C."""
    if not shutil.which("gcc") or run(["gcc", "-print-prog-name=cc1obj"]).stdout.strip() == "cc1obj":
        pytest.skip("needs gcc for Objective-C: apt-get install gobjc")


@functools.cache
def library() -> Path:
    """The fake as a shared library, for a process that is linked with it or gets it by LD_PRELOAD."""
    require_objective_c()
    sources = [path for path in sorted(FAKE.iterdir()) if path.suffix in COMPILERS]
    objects = compile_all([*sources, *SOFTWARE], COMPILERS)
    script = FAKE / "exports.txt"
    link = ["g++", "-shared", *map(str, objects), f"-Wl,--version-script={script}", "-Wl,--no-undefined"]
    link += ["-lobjc", "-lpthread", "-ldl"]
    return make(link, BUILD / digest([script], *link) / "libfake_metal.so")


def device_program(test: Path, changed: Path | None = None) -> Path:
    """A test program that drives the Metal device, linked with the fake; `changed` takes a source's place."""
    fake = library()
    sources = [path for path in DEVICE if changed is None or path.name != changed.name]
    if changed is not None:
        sources.append(changed)
    return program([*sources, test], str(fake), f"-Wl,-rpath,{fake.parent}", "-lobjc")
