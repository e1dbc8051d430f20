"""The committed C header is what the generator makes of the facts, and ctypes agrees with both."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path

import pytest

from . import bare

FOLDER = Path(__file__).parents[2] / "csrc/pjrt"
STRUCTS = [(name, s) for section in bare.SECTIONS.values() for name, s in section["structs"].items()]


def test_header_is_generated() -> None:
    spec = importlib.util.spec_from_file_location("generate_header", FOLDER / "generate_header.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    committed = (FOLDER / "pjrt_c_api.h").read_text()
    assert module.generate(bare.ABI) == committed, "run python csrc/pjrt/generate_header.py"


def test_table_has_138_functions() -> None:
    table = dict(STRUCTS)["PJRT_Api"]["fields"]
    assert sum(entry[2] == "function" for entry in table) == 138


@pytest.mark.parametrize(("name", "layout"), STRUCTS, ids=[name for name, _ in STRUCTS])
def test_layout(name: str, layout: dict) -> None:  # type: ignore[type-arg]
    struct = bare.STRUCTS[name]
    assert ctypes.sizeof(struct) == layout["sizeof"]
    for offset, size, _, label in bare._leaves(layout["fields"]):
        field = getattr(struct, label)
        assert (field.offset, field.size) == (offset, size), label
