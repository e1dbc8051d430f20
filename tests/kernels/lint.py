"""Reads Metal Shading Language with clang's C++ for OpenCL, and checks what OpenCL cannot know of.

    python tests/kernels/lint.py kernels.metal [--language 31]

prints what is wrong with the kernels of a file (such as PJRT_METAL_DUMP writes), and ends with 1 if anything is.
lint/metal_stdlib declares MSL's own functions; what it lacks is an error, so a function that only the software
device knows is found here.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = Path(__file__).parent / "lint"
MAX_BUFFERS = 31  # of a kernel, on every Apple GPU
MAX_THREADGROUP_BYTES = 32 << 10
OLDEST_CLANG = 17  # the first to compute with __bf16 on x86

# For x86 and not an OpenCL device: there clang has a bfloat.
_FLAGS = [
    "-x",
    "clcpp",
    "-cl-std=clc++2021",
    "-cl-no-stdinc",
    "-target",
    "x86_64-linux-gnu",
    "-fsyntax-only",
    "-Xclang",
    # As in MSL: no double, no pointers without an address space, no variables outside of functions
    # but constants. The other two features need what this takes away.
    "-cl-ext=-cl_khr_fp64,-__opencl_c_fp64,-__opencl_c_generic_address_space,-__opencl_c_program_scope_global_variables,"
    "-__opencl_c_pipes,-__opencl_c_device_enqueue,+cl_khr_fp16",
    "-Wno-unknown-attributes",
    "-ferror-limit=0",
]
# What published MSL has no precedent for, or means something else on Metal: patterns of the text without comments.
_SPELLINGS = [
    (re.compile(pattern), why)
    for pattern, why in (
        (r"\b\w+[234]\s*\{(?!\s*$)", "a vector is made with parentheses"),
        (r"\b[A-Z]\s*\{", "a value is made with parentheses"),
        (r"\bfmod\s*\(", "Metal's fmod is not exact: pjrt_fmod"),
        (r"\bdouble\b", "Metal has no double"),
        (r"\b(constexpr|if constexpr|decltype|noexcept)\b", "kernels do without it"),
    )
]
# OpenCL makes vectors otherwise than MSL. Templates of ours have V for a vector.
_VECTOR = re.compile(r"\b(V|u?(?:char|short|int|long)[234]|(?:half|bfloat|float)[234])\(")
# Metal converts between its two 16-bit types when asked to.
_ALLOWED = re.compile(r"cast from '(half|bfloat)'.* to '(half|bfloat)'.* is not allowed")
# Text without a suffix is a double in C++, which Metal lacks.
_PROBLEM = re.compile(r"error: |double precision constant")

_BUILTINS = {
    "thread_position_in_grid": "uint3",
    "threadgroup_position_in_grid": "uint3",
    "thread_position_in_threadgroup": "uint3",
    "thread_index_in_simdgroup": "uint",
    "simdgroup_index_in_threadgroup": "uint",
    "threads_per_threadgroup": "uint3",
    "threadgroups_per_grid": "uint3",
}
_KERNEL = re.compile(r"\bkernel\s+void\s+(\w+)\s*\((.*?)\)\s*\{(.*?)^\}", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(
    r"(?P<type>.*?)\b(?P<name>\w+)\s*\[\[(?P<attribute>\w+)(?:\((?P<index>\w*)\))?\]\]\s*", re.DOTALL
)
_THREADGROUP = re.compile(r"\bthreadgroup\s+(\w+)\s+(\w+(?:\s*\[[^;]*?\])*(?:\s*,\s*\w+(?:\s*\[[^;]*?\])*)*)\s*;")
_SOFTWARE = re.compile(r"^#ifdef PJRT_SOFTWARE\n.*?^#(?:else|endif)$", re.DOTALL | re.MULTILINE)
_BYTES = {"bool": 1, "char": 1, "uchar": 1, "short": 2, "ushort": 2, "half": 2, "bfloat": 2}
_BYTES |= {"int": 4, "uint": 4, "float": 4, "atomic_int": 4, "atomic_uint": 4, "long": 8, "ulong": 8}


def find_clang() -> str | None:
    """A clang++ that is new enough."""
    names = ["clang++", *(f"clang++-{version}" for version in range(40, OLDEST_CLANG - 1, -1))]
    for path in filter(None, map(shutil.which, names)):
        version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"clang version (\d+)", version)
        if found and int(found[1]) >= OLDEST_CLANG:
            return path
    return None


def check(text: str, clang: str, language: int = 31) -> list[str]:
    """What is wrong with `text`, the preamble and kernels for MSL `language` (10 * major + minor)."""
    problems = _check_with_clang(text, clang, language)
    device_text = _SOFTWARE.sub("", text)
    problems += [f"{name} is no function of MSL" for name in sorted(set(re.findall(r"\b__builtin_\w+", device_text)))]
    code = re.sub(r"//.*", "", device_text)
    for pattern, why in _SPELLINGS:
        problems += [f"{found!r}: {why}" for found in sorted({m[0] for m in pattern.finditer(code)})]
    kernels = list(_KERNEL.finditer(text))
    if not kernels:
        problems.append("no kernel is defined")
    for kernel in kernels:
        name, parameters, body = kernel.groups()
        problems += [f"{name}: {problem}" for problem in _check_parameters(parameters)]
        problems += [f"{name}: {problem}" for problem in _check_threadgroup_memory(body)]
    return problems


def _check_with_clang(text: str, clang: str, language: int) -> list[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".metal") as file:
        file.write(_VECTOR.sub(r"lint_make<\1>(", text))
        file.flush()
        command = [clang, *_FLAGS, f"-DMSL_VERSION={language}", f"-I{HEADERS}", file.name]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = result.stderr.replace(file.name, "line").splitlines()
    problems = []
    for i, line in enumerate(lines):
        if _PROBLEM.search(line) and not _ALLOWED.search(line):
            problems.append("\n".join([line, *lines[i + 1 : i + 2]]))
    return problems


def _check_parameters(text: str) -> list[str]:
    problems = []
    buffers = 0
    seen = set()
    for parameter in re.split(r",(?![^\[]*\]\])", text):
        found = _PARAMETER.fullmatch(parameter.strip())
        if found is None:
            problems.append(f"no attribute in parameter {parameter.strip()!r}")
            continue
        kind, attribute = found["type"].strip(), found["attribute"]
        if attribute in seen:
            problems.append(f"[[{attribute}]] twice")
        if attribute == "buffer":
            if found["index"] != str(buffers):
                problems.append(f"[[buffer({found['index']})]] where {buffers} comes next")
            if not re.match(r"(device|constant)\b.*[*&]", kind):
                problems.append(f"buffer {found['name']} is neither in device nor in constant memory: {kind}")
            buffers += 1
            continue
        seen.add(attribute)
        if attribute not in _BUILTINS:
            problems.append(f"[[{attribute}]] is no attribute of MSL that kernels use")
        elif kind != _BUILTINS[attribute]:
            problems.append(f"[[{attribute}]] is a {_BUILTINS[attribute]}, not {kind}")
    if buffers > MAX_BUFFERS:
        problems.append(f"{buffers} buffers; there are {MAX_BUFFERS}")
    return problems


def _check_threadgroup_memory(body: str) -> list[str]:
    total = 0
    for kind, declarators in _THREADGROUP.findall(body):
        size = re.fullmatch(r"(\w+?)([234])?", kind)
        scalar = size[1] if size and size[1] in _BYTES else kind
        if scalar not in _BYTES:
            return [f"threadgroup memory of {kind}, whose size is not known here"]
        lanes = {"": 1, "2": 2, "3": 4, "4": 4}[kind[len(scalar) :]]
        for declarator in re.split(r",(?![^\[]*\])", declarators):
            dims = re.findall(r"\[([^\]]*)\]", declarator)
            if not all(re.fullmatch(r"[\d\s+*()-]+", dim) for dim in dims):
                return [f"threadgroup memory {declarator.strip()} has no plain size"]
            # Digits and operators only.
            count = math.prod(int(eval(dim)) for dim in dims)
            total += -(-count * lanes * _BYTES[scalar] // 16) * 16
    if total > MAX_THREADGROUP_BYTES:
        return [f"{total} bytes of threadgroup memory; there are {MAX_THREADGROUP_BYTES}"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks Metal Shading Language.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--language", type=int, default=31, help="MSL's version: 10 * major + minor")
    options = parser.parse_args()
    clang = find_clang()
    if clang is None:
        print(f"needs clang++ {OLDEST_CLANG} or newer on PATH, for instance: apt-get install clang-19", file=sys.stderr)
        return 2
    problems = check(options.file.read_text(), clang, options.language)
    print("\n".join(problems) or "no problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
