"""The op table through csrc/metal, as on a Mac."""

from __future__ import annotations

from tests.on_fake.processes import run_tests


def test_op_suite() -> None:
    run_tests("tests/ops/test_ops.py")
