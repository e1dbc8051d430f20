"""The MSL that kernels are made with: what stands in front of every compilation unit, and the functions of ours that a
kernel calls.

One parse error in a common text would stop every kernel on a Mac, so a kernel carries what it calls and nothing else.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent
# A function is defined after those that it calls.
_FILES = ("math.metal", "element.metal", "complex.metal")
_NAME = re.compile(r"\bpjrt_\w+")

PREAMBLE = (_FOLDER / "preamble.metal").read_text()


@dataclass(frozen=True)
class Function:
    """A definition with its comment. Overloads share a name; `number` counts them."""

    name: str
    number: int
    text: str
    for_host: bool  # on double, which only the software device has

    @property
    def guard(self) -> str:
        return f"PJRT_HAS_{self.name.removeprefix('pjrt_')}_{self.number}"


def functions_of(text: str) -> list[Function]:
    """The functions that a file defines.

    A definition begins in the first column and ends with a closing brace there, or at the end of its first line; what
    stands between `#ifdef PJRT_SOFTWARE` and `#endif` is for the host only.
    """
    found: list[Function] = []
    lines: list[str] = []
    for_host = False
    macros: dict[str, str] = {}
    for line in text.splitlines():
        inside = any(not earlier.startswith("//") for earlier in lines)
        if not inside and line.startswith("#"):
            directive, _, rest = line.partition(" ")
            name, _, value = rest.partition(" ")
            if directive == "#define":
                macros[name] = value
            for_host = directive == "#ifdef" or (for_host and directive != "#endif")
            continue
        if not inside and not line:
            lines = []  # a comment on the whole file
            continue
        lines.append(line)
        if line == "}" or (not line.startswith((" ", "//")) and line.endswith("}")):
            code = "\n".join(lines)
            for name, value in macros.items():
                code = re.sub(rf"\b{name}\b", value, code)
            definition = re.search(r"\b(pjrt_\w+)\(", re.sub(r"//.*", "", code))
            assert definition, code
            name = definition[1]
            found.append(Function(name, sum(f.name == name for f in found), code + "\n", for_host))
            lines = []
    assert not lines, f"no end of a definition: {lines[0]}"
    return found


@functools.cache
def _functions() -> tuple[Function, ...]:
    return tuple(function for name in _FILES for function in functions_of((_FOLDER / name).read_text()))


# Of ours, those of one or two floats that are dear to inline: on the software device they have versions out of line, which
# these macros define (csrc/software/include/software_far.h).
FAR_FUNCTIONS = dict.fromkeys(("pjrt_cbrt", "pjrt_erf", "pjrt_erfc", "pjrt_expm1", "pjrt_log1p"), "SOFTWARE_FAR")
FAR_FUNCTIONS |= {"pjrt_fmod": "SOFTWARE_FAR_2"}
# The line in a kernel from which on its calls mean the versions out of line.
USE_FAR_FUNCTIONS = "SOFTWARE_USE_FAR_FUNCTIONS"


def with_functions(source: str, on_host: bool) -> str:
    """The kernel's text behind the functions that it calls, and that those call. Several kernels that are compiled
    together define each once."""
    far = [name for name in FAR_FUNCTIONS if USE_FAR_FUNCTIONS in source and f"{name}(" in source]
    uses = "".join(f" SOFTWARE_USE_FAR({name})" for name in far)
    source = source.replace(USE_FAR_FUNCTIONS, USE_FAR_FUNCTIONS + uses)
    definitions = ((f"PJRT_HAS_far_{name.removeprefix('pjrt_')}", f"{FAR_FUNCTIONS[name]}({name})") for name in far)
    source = "".join(f"#ifndef {guard}\n#define {guard}\n{text}\n#endif\n" for guard, text in definitions) + source
    wanted = set(_NAME.findall(source))
    chosen: list[Function] = []
    for function in reversed(_functions()):
        if function.name in wanted and (on_host or not function.for_host):
            chosen.append(function)
            wanted |= set(_NAME.findall(function.text))
    guarded = (f"#ifndef {f.guard}\n#define {f.guard}\n{f.text}#endif\n" for f in reversed(chosen))
    return "".join(guarded) + source
