"""Builds the plugin library and the programs that attack it under sanitizers, in build/sanitize-address and -thread.

python -m tests.robustness.sanitized address        prints where the library is
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.programs import ROOT, WARNINGS, compile_all, digest, make, program

FLAGS = {
    # The C API's enums are numbers that a client may set to anything; without -fstrict-enums g++ takes them as such.
    "address": ["-fsanitize=address,undefined", "-fno-sanitize=enum", "-fno-sanitize-recover=undefined"],
    "thread": ["-fsanitize=thread"],
}
# What a sanitizer finds ends the process with this status.
FOUND = 99
OPTIONS = {
    # Allocations that cannot be are refused, as the system does; an allocation of terabytes is no fault.
    "ASAN_OPTIONS": f"exitcode={FOUND}:allocator_may_return_null=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode={FOUND}:second_deadlock_stack=1",
}
PRODUCT = [
    path for part in ("pjrt", "runtime", "software", "metal") for path in sorted((ROOT / "csrc" / part).glob("*.cc"))
]


def build(kind: str) -> Path:
    return ROOT / f"build/sanitize-{kind}"


def compilers(kind: str) -> dict[str, list[str]]:
    # With sanitizers g++ 12 warns of what may be uninitialized or overlap, and is wrong.
    lenient = ["-Wno-maybe-uninitialized", "-Wno-restrict", "-Wno-stringop-overflow"]
    flags = [*WARNINGS, *lenient, "-O1", "-fno-omit-frame-pointer", "-fPIC", *FLAGS[kind]]
    return {".cc": ["g++", "-std=c++20", *flags]}


def library(kind: str) -> Path:
    """The plugin library, for processes that preload the sanitizer."""
    objects = compile_all(PRODUCT, compilers(kind), build(kind))
    script = ROOT / "csrc/exports.linux"
    link = ["g++", "-shared", *FLAGS[kind], *map(str, objects), f"-Wl,--version-script={script}", "-lpthread", "-ldl"]
    return make(link, build(kind) / digest([script], *link) / "libpjrt_metal.so")


def attacker(kind: str, *tests: Path) -> Path:
    """A program of the product without csrc/metal; the tests' sources say which devices there are."""
    product = [path for path in PRODUCT if path.parent.name != "metal" and path.name != "devices.cc"]
    return program([*product, *tests], *FLAGS[kind], compilers=compilers(kind), build=build(kind))


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, **OPTIONS, **changes}


def preload(kind: str) -> str:
    """What LD_PRELOAD must name for a process that was not built with the sanitizer."""
    names = {"address": ["libasan.so", "libubsan.so"], "thread": ["libtsan.so"]}[kind]
    found = [subprocess.check_output(["g++", f"-print-file-name={name}"], text=True).strip() for name in names]
    return ":".join(found)


if __name__ == "__main__":
    print(library(sys.argv[1]))
