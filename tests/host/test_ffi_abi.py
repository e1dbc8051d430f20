"""csrc/runtime/xla_ffi.h against the headers of the jaxlib that is installed."""

from __future__ import annotations

import subprocess

from tests.host import library


def _compiles(*flags: str) -> bool:
    command = [*library.compiler(), "-fsyntax-only", *flags, str(library.HERE / "abi_check.cc")]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0 or "static assertion failed" in built.stderr, built.stderr
    return built.returncode == 0


def test_sizes_and_offsets_are_jaxlibs() -> None:
    assert _compiles()


def test_a_wrong_offset_is_noticed() -> None:
    assert not _compiles("-DPLANTED")
