"""Host steps between the GPU's commands, through csrc/metal: double precision, LAPACK, FFI handlers and callbacks."""

from __future__ import annotations

import pytest

from tests.on_fake.processes import run_tests

# Tests that start processes of their own, which do not have the fake.
_PROCESSES = ("first_called", "at_exit", "compilation_cache")


def test_callbacks_and_handlers() -> None:
    alone = " and ".join(f"not {name}" for name in _PROCESSES)
    run_tests("tests/host/test_callbacks.py", "tests/host/test_ffi.py", "-k", alone)


@pytest.mark.slow
def test_linear_algebra() -> None:
    run_tests("tests/host/test_linear_algebra.py", "-k", "4x4 or 0x3x3")
