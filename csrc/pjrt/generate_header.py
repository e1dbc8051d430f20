"""Writes csrc/pjrt/pjrt_c_api.h from csrc/pjrt/pjrt_abi.json: `python generate_header.py`.

The JSON holds the layout of the PJRT C API: the size of every struct, and of each field [offset,
size, type, name]. The header declares that, and asserts that the compiler agrees.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ABI = FOLDER / "pjrt_abi.json"
HEADER = FOLDER / "pjrt_c_api.h"

PREFACE = """\
// The PJRT C API, version {major}.{minor}, LP64.
// Made by generate_header.py from pjrt_abi.json: do not edit.
//
// Every *_Args struct starts with struct_size: the bytes that the caller's version of it has, which
// may be fewer or more than here. StructSize<T>() is this version's: the end of the last field,
// without padding.
// clang-format off
#pragma once

#include <cstddef>
#include <cstdint>

#define PJRT_API_MAJOR {major}
#define PJRT_API_MINOR {minor}

#define PJRT_CHECK_FIELD(type, field, offset, size) \\
  static_assert(offsetof(type, field) == offset && sizeof(type::field) == size)

extern "C" {{
"""


def _declare(kind: str, name: str, void_functions: list[str]) -> str:
    if kind.startswith("function"):
        function = kind.removeprefix("function").strip() or name
        result = "void" if function in void_functions else "PJRT_Error*"
        return f"{result} (*{name})({function}_Args* args);"
    if "(*)" in kind:
        return kind.replace("(*)", f"(*{name})", 1) + ";"
    return f"{kind} {name};"


def _leaves(fields: list[Any]) -> list[list[Any]]:
    """The fields with those of unions in their place."""
    return [leaf for field in fields for leaf in (field["union"] if isinstance(field, dict) else [field])]


def _end(struct: dict[str, Any]) -> tuple[int, str]:
    """What callers put into struct_size, and the field (of a union: one) that ends there."""
    return max((offset + size, name) for offset, size, _, name in _leaves(struct["fields"][-1:]))


def _struct(name: str, struct: dict[str, Any], void_functions: list[str]) -> list[str]:
    lines = [f"struct {name} {{"]
    for field in struct["fields"]:
        if isinstance(field, dict):
            members = " ".join(_declare(kind, label, void_functions) for _, _, kind, label in field["union"])
            lines.append(f"  union {{ {members} }};")
        else:
            lines.append("  " + _declare(field[2], field[3], void_functions))
    lines.append("};")
    lines.append(f"static_assert(sizeof({name}) == {struct['sizeof']});")
    lines += [
        f"PJRT_CHECK_FIELD({name}, {label}, {offset}, {size});" for offset, size, _, label in _leaves(struct["fields"])
    ]
    return lines


def generate(abi: dict[str, Any]) -> str:
    """The header's text for the parsed pjrt_abi.json."""
    sections = abi["sections"].values()
    void_functions = abi["void_functions"]
    lines = [PREFACE.format(major=abi["version"][0], minor=abi["version"][1])]
    for section in sections:
        lines += [f"typedef struct {name} {name};" for name in [*section["opaque"], *section["structs"]]]
    for section in sections:
        for name, values in section["enums"].items():
            lines.append("typedef enum {")
            lines += [f"  {label} = {value}," for label, value in values.items()]
            lines.append(f"}} {name};")
    for section in sections:
        lines += [
            f"typedef {result} (*{name})({', '.join(params)});"
            for name, (result, *params) in section["callbacks"].items()
        ]
    for section in sections:
        for name, struct in section["structs"].items():
            lines += ["", *_struct(name, struct, void_functions)]
    lines += ["", '}  // extern "C"', "", "namespace pjrt_metal {", ""]
    lines += ["template <typename T>", "constexpr size_t StructSize();"]
    for section in sections:
        for name, struct in section["structs"].items():
            end, field = _end(struct)
            lines.append(f"template <> constexpr size_t StructSize<{name}>() {{ return {end}; }}")
            lines.append(f"static_assert(offsetof({name}, {field}) + sizeof({name}::{field}) == {end});")
    lines += ["", "}  // namespace pjrt_metal", "", "#undef PJRT_CHECK_FIELD", ""]
    return "\n".join(lines)


def main() -> int:
    HEADER.write_text(generate(json.loads(ABI.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
