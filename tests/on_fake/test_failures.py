"""Injected failures through JAX; and that a run on the fake fails when it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.on_fake.processes import run, run_tests


def test_failures() -> None:
    run_tests("tests/on_fake/failure_cases.py")


@pytest.mark.parametrize(("family", "macos", "language"), [("7", "13", "30"), ("8", "14", "31"), ("9", "15", "31")])
def test_families_and_systems(family: str, macos: str, language: str) -> None:
    text = "import jax; print(jax.devices()[0].device_kind); print(jax.devices()[0].target)"
    text += "; print(jax.jit(lambda x: x + 1)(2.0))"
    result = run(["-c", text], FAKE_METAL_FAMILY=family, FAKE_METAL_MACOS=macos)
    assert result.returncode == 0, result.stderr
    kind, target, value = result.stdout.splitlines()
    assert (kind, value) == ("Apple Fake", "3.0")
    assert target.startswith(f"apple{family}:") and target.endswith(f"language={language}")


LEAK = """
import ctypes
import jax, numpy as np
def test_leak():
    ctypes.CDLL(None).MTLCopyAllDevices.restype = ctypes.c_void_p
    assert ctypes.CDLL(None).MTLCopyAllDevices()
    assert jax.jit(lambda x: x + 1)(np.float32(1)) == 2
"""


def test_a_leak_fails_the_run(tmp_path: Path) -> None:
    case = tmp_path / "leak_case.py"
    case.write_text(LEAK)
    with pytest.raises(AssertionError, match="live: NSArray 1, MTLDevice 1"):
        run_tests(str(case))
