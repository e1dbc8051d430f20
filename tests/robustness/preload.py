"""faults.cc as a library, and processes in which it makes the system refuse things."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from tests.programs import BUILD, ROOT, WARNINGS, compile_all, digest, make

COMPILERS = {".cc": ["g++", "-std=c++20", *WARNINGS, "-O1", "-fPIC", "-Wno-nonnull-compare"]}


@functools.cache
def library() -> Path:
    objects = compile_all([ROOT / "tests/robustness/faults.cc"], COMPILERS)
    link = ["g++", "-shared", *map(str, objects), "-ldl"]
    return make(link, BUILD / digest([], *link) / "libfaults.so")


def environment(folder: Path | None = None, fault: str = "") -> dict[str, str]:
    """Variables for a process in which `fault` (see faults.cc) is wrong with `folder`."""
    variables = {"LD_PRELOAD": ":".join(filter(None, [str(library()), os.environ.get("LD_PRELOAD", "")]))}
    if folder is not None:
        variables |= {"FAULT_FOLDER": str(folder), "FAULT": fault}
    return variables
