"""Do random programs find faults? Each is planted into a copy of the compiler, and programs run until one shows it.

    python -m tests.fuzz.planted [NAME...] [--most 1000]

A fault that is not found within `--most` programs ends the command with 1; so does a plant whose text is gone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import mlir_lowering
from tests.fuzz.devices import Device, Failure
from tests.fuzz.generate import build
from tests.fuzz.programs import STYLES, input_sets, style_of

BATCH = 32


@dataclass(frozen=True)
class Plant:
    """`new` takes the place of `old`, which is in `file` (of mlir_lowering) once."""

    name: str
    file: str
    old: str
    new: str
    device: str = "fast"


PLANTS = (
    Plant(
        "copy elided",
        "plan.py",
        "if self.interfere(source, destination):",
        "if source.bytes < 0:",
    ),
    Plant(
        "in place at other elements",
        "plan.py",
        "return all(reads) and not any(",
        "return not any(",
    ),
    Plant(
        "slot too small",
        "arena.py",
        "size = -(-wanted // ALIGNMENT)",
        "size = (wanted // ALIGNMENT)",
    ),
    Plant(
        "carried values not saved",
        "plan.py",
        "if self.storage(source) in cells:",
        "if source is None:",
    ),
    Plant(
        "loop left before its condition",
        "plan.py",
        "spans.append((loop.start, loop.exit))",
        "pass",
    ),
    Plant(
        "loop's next value missing",
        "plan.py",
        "for source, result in changed:",
        "for source, result in changed[:-1]:",
    ),
    Plant(
        "64-bit intermediate in 32 bits",
        "emit.py",
        'return "ulong" if dtype.bits == 64 else "uint"',
        'return "uint"',
    ),
    Plant(
        "pointwise rows",
        "schedules/pointwise.py",
        "r < min((strip + 1) * {rows_each}, {rows})",
        "r < min((strip + 1) * {rows_each}, {rows} - 1)",
    ),
    Plant(
        "pointwise flat",
        "schedules/pointwise.py",
        'emitter.line(f"const int end = min(begin + {STRIP}, n);")',
        'emitter.line(f"const int end = min(begin + {STRIP}, n - 1);")',
    ),
    Plant(
        "reduce rows",
        "schedules/reduce.py",
        "each = max(1, min(outputs, WORK // work))\n",
        "each = max(1, min(outputs, WORK // work))\n        outputs = max(outputs - 1, 1)\n",
    ),
    Plant(
        "reduce columns",
        "schedules/reduce.py",
        "else str(strip)\n",
        "else str(max(strip - 1, 1))\n",
    ),
    Plant(
        "reduce any body",
        "schedules/reduce.py",
        "for d in sorted(reduced)]\n        nested",
        "for d in sorted(reduced, reverse=True)]\n"
        "        loops[0] = (loops[0][0], max(loops[0][1] - 1, 1))\n        nested",
    ),
    Plant(
        "scan's run",
        "schedules/scan_software.py",
        "for (int p = run + 1; p < min(run + {STRIP_RUN}, end); ++p)",
        "for (int p = run + 1; p < min(run + {STRIP_RUN}, end - 1); ++p)",
    ),
    Plant(
        "window dilation",
        "schedules/window.py",
        "for ix, n in zip(where, shape, strict=True)",
        "for ix, n in zip(where, (m - 1 for m in shape), strict=True)",
    ),
    Plant(
        "slice's last start",
        "schedules/update.py",
        "operand.shape[d] - update.shape[d])",
        "max(operand.shape[d] - update.shape[d] - 1, 0))",
    ),
    Plant(
        "scatter's last place",
        "schedules/update.py",
        "{start} <= {self.shape[d] - self.extent(d)}",
        "{start} < {self.shape[d] - self.extent(d)}",
    ),
    Plant(
        "sort's order of equals",
        "schedules/sort.py",
        'for name in ("p", "q")',
        'for name in ("q", "p")',
    ),
    Plant(
        "direct contraction",
        "schedules/contraction_direct.py",
        '[(f"k{depth}", extent)',
        '[(f"k{depth}", max(extent - 1, 1))',
    ),
    Plant(
        "packed contraction's last rows",
        "schedules/contraction_software.py",
        "const int rows = min({plan.tile_rows}, {self._tiled_size} - i0)",
        "const int rows = min({plan.tile_rows}, {self._tiled_size} - i0 - 1)",
    ),
    Plant(
        "gather's last place",
        "ops/gather.py",
        "n - sizes[d])",
        "max(n - sizes[d] - 1, 0))",
    ),
    Plant(
        "pad's inside",
        "ops/indexing.py",
        'position = ix - op.attrs["edge_padding_low"][d]',
        'position = ix - op.attrs["edge_padding_low"][d] + (op.attrs["interior_padding"][d] > 0)',
    ),
    Plant(
        "barrier of a tree",
        "schedules/fold_gpu.py",
        'half_height /= 2)"):\n            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")',
        'half_height /= 2)"):\n            emitter.line("")',
        "apple9",
    ),
    Plant(
        "barrier of a contraction",
        "schedules/contraction_gpu.py",
        "lambda line, k: nest.b(batch, k, line))\n"
        '            emitter.line("threadgroup_barrier(mem_flags::mem_threadgroup);")',
        'lambda line, k: nest.b(batch, k, line))\n            emitter.line("")',
        "apple9",
    ),
    Plant(
        "GPU fold's threads",
        "schedules/fold_gpu.py",
        'self._strided(kept, "int(lane)", LANES)',
        'self._strided(kept, "int(lane)", LANES + 1)',
        "apple9",
    ),
    Plant(
        "GPU sort's runs",
        "schedules/sort_gpu.py",
        "const int length = min({RUN}, {self.n} - begin);",
        "const int length = min({RUN}, {self.n} - begin - 1);",
        "apple9",
    ),
    Plant(
        "GPU scatter's shares",
        "schedules/update_gpu.py",
        "if ({beginning % shares} == {share})",
        "if ({beginning % (2 * shares)} == {share})",
        "apple9",
    ),
)


def planted(plant: Plant, folder: Path) -> None:
    """A copy of the compiler in `folder` that has the fault."""
    shutil.copytree(Path(mlir_lowering.__file__).parent, folder / "mlir_lowering", symlinks=False)
    path = folder / "mlir_lowering" / plant.file
    text = path.read_text()
    if text.count(plant.old) != 1:
        raise SystemExit(f"{plant.name}: its text is {text.count(plant.old)} times in {plant.file}, not once")
    path.write_text(text.replace(plant.old, plant.new))


def programs_needed(device: Device, most: int, first: int = 0) -> tuple[int, Failure] | None:
    """How many programs the device takes until one shows a fault."""
    begin, size = first, 4
    while begin < first + most:
        seeds = range(begin, min(begin + size, first + most))
        begin, size = seeds.stop, min(2 * size, BATCH)
        cases = [build(seed, STYLES[style_of(seed)]) for seed in seeds]
        items = [(case, input_sets(case, seed)) for seed, case in zip(seeds, cases, strict=True)]
        for seed, found in zip(seeds, device.check(items), strict=True):
            if found:
                return seed - first + 1, found
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--most", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-kernels-") as cache:
        for plant in PLANTS:
            if options.names and plant.name not in options.names:
                continue
            with tempfile.TemporaryDirectory(prefix="fuzz-planted-") as folder:
                planted(plant, Path(folder))
                path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
                device = Device(plant.device, {"PYTHONPATH": path, "PJRT_METAL_CACHE_DIR": cache})
                began = time.monotonic()
                found = programs_needed(device, options.most, options.seed)
                device.close()
            seconds = time.monotonic() - began
            if found is None:
                missed += 1
                print(f"{plant.name} | {plant.device} | not found in {options.most} | {seconds:.0f} s", flush=True)
            else:
                what = found[1].what.splitlines()[0][:110]
                print(f"{plant.name} | {plant.device} | {found[0]} programs | {seconds:.0f} s | {what}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
