"""Whole models through csrc/metal."""

from __future__ import annotations

import pytest

from tests.on_fake.processes import run_tests


@pytest.mark.slow
def test_models() -> None:
    run_tests("tests/on_fake/model_cases.py")
