"""csrc/metal on Linux, against a fake Metal on GNU's Objective-C runtime."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.build_fake import ROOT, WARNINGS, run

PROGRAMS = ("metal_device_test", "mpsgraph_test")
CHECKS = [
    (program, check)
    for program in PROGRAMS
    for check in re.findall(r'^    \{"(\w+)", .*\},$', (ROOT / f"tests/metal/{program}.cc").read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """The test programs, linked with the fake."""
    return {name: build_fake.program(ROOT / f"tests/metal/{name}.cc") for name in PROGRAMS}


@pytest.mark.parametrize(("program", "check"), CHECKS)
def test_against_fake_metal(programs: dict[str, Path], program: str, check: str) -> None:
    result = run([str(programs[program]), check])
    assert result.returncode == 0, result.stderr


def test_without_metal_there_is_no_device(tmp_path: Path) -> None:
    """In a process with no Objective-C runtime, discovery says what is missing and returns nothing."""
    source = tmp_path / "none.cc"
    source.write_text(
        '#include "csrc/metal/metal_device.h"\n#include <cstdio>\n'
        "int main() {\n  std::vector<std::string> refused;\n"
        "  const size_t found = pjrt_metal::metal::Discover(&refused).size();\n"
        '  std::printf("%zu %s", found, refused.at(0).c_str());\n}\n'
    )
    inputs = [*build_fake.device_objects(), source]
    binary = tmp_path / "none"
    built = run(["g++", "-std=c++20", *WARNINGS, *map(str, inputs), "-o", str(binary), "-ldl", "-lpthread"])
    assert built.returncode == 0, built.stderr
    assert run([str(binary)]).stdout == "0 no Metal: this process lacks MTLCopyAllDevices"
