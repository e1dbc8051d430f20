"""Every function of the table is driven by a test that says so, and survives bad arguments."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest

from . import bare

NAMES = [leaf[3] for leaf in bare.SECTIONS["main"]["structs"]["PJRT_Api"]["fields"][3:]]
EXTENSION_NAMES = [
    name.removesuffix("_Args")
    for section in ("layouts", "ffi", "memory_descriptions")
    for name in bare.SECTIONS[section]["structs"]
    if name.endswith("_Args")
]
# What an argument struct of zeros asks these for can be done.
ZEROS_ARE_GOOD = {
    "PJRT_Plugin_Initialize",
    "PJRT_Plugin_Attributes",
    "PJRT_Event_Create",
    "PJRT_ExecuteContext_Create",
    "PJRT_Client_Create",
    "PJRT_TopologyDescription_Create",
}


def driven() -> set[str]:
    marked = set()
    for file in Path(__file__).parent.glob("test_*.py"):
        for call in re.findall(r"mark\.drives\((.*?)\)", file.read_text(), re.DOTALL):
            marked |= {f"PJRT_{name}" for name in re.findall(r'"(\w+)"', call)}
    return marked


def test_every_function_is_driven() -> None:
    assert set(NAMES) | set(EXTENSION_NAMES) == driven()


def test_every_slot_is_filled(api: bare.Api) -> None:
    assert api.table.struct_size == bare.struct_size("PJRT_Api")
    assert [api.table.pjrt_api_version.major_version, api.table.pjrt_api_version.minor_version] == (bare.ABI["version"])
    assert [name for name in api.names if not getattr(api.table, name)] == []


def test_library_exports_one_symbol() -> None:
    import subprocess

    listed = subprocess.run(
        ["nm", "-D", "--defined-only", bare.library_path()],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert [name for name in names if not name.startswith("_")] == ["GetPjrtApi"]


@pytest.mark.parametrize("name", NAMES)
def test_null_args(api: bare.Api, name: str) -> None:
    error = (
        api.take_error(api.raw(getattr(api.table, name), None)) if (name not in bare.ABI["void_functions"]) else None
    )
    if name in bare.ABI["void_functions"]:
        api.raw(getattr(api.table, name), None)
    else:
        assert error is not None and error.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize("name", NAMES)
def test_struct_size_too_small(api: bare.Api, name: str) -> None:
    """A struct_size of 16 has room for the header only: nothing after it may be read or written."""
    args = bare.STRUCTS[name + "_Args"]()
    ctypes.memset(bare.address(args), 0xA5, ctypes.sizeof(args))
    args.struct_size = 8 if name.startswith("PJRT_Plugin_Initialize") else 16
    before = bytes(args)
    if name in bare.ABI["void_functions"]:
        api.raw(getattr(api.table, name), bare.address(args))
    else:
        with pytest.raises(bare.PjrtError, match="struct_size") as caught:
            api.invoke(name, args)
        assert caught.value.code == "INVALID_ARGUMENT"
        assert name + "_Args" in caught.value.message
    assert bytes(args) == before


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ZEROS_ARE_GOOD])
def test_null_handles(api: bare.Api, name: str) -> None:
    """Destroying null does nothing, as free() does; anything else with null handles is refused."""
    if name.endswith("_Destroy") or name in bare.ABI["void_functions"]:
        api.call(name)
    else:
        with pytest.raises(bare.PjrtError) as caught:
            api.call(name)
        assert caught.value.code == "INVALID_ARGUMENT"
