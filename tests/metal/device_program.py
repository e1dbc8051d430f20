"""C++ programs that drive csrc/metal alone against the fake Metal, one check a process."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.metal import build_fake
from tests.metal.build_fake import ROOT, WARNINGS, run

# All of the runtime that csrc/metal and these programs use.
RUNTIME = ("allocator", "cache_folder", "environment", "files", "hash", "log")


def device_sources() -> list[Path]:
    return [*sorted((ROOT / "csrc/metal").glob("*.cc")), *(ROOT / f"csrc/runtime/{name}.cc" for name in RUNTIME)]


def build(source: Path, folder: Path) -> Path:
    """The test program with the device, in `folder`, linked with the fake."""
    fake = build_fake.library()
    sources = [*device_sources(), source]
    objects = [str(folder / f"{source.stem}.o") for source in sources]

    def compile(source: Path, output: str) -> None:
        built = run(["g++", "-std=c++20", *WARNINGS, "-c", str(source), "-o", output])
        assert built.returncode == 0, built.stderr

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile, sources, objects))
    binary = folder / source.stem
    libraries = [str(fake), f"-Wl,-rpath,{fake.parent}", "-lobjc", "-lpthread", "-ldl"]
    linked = run(["g++", *objects, "-o", str(binary), *libraries])
    assert linked.returncode == 0, linked.stderr
    return binary
