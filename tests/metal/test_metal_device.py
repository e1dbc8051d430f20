"""csrc/metal on Linux: against a fake Metal on GNU's Objective-C runtime, and its table of Apple's names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.build_fake import ROOT, WARNINGS, run

CHECKS = re.findall(
    r'^    \{"(\w+)", \w+\},$',
    (ROOT / "tests/metal/metal_device_test.cc").read_text(),
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test program, linked with the fake."""
    return build_fake.program(ROOT / "tests/metal/metal_device_test.cc", tmp_path_factory.mktemp("metal"))


@pytest.mark.parametrize("check", CHECKS)
def test_against_fake_metal(program: Path, check: str) -> None:
    result = run([str(program), check])
    assert result.returncode == 0, result.stderr


def test_facts_are_one_wellformed_table(program: Path) -> None:
    facts = json.loads(run([str(program), "facts"]).stdout)
    selectors = [(receiver, selector) for receiver, selector, _, _ in facts["messages"]]
    assert len(selectors) == len(set(selectors))
    one_type = re.compile(r"r?\^?v|r\*|\^?@\??|[BqQ:]|\{\w+=[qQ]+\}")
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
    sources = [*build_fake.device_sources(), source]
    binary = tmp_path / "none"
    built = run(["g++", "-std=c++20", *WARNINGS, *map(str, sources), "-o", str(binary), "-ldl"])
    assert built.returncode == 0, built.stderr
    assert run([str(binary)]).stdout == "0 no Metal: this process lacks MTLCopyAllDevices"
