"""A bare PJRT client: ctypes over csrc/pjrt/pjrt_abi.json, without JAX or the tested package.

api = Api(library_path())
args = api.call("PJRT_Client_PlatformName", client=client)
text(args.platform_name, args.platform_name_size)
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ABI = json.loads((Path(__file__).parents[2] / "csrc/pjrt/pjrt_abi.json").read_text())
SECTIONS = ABI["sections"]
ENUMS: dict[str, dict[str, int]] = {
    name: values for section in SECTIONS.values() for name, values in section["enums"].items()
}
CODES = {v: k.removeprefix("PJRT_Error_Code_") for k, v in ENUMS["PJRT_Error_Code"].items()}
SCALARS = {
    "size_t": ctypes.c_size_t,
    "uintptr_t": ctypes.c_size_t,
    "intptr_t": ctypes.c_ssize_t,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "int32_t": ctypes.c_int32,
    "int": ctypes.c_int,
    "bool": ctypes.c_bool,
    "float": ctypes.c_float,
}
STRUCTS: dict[str, type[ctypes.Structure]] = {}
F32, S32, PRED = 11, 4, 1


class PjrtError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def _ctype(kind: str) -> Any:
    if kind in ENUMS:
        return ctypes.c_int
    return SCALARS.get(kind) or STRUCTS.get(kind) or ctypes.c_void_p


def _leaves(fields: list[Any]) -> Iterator[list[Any]]:
    for entry in fields:
        yield from entry["union"] if isinstance(entry, dict) else [entry]


def _make_structs() -> None:
    for section in SECTIONS.values():
        for name, layout in section["structs"].items():
            members: list[tuple[str, Any]] = []
            anonymous: list[str] = []
            for entry in layout["fields"]:
                if isinstance(entry, dict):
                    label = f"_union{len(anonymous)}"
                    fields = [(leaf[3], _ctype(leaf[2])) for leaf in entry["union"]]
                    members.append((label, type(label, (ctypes.Union,), {"_fields_": fields})))
                    anonymous.append(label)
                else:
                    members.append((entry[3], _ctype(entry[2])))
            namespace = {"_anonymous_": anonymous, "_fields_": members}
            STRUCTS[name] = type(name, (ctypes.Structure,), namespace)


_make_structs()


def struct_size(name: str) -> int:
    """What a client of this API version puts into `struct_size`."""
    for section in SECTIONS.values():
        if name in section["structs"]:
            return max(int(o + s) for o, s, _, _ in _leaves(section["structs"][name]["fields"][-1:]))
    raise KeyError(name)


def new(name: str, /, **fields: Any) -> Any:
    """A struct with its `struct_size` and the fields set; keeps alive what they point to."""
    value = STRUCTS[name]()
    value.fields = fields
    if hasattr(STRUCTS[name], "struct_size"):
        value.struct_size = struct_size(name)
    for label, content in fields.items():
        setattr(value, label, content)
    return value


def text(start: int | None, size: int) -> str:
    return data(start, size).decode()


def data(start: int | None, size: int) -> bytes:
    return ctypes.string_at(start, size) if start else b""


def pointers(start: int | None, count: int) -> list[int]:
    return list((ctypes.c_void_p * count).from_address(start)) if start else []


def int64s(*values: int) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


class Address(int):
    """An address that keeps what lies there alive."""

    target: Any


def address(target: Any) -> Address:
    result = Address(ctypes.addressof(target))
    result.target = target
    return result


def named_values(start: int | None, count: int) -> dict[str, Any]:
    result = {}
    for value in (STRUCTS["PJRT_NamedValue"] * count).from_address(start) if start else []:
        kinds = {
            0: lambda v: text(v.string_value, v.value_size),
            1: lambda v: v.int64_value,
            2: lambda v: list((ctypes.c_int64 * v.value_size).from_address(v.int64_array_value)),
            3: lambda v: v.float_value,
            4: lambda v: v.bool_value,
        }
        result[text(value.name, value.name_size)] = kinds[value.type](value)
    return result


def function_address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


class Api:
    """The loaded plugin. `called` collects the functions called with a struct of their own."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.GetPjrtApi.restype = ctypes.c_void_p
        self.table = STRUCTS["PJRT_Api"].from_address(self.library.GetPjrtApi())
        self.names = [leaf[3] for leaf in SECTIONS["main"]["structs"]["PJRT_Api"]["fields"][3:]]
        self.called: set[str] = set()

    def raw(self, slot: int, args: Any) -> int | None:
        """Calls a slot; returns the PJRT_Error's address or None."""
        return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(slot)(args)

    def invoke(self, name: str, args: Any, slot: int | None = None) -> None:
        """Calls function `name` (of the table, or of an extension's `slot`) with a struct."""
        self.called.add(name)
        error = self.raw(slot or getattr(self.table, name), ctypes.addressof(args))
        if name not in ABI["void_functions"]:
            self.check(error)

    def call(self, name: str, slot: int | None = None, /, **fields: Any) -> Any:
        args = new(name + "_Args", **fields)
        self.invoke(name, args, slot)
        return args

    def take_error(self, error: int | None) -> PjrtError | None:
        """Reads and destroys a PJRT_Error."""
        if not error:
            return None
        message = self.call("PJRT_Error_Message", error=error)
        code = self.call("PJRT_Error_GetCode", error=error).code
        result = PjrtError(CODES[code], text(message.message, message.message_size))
        self.call("PJRT_Error_Destroy", error=error)
        return result

    def check(self, error: int | None) -> None:
        failure = self.take_error(error)
        if failure is not None:
            raise failure

    def extension(self, kind: int, struct: str) -> Any:
        """The extension of a type, as `struct`, or None."""
        base = STRUCTS["PJRT_Extension_Base"]
        at = self.table.extension_start
        while at:
            extension = base.from_address(at)
            if extension.type == kind:
                return STRUCTS[struct].from_address(at)
            at = extension.next
        return None


def library_path() -> str:
    path = os.environ.get("PJRT_METAL_LIBRARY_PATH")
    if path:
        return path
    import pjrt_metal

    return str(pjrt_metal.library_path())
