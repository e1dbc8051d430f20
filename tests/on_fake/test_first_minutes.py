"""The doctor's first tests (pjrt_metal/doctor_first.py) on the fake GPU: they pass, and say what fails."""

from __future__ import annotations

import re

import pytest

from tests.on_fake.processes import run

PROGRAM = """
import sys
from pjrt_metal import doctor_first
assert doctor_first.applies()
for check in doctor_first.checks():
    if any(name in check.name for name in sys.argv[1:]):
        try:
            print("passed", check.name, "|", check.run())
        except Exception as error:
            print("FAILED", check.name, "|", str(error).replace(chr(10), " "))
"""


def first(*names: str, **variables: str) -> list[str]:
    result = run(["-c", PROGRAM, *names], FAKE_METAL_INHERIT="1", PJRT_METAL_STRICT_ORDERS="1", **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_each_door_is_told_of() -> None:
    (line,) = first("doors")
    assert line.startswith("passed") and "Apple Fake" in line
    assert "a default device, 1 in the list" in line and "metal: no CoreGraphics" in line
    (line,) = first("doors", FAKE_METAL_FAIL="headless")
    assert line.startswith("passed") and "no default device, 1 in the list" in line
    (line,) = first("doors", FAKE_METAL_FAIL="closed")
    assert line.startswith("FAILED") and "MTLCreateSystemDefaultDevice gave none" in line


def test_an_assertion_is_no_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = str(tmp_path_factory.mktemp("cache"))
    tried, forced = first("MPSGraph", FAKE_METAL_FAIL="assert", PJRT_METAL_CACHE_DIR=folder)
    assert tried.startswith("passed") and "library: condemned" in tried and "exit status 134" in tried
    assert re.match("FAILED MPSGraph .*ended with -6", forced)


@pytest.mark.slow
def test_all_pass() -> None:
    lines = first("")
    assert len(lines) == 8 and [line for line in lines if not line.startswith("passed")] == []
