"""Every rule that the fake Metal checks: broken, and noticed (rules_test.cc)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.build_fake import ROOT

SOURCE = ROOT / "tests/metal/rules_test.cc"
FAULTS = re.findall(r'^    \{"(\w+)",', SOURCE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_fake.program(SOURCE, tmp_path_factory.mktemp("rules"))


def test_no_fault_is_left_out(program: Path) -> None:
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout.split() == FAULTS


@pytest.mark.parametrize("fault", FAULTS)
def test_is_noticed(program: Path, fault: str, tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    result = subprocess.run([program, fault], capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert result.returncode == 0, result.stderr
