"""Compiles and executes many different programs in one process, and fails if what the process holds still grows.

    python -m tests.soak --programs 20000 --executions 1000000

The programs go straight to the client (no jax.jit, whose own caches hold up to thousands of programs): every second one
has a kernel that no other has; the others are loops, sorts, contractions and updates of arrays of some hundred shapes
(JAX keeps what it knows of each shape).
The last KEPT of them are held, the rest are dropped. Everything is measured at forty points; after the first tenth of
the programs nothing may grow beyond ALLOWED. The kernels' folder is bounded to a megabyte, so that it is trimmed.

Cost: a compilation by the host's compiler for each second program, some 0.1 s, and 10 to 20 us an execution.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KEPT = 50
POINTS = 40


@dataclass(frozen=True)
class Allowed:
    """Growth after the first tenth: so much at all, and so much a program."""

    at_all: float
    a_program: float


# Resident memory counts pages that the allocator keeps, the heap what it handed out (kilobytes).
ALLOWED = {
    "resident": Allowed(8192, 0.25),
    "heap": Allowed(1024, 0.25),
    "objects": Allowed(500, 0.01),
    "maps": Allowed(100, 0),
    "files": Allowed(2, 0),
    "threads": Allowed(1, 0),
    "cache": Allowed(2048, 0),
}


def program(number: int) -> tuple[str, tuple[int, ...]]:
    """StableHLO text of a function of one f32 array, and the array's shape."""
    n = number // 2
    if number % 2 == 0:
        shape: tuple[int, ...] = (3, 4)
        lines = f"%c = stablehlo.constant dense<{n + 0.5:e}> : T\n%r = stablehlo.multiply %x, %c : T"
    elif n % 5 == 0:
        shape = (2 + n % 7, 2 + n % 11)
        lines = "%y = stablehlo.tanh %x : T\n%r = stablehlo.add %y, %x : T"
    elif n % 5 == 1:
        shape = (2 + n % 97,)
        lines = f"""%i = stablehlo.constant dense<0> : tensor<i32>
          %end = stablehlo.constant dense<{2 + n // 97 % 5}> : tensor<i32>
          %one = stablehlo.constant dense<1> : tensor<i32>
          %l:2 = stablehlo.while(%k = %i, %v = %x) : tensor<i32>, T
          cond {{ %t = stablehlo.compare LT, %k, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
                  stablehlo.return %t : tensor<i1> }}
          do {{ %n = stablehlo.add %k, %one : tensor<i32>
                %w = stablehlo.sine %v : T
                stablehlo.return %n, %w : tensor<i32>, T }}
          %r = stablehlo.add %l#1, %x : T"""
    elif n % 5 == 2:
        shape = (2 + n % 31,)
        lines = """%r = "stablehlo.sort"(%x) ({
          ^bb0(%a: tensor<f32>, %b: tensor<f32>):
            %t = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
            stablehlo.return %t : tensor<i1> }) {dimension = 0 : i64} : (T) -> T"""
    elif n % 5 == 3:
        shape = (2 + n % 13, 2 + n % 13)
        lines = "%r = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (T, T) -> T"
    else:
        shape = (4 + n % 53,)
        lines = """%z = stablehlo.constant dense<1> : tensor<i32>
          %s = stablehlo.dynamic_slice %x, %z, sizes = [2] : (T, tensor<i32>) -> tensor<2xf32>
          %r = stablehlo.dynamic_update_slice %x, %s, %z : (T, tensor<2xf32>, tensor<i32>) -> T"""
    kind = f"tensor<{'x'.join(map(str, shape))}xf32>"
    text = f"func.func @main(%x: T) -> T {{\n{lines}\nreturn %r : T\n}}"
    return text.replace(": T", f": {kind}").replace("(T", f"({kind}").replace(", T", f", {kind}").replace(
        "-> T", f"-> {kind}"
    ), shape


class _MallocInfo(ctypes.Structure):
    """mallinfo2."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    ))  # fmt: skip


_libc = ctypes.CDLL(None)
_libc.mallinfo2.restype = _MallocInfo


def measure(cache: str) -> dict[str, float]:
    gc.collect()
    _libc.malloc_trim(0)
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    with open("/proc/self/maps") as file:
        maps = sum(1 for _ in file)
    info = _libc.mallinfo2()
    blocks = {entry.inode(): entry.stat().st_blocks for entry in os.scandir(cache)} if os.path.isdir(cache) else {}
    return {
        "resident": resident / 1024,
        "heap": (info.uordblks + info.hblkhd) / 1024,
        "objects": len(gc.get_objects()),
        "maps": maps,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "cache": sum(blocks.values()) / 2,
    }


def soak(programs: int, executions: int, cache: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Runs the programs; yields how many were run and what the process holds, at POINTS points."""
    import jax
    import numpy as np

    from pjrt_metal.run_text import compile_text

    device = jax.devices("metal")[0]
    each = max(1, executions // programs)
    kept: deque[Any] = deque(maxlen=KEPT)
    for number in range(programs):
        text, shape = program(number)
        executable = compile_text(text, device)
        kept.append(executable)
        argument = jax.device_put(np.full(shape, 0.25, np.float32), device)
        for _ in range(each):
            result = executable.execute_sharded([argument])
        (value,) = result.disassemble_into_single_device_arrays()[0]
        if not np.isfinite(np.asarray(value)).all():
            raise SystemExit(f"program {number} gave {value}")
        if (number + 1) % max(1, programs // POINTS) == 0:
            del result, value, argument
            yield number + 1, measure(cache)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak")
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--executions", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pjrt-metal-soak-") as folder:
        os.environ |= {
            "JAX_PLATFORMS": "metal",
            "PJRT_METAL_CACHE_DIR": f"{folder}/kernels",
            "PJRT_METAL_CACHE_MB": "1",
        }
        first: dict[str, float] | None = None
        last: dict[str, float] = {}
        since = 0
        for number, last in soak(options.programs, options.executions, f"{folder}/kernels"):
            print(number, " ".join(f"{name} {value:.0f}" for name, value in last.items()), flush=True)
            if first is None and number >= options.programs / 10:
                first, since = last, number
        assert first is not None
        grown = {
            name: f"{last[name] - first[name]:.0f}"
            for name, allowed in ALLOWED.items()
            if last[name] - first[name] > allowed.at_all + allowed.a_program * (options.programs - since)
        }
    print("grown:", grown or "nothing")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
