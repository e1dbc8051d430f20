"""Targets from the runtime's text."""

from __future__ import annotations

import pytest

from mlir_lowering.errors import CompileError
from mlir_lowering.targets import parse_target


def test_devices_describe_themselves() -> None:
    software = parse_target("software:threads=2,vector_bytes=64")
    assert (software.is_software, software.threads, software.vector_bytes) == (True, 2, 64)
    apple = parse_target("apple8:simd_width=32,threads=1024,threadgroup_bytes=32768,language=30")
    assert (apple.is_software, apple.simd_width, apple.language) == (False, 32, 30)


@pytest.mark.parametrize("text", ["cuda", "apple", "software:foo=3", "software:threads=two", "software:threads"])
def test_what_nobody_knows_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match="target"):
        parse_target(text)
