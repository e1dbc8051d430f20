"""What the Metal device keeps and gives back, against the fake Metal: archives, residency, captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.programs import ROOT, checks, run

SOURCE = ROOT / "tests/metal/device_resources_test.cc"


@pytest.fixture(scope="module")
def program() -> Path:
    return build_fake.device_program(SOURCE)


@pytest.mark.parametrize("check", checks(SOURCE))
def test_check(program: Path, check: str, tmp_path: Path) -> None:
    result = run([str(program), check, str(tmp_path)])
    assert result.returncode == 0, result.stderr
