"""csrc/metal on Linux: against a fake Metal on GNU's Objective-C runtime, and its table of Apple's names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.build_fake import METAL, ROOT, WARNINGS, run

PROGRAMS = ("metal_device_test", "mpsgraph_test")
CHECKS = [
    (program, check)
    for program in PROGRAMS
    for check in re.findall(r'^    \{"(\w+)", .*\},$', (ROOT / f"tests/metal/{program}.cc").read_text(), re.MULTILINE)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test programs, linked with the fake."""
    fake = build_fake.library()
    folder = tmp_path_factory.mktemp("metal")
    flags = ["g++", "-std=c++20", *WARNINGS]
    ours = [str(folder / f"{source.stem}.o") for source in METAL]
    for source, output in zip(METAL, ours, strict=True):
        built = run([*flags, "-c", str(source), "-o", output])
        assert built.returncode == 0, built.stderr
    libraries = [str(fake), f"-Wl,-rpath,{fake.parent}", "-lobjc", "-lpthread", "-ldl"]
    for program in PROGRAMS:
        built = run([*flags, str(ROOT / f"tests/metal/{program}.cc"), *ours, "-o", str(folder / program), *libraries])
        assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize(("program", "check"), CHECKS)
def test_against_fake_metal(folder: Path, program: str, check: str) -> None:
    result = run([str(folder / program), check])
    assert result.returncode == 0, result.stderr


def test_facts_are_one_wellformed_table(folder: Path) -> None:
    facts = json.loads(run([str(folder / "metal_device_test"), "facts"]).stdout)
    selectors = [(receiver, selector) for receiver, selector, _, _ in facts["messages"]]
    assert len(selectors) == len(set(selectors))
    one_type = re.compile(r"r?\^?v|r\*|\^?@\??|[BqQId:]|\{\w+=[qQ]+\}")
    for _, selector, types, macos in facts["messages"]:
        parts = one_type.findall(types)
        assert "".join(parts) == types
        assert len(parts) == 3 + selector.count(":"), selector
        assert re.fullmatch(r"\d+\.\d+", macos)


def test_without_metal_there_is_no_device(tmp_path: Path) -> None:
    """In a process with no Objective-C runtime, discovery says what is missing and returns nothing."""
    source = tmp_path / "none.cc"
    source.write_text(
        '#include "csrc/metal/metal_device.h"\n#include <cstdio>\n'
        "int main() {\n  std::vector<std::string> refused;\n"
        "  const size_t found = pjrt_metal::metal::Discover(&refused).size();\n"
        '  std::printf("%zu %s", found, refused.at(0).c_str());\n}\n'
    )
    sources = [*METAL, source]
    binary = tmp_path / "none"
    built = run(["g++", "-std=c++20", *WARNINGS, *map(str, sources), "-o", str(binary), "-ldl"])
    assert built.returncode == 0, built.stderr
    assert run([str(binary)]).stdout == "0 no Metal: this process lacks MTLCopyAllDevices"
