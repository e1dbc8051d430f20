"""The strict software device: it runs what an Apple GPU would, and catches planted faults (strict_test.cc)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.programs import ROOT

SOURCE = ROOT / "tests/software/strict_test.cc"
CHECKS = programs.checks(SOURCE)


@pytest.fixture(scope="module")
def program() -> Path:
    return programs.program([*programs.SOFTWARE, SOURCE])


@pytest.mark.parametrize("check", CHECKS)
def test_check(program: Path, check: str) -> None:
    # Of whole vectors that are copied, clang does not check the alignment.
    environment = os.environ | {"PJRT_METAL_CXX": "g++"}
    result = subprocess.run([program, check], capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert result.returncode == 0, result.stderr


def run_jax(text: str, **variables: str) -> str:
    """What a program prints that runs on the strict device."""
    environment = os.environ | {"JAX_PLATFORMS": "metal", "PJRT_METAL_STRICT": "apple8"} | variables
    result = subprocess.run(
        [sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
        cwd=ROOT,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


DEVICE = """
import jax
try:
    print(jax.devices()[0].device_kind)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("family", ["software", "apple7", "apple8", "apple9"])
def test_families(family: str) -> None:
    assert run_jax(DEVICE, PJRT_METAL_STRICT=family).strip() == f"strict software Metal ({family})"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PJRT_METAL_STRICT", "apple6", "expected software, apple7, apple8 or apple9"),
        ("PJRT_METAL_STRICT_ORDERS", "0", "expected a number from 1 to 3"),
        ("PJRT_METAL_DEVICE", "gpu", "PJRT_METAL_STRICT is for the software device"),
    ],
)
def test_wrong_variables(name: str, value: str, message: str) -> None:
    assert message in run_jax(DEVICE, **{name: value})


# A compiler that leaves out every barrier of the reductions it emits.
FAULTY = """
import re
import jax, numpy as np
from mlir_lowering.program import Kernel

init = Kernel.__init__
def without_barriers(self, name, source, *rest):
    init(self, name, re.sub(r"threadgroup_barrier\\(.*?\\);", BARRIER, source), *rest)
Kernel.__init__ = without_barriers

x = np.ones((3, 5000), np.float32)
try:
    print(jax.jit(lambda x: x.sum(1))(x))
except Exception as error:
    print(type(error).__name__, error)
print(jax.jit(lambda x: x + 1)(np.float32(2)))
"""


def test_violation_reaches_jax() -> None:
    """As an exception that says what and where; the next program runs."""
    output = run_jax(FAULTY.replace("BARRIER", '""')).splitlines()
    assert output[-1] == "3.0"
    message = " ".join(output[:-1])
    assert re.match(r"\w*Error INTERNAL: kernel k_\w+: thread \(", message), message
    label = r"launched for stablehlo\.reduce at .*<lambda>.* schedule reduce: .*stablehlo\.add.*5000"
    assert re.search(label, message), message
    assert re.search(r"threadgroup memory .* (no thread has written|no barrier in between)", message), message
    output = run_jax(FAULTY.replace("BARRIER", "lambda found: found[0]")).splitlines()
    assert output == ["[5000. 5000. 5000.]", "3.0"]


def test_one_order_is_not_compared(program: Path) -> None:
    environment = os.environ | {"PJRT_METAL_STRICT_ORDERS": "1"}
    result = subprocess.run([program, "order"], capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 1
    assert "nothing was thrown" in result.stderr
