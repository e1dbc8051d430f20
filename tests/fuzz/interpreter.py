"""StableHLO's interpreter on a fuzzer's program.

Its Python binding takes no complex arrays: such arguments and results are passed as their two parts.
"""

from __future__ import annotations

import re

from tests.fuzz.graph import Array
from tests.ops.harness import reference

_DONATION = re.compile(r" \{(?:tf\.aliasing_output|jax\.buffer_donor)[^}]*\}")
_HEAD = re.compile(r"func\.func @main\((.*)\) -> \((.*)\) \{")
_RETURN = re.compile(r"  func\.return (.*?) : (.*)")


def interpret(text: str, inputs: list[Array]) -> list[Array]:
    """The results of a text that `graph.module_text` made. Raises what the interpreter raises."""
    if "complex" not in text:
        return reference(text, inputs)
    lines, complex_results = [], []
    for line in text.splitlines():
        if head := _HEAD.fullmatch(line):
            arguments, begin = _arguments(_DONATION.sub("", head[1]))
            results = ", ".join(part for type in _split(head[2]) for part in _parts(type))
            lines += [f"func.func @main({arguments}) -> ({results}) {{", *begin]
        elif end := _RETURN.fullmatch(line):
            types = _split(end[2])
            complex_results = ["complex" in type for type in types]
            lines += _return(_split(end[1]), types)
        else:
            lines.append(line)
    arrays = [part for x in inputs for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]
    found = iter(reference("\n".join(lines), arrays))
    return [_joined(next(found), next(found)) if two else next(found) for two in complex_results]


def _split(names: str) -> list[str]:
    return names.split(", ") if names else []


def _parts(type: str) -> list[str]:
    return [re.sub(r"complex<(\w+)>", r"\1", type)] * (2 if "complex" in type else 1)


def _joined(real: Array, imaginary: Array) -> Array:
    out = real.astype("c8" if real.dtype.itemsize == 4 else "c16")
    out.imag = imaginary
    return out


def _arguments(text: str) -> tuple[str, list[str]]:
    """The arguments with complex ones in parts, and the ops that put those together."""
    arguments, begin = [], []
    for argument in _split(text):
        name, type = argument.split(": ")
        if "complex" not in type:
            arguments.append(argument)
            continue
        arguments += [f"{name}_{part}: {of}" for part, of in zip(("re", "im"), _parts(type), strict=True)]
        begin.append(f"  {name} = stablehlo.complex {name}_re, {name}_im : {type}")
    return ", ".join(arguments), begin


def _return(names: list[str], types: list[str]) -> list[str]:
    lines, returned, returned_types = [], [], []
    for number, (name, type) in enumerate(zip(names, types, strict=True)):
        returned_types += _parts(type)
        if "complex" not in type:
            returned.append(name)
            continue
        for op in ("real", "imag"):
            part = f"%out{number}_{op}"
            lines.append(f"  {part} = stablehlo.{op} {name} : ({type}) -> {_parts(type)[0]}")
            returned.append(part)
    return [*lines, f"  func.return {', '.join(returned)} : {', '.join(returned_types)}"]
