"""Every rule that the fake Metal checks: broken, and noticed (rules_test.cc)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.programs import ROOT, checks

SOURCE = ROOT / "tests/metal/rules_test.cc"
FAULTS = checks(SOURCE)


@pytest.fixture(scope="module")
def program() -> Path:
    return build_fake.device_program(SOURCE)


def test_no_fault_is_left_out(program: Path) -> None:
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout.split() == FAULTS


@pytest.mark.parametrize("fault", FAULTS)
def test_is_noticed(program: Path, fault: str, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    result = subprocess.run([program, fault], capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert result.returncode == 0, result.stderr
