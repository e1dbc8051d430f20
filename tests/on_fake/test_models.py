"""Whole models through csrc/metal."""

from __future__ import annotations

from tests.on_fake.processes import run_tests


def test_models() -> None:
    run_tests("tests/on_fake/model_cases.py")
