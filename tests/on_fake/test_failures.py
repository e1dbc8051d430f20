"""Injected failures through JAX; and that a run on the fake fails when it should."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.on_fake.processes import run, run_tests


def test_failures() -> None:
    run_tests("tests/on_fake/failure_cases.py")


@pytest.mark.parametrize(("family", "macos", "language"), [("7", "13", "30"), ("8", "14", "31"), ("9", "15", "32")])
def test_families_and_systems(family: str, macos: str, language: str) -> None:
    text = "import jax; print(jax.devices()[0].device_kind); print(jax.devices()[0].target)"
    text += "; print(jax.jit(lambda x: x + 1)(2.0))"
    result = run(["-c", text], FAKE_METAL_FAMILY=family, FAKE_METAL_MACOS=macos)
    assert result.returncode == 0, result.stderr
    kind, target, value = result.stdout.splitlines()
    assert (kind, value) == ("Apple Fake", "3.0")
    assert target.startswith(f"apple{family}:") and target.endswith(f"language={language}")


def test_why_no_gpu_can_be_used() -> None:
    result = run(["-c", "import jax; jax.devices()"], FAKE_METAL_FAMILY="6", JAX_PLATFORMS="metal")
    assert result.returncode != 0
    assert "Metal can use (Apple Fake: no Apple GPU of family 7 or later): unset it" in result.stderr


# Tests that pass, but for what the run must notice.
LEAK = """
    metal = ctypes.CDLL(None).MTLCopyAllDevices
    metal.restype = ctypes.c_void_p
    assert metal()
"""
# [NSProcessInfo processInfo], with no pool on this thread.
BREACH = """
    objc = ctypes.CDLL(None)
    objc.objc_getClass.restype = objc.sel_registerName.restype = objc.objc_msg_lookup.restype = ctypes.c_void_p
    sent = [objc.objc_getClass(b"NSProcessInfo"), objc.sel_registerName(b"processInfo")]
    sent = [ctypes.c_void_p(address) for address in sent]
    ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(objc.objc_msg_lookup(*sent))(*sent)
"""
PROGRAM = """
import ctypes
import jax, numpy as np
def test_planted():
    assert jax.jit(lambda x: x + 1)(np.float32(1)) == 2
"""


@pytest.mark.parametrize(
    ("fault", "text"),
    [("", None), (LEAK, "live: MTLDevice 1, NSArray 1"), (BREACH, "NSProcessInfo autoreleased without a pool")],
)
def test_a_run_fails_when_it_should(tmp_path: Path, fault: str, text: str | None) -> None:
    case = tmp_path / "planted_case.py"
    case.write_text(PROGRAM + fault)
    if text is None:
        run_tests(str(case))
        return
    with pytest.raises(AssertionError, match=text):
        run_tests(str(case))


def test_a_run_on_another_device_fails(tmp_path: Path) -> None:
    result = run(["-m", "pytest", "-p", "tests.on_fake.session", str(tmp_path)], PJRT_METAL_DEVICE="software")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR and "not on the fake Metal" in result.stderr, result.stderr
