"""csrc/metal on Linux, against a fake Metal on GNU's Objective-C runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.programs import ROOT, checks, program, run

SOURCES = {name: ROOT / f"tests/metal/{name}.cc" for name in ("metal_device_test", "mpsgraph_test")}


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    """The test programs, linked with the fake."""
    return {name: build_fake.device_program(source) for name, source in SOURCES.items()}


@pytest.mark.parametrize(("name", "check"), [(name, check) for name in SOURCES for check in checks(SOURCES[name])])
def test_against_fake_metal(programs: dict[str, Path], name: str, check: str) -> None:
    result = run([str(programs[name]), check])
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
    binary = program([*build_fake.DEVICE, source])
    assert run([str(binary)]).stdout == "0 no Metal: this process lacks MTLCopyAllDevices"


def test_core_graphics_is_asked_for(programs: dict[str, Path]) -> None:
    """Apple gives no default device without it; where it is not, as here, that is said and nothing else."""
    result = run(["env", "PJRT_METAL_LOG=1", str(programs["metal_device_test"]), "discovery"])
    assert result.returncode == 0, result.stderr
    assert "metal: no CoreGraphics" in result.stderr and "CoreGraphics.framework/CoreGraphics" in result.stderr
    assert "a default device, 1 in the list" in result.stderr
