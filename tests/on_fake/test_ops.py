"""The op table through csrc/metal, as on a Mac."""

from __future__ import annotations

import pytest

from tests.on_fake.processes import run_tests


@pytest.mark.slow
def test_op_suite() -> None:
    run_tests("tests/ops/test_ops.py")


def test_contractions_by_mpsgraph() -> None:
    run_tests("tests/ops/test_ops.py", "-k", "dot_general or convolution", library="mpsgraph")
