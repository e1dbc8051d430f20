"""C++ programs of the tests: each source is compiled once for each content of what it is made from, in build/."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build/test_programs"
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-g"]
# By the end of a source's name.
COMPILERS = {".cc": ["g++", "-std=c++20", *WARNINGS, "-O1"]}
# csrc/software and what it uses of csrc/runtime.
SOFTWARE = [
    *sorted((ROOT / "csrc/software").glob("*.cc")),
    *(ROOT / f"csrc/runtime/{name}.cc" for name in ("cache_folder", "environment", "files", "hash", "log", "process")),
]


def checks(source: Path) -> list[str]:
    """The names in the program's table kChecks or kFaults: what a process of it can be asked to run."""
    _, table = re.split(r"k(?:Checks|Faults)\[\] = \{", source.read_text())
    return re.findall(r'^    \{"(\w+)",', table.partition("\n};")[0], re.MULTILINE)


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def digest(paths: Iterable[Path], *more: str) -> str:
    parts = [path.read_bytes() for path in paths] + [text.encode() for text in more]
    return hashlib.blake2b(b"\0".join(parts), digest_size=12).hexdigest()


def make(command: list[str], output: Path) -> Path:
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
def _embedded() -> Path:
    """The folder of stand_in_headers.inc, which csrc/software includes."""
    stand_in = sorted((ROOT / "csrc/software/include").iterdir())
    embedded = BUILD / f"include-{digest(stand_in)}" / "stand_in_headers.inc"
    if not embedded.exists():
        embedded.parent.mkdir(parents=True, exist_ok=True)
        made = embedded.with_name(f"{os.getpid()}.inc")
        subprocess.run(["sh", ROOT / "csrc/software/embed_headers.sh", made, *stand_in], check=True)
        made.rename(embedded)
    return embedded.parent


@functools.cache
def _included(path: Path) -> frozenset[Path]:
    """The file and all that it includes of this repository."""
    names = re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)
    places = {place for name in names for place in (ROOT / name, path.parent / name) if place.exists()}
    return frozenset({path}).union(*map(_included, places))


def compile_all(
    sources: Iterable[Path], compilers: Mapping[str, list[str]] = COMPILERS, build: Path = BUILD
) -> list[Path]:
    include = _embedded()

    def compile(source: Path) -> Path:
        command = [*compilers[source.suffix], f"-I{ROOT}", f"-I{include}", "-c", str(source)]
        return make(command, build / f"{source.stem}-{digest(sorted(_included(source)), *command)}.o")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile, sources))


def program(
    sources: Sequence[Path], *libraries: str, compilers: Mapping[str, list[str]] = COMPILERS, build: Path = BUILD
) -> Path:
    """The program of these sources, named after the last one."""
    link = ["g++", *map(str, compile_all(sources, compilers, build)), *libraries, "-lpthread", "-ldl"]
    return make(link, build / digest([], *link) / sources[-1].stem)
