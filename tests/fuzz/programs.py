"""Random programs on the devices, for as long as you like.

    python -m tests.fuzz.programs --minutes 60 --devices fast,apple7 --seed 0

Each program's results are compared with numpy's, element by element within a proven bound (`evaluate.py`). What fails
is asked of XLA:CPU without fusion and of StableHLO's interpreter, shrunk, and written to --found as an MLIR file. Every
n-th program that is not wide is asked of XLA as well, to test numpy's part: where the two differ, the interpreter
decides, and "oracle" counts where it does not take numpy's side. Kernels are cached in a folder that goes away with
the run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.devices import DEVICES, Device, Failure, expected
from tests.fuzz.generate import LARGE, SMALL, WIDE, build, redraw
from tests.fuzz.graph import Array, Case, module_text
from tests.fuzz.kept import kept_text
from tests.fuzz.shrink import renumbered, shrink

STYLES = {"small": SMALL, "large": LARGE, "wide": WIDE}
# Values that a program is run with: compiling it costs far more than running it.
INPUT_SETS = 3


def can_be_asked(style: str, case: Case) -> bool:
    """Not long scans, which XLA sums anew for each element, nor products of empty arrays, which it does not write (and
    the interpreter dies of)."""
    return style != "wide" and not any(
        op.kind in ("dot_general", "convolution") and any(v.size == 0 for v in op.ins) for op in case.block.ops
    )


def input_sets(case: Case, seed: int) -> list[list[Array]]:
    return [case.inputs, *(redraw(case, seed + 1_000_000_007 * n) for n in range(1, INPUT_SETS))]


def style_of(seed: int) -> str:
    """One program in eight is large, one wide."""
    return {7: "large", 3: "wide"}.get(seed % 8, "small")


class Run:
    """What the threads of a run share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.end = time.monotonic() + 60 * options.minutes
        self.lock = threading.Lock()
        self.next = options.seed
        self.stop = options.seed + options.count
        self.counts: Counter[str] = Counter()
        self.xla, self.interpreter = Device("xla"), Device("interpreter")
        self.xla_lock = threading.Lock()
        self.seen: set[str] = set()
        self.began = time.monotonic()

    def take(self) -> list[int]:
        """The seeds of the next programs, which are compiled together."""
        with self.lock:
            if time.monotonic() > self.end:
                return []
            first, self.next = self.next, min(self.next + self.options.batch, self.stop)
            return list(range(first, self.next))

    def say(self, **event: Any) -> None:
        with self.lock:
            print(json.dumps(event), flush=True)

    def work(self, name: str) -> None:
        device = Device(name)
        while seeds := self.take():
            try:
                self.some(device, seeds)
            except Exception:
                self.say(seeds=seeds, device=name, kind="fuzzer", what=traceback.format_exc()[-2000:])
                self.counts["fuzzer"] += 1
        device.close()

    def some(self, device: Device, seeds: list[int]) -> None:
        styles = [self.options.style or style_of(seed) for seed in seeds]
        cases = [build(seed, STYLES[style]) for seed, style in zip(seeds, styles, strict=True)]
        items = [(case, input_sets(case, seed)) for seed, case in zip(seeds, cases, strict=True)]
        failures = device.check(items)
        with self.lock:
            self.counts[device.name] += len(seeds)
            total = sum(self.counts[n] for n in DEVICES)
        self.say(programs=total, seconds=round(time.monotonic() - self.began), counts=dict(self.counts))
        for seed, style, (case, sets), failure in zip(seeds, styles, items, failures, strict=True):
            if failure:
                self.report(device, seed, style, case, failure)
            elif self.options.xla_every and seed % self.options.xla_every == 0 and can_be_asked(style, case):
                self.ask_xla(seed, style, case, sets)

    def ask_xla(self, seed: int, style: str, case: Case, sets: list[list[Array]]) -> None:
        with self.xla_lock:
            other = self.xla.one(case, sets[:1])
        self.counts["xla asked"] += 1
        if other is None or other.what.startswith("compile:"):  # HLO is stricter: one float type in a reduce
            return
        # XLA's own faults (besides those of worker.py): a dimension longer than a scatter's index type can tell, a
        # reduce's initial value counted more than once (StableHLO lets it), true + true folded to false.
        with self.xla_lock:
            third = self.interpreter.one(case, [other.inputs])
        kind = "xla is wrong" if third is None else "oracle"
        self.counts[kind] += 1
        third_says = "agrees with numpy" if third is None else third.what
        self.say(seed=seed, style=style, device="xla", kind=kind, what=other.what, interpreter=third_says)

    def report(self, device: Device, seed: int, style: str, case: Case, failure: Failure) -> None:
        case.inputs = failure.inputs
        with self.xla_lock:
            oracles = {d.name: d.one(case, [failure.inputs]) for d in (self.xla, self.interpreter)}
        self.counts["failed"] += 1
        verdict = ", ".join(f"{n}: {f.what[:300] if f else 'agrees with numpy'}" for n, f in oracles.items())
        self.say(seed=seed, style=style, device=device.name, kind="failed", what=failure.what, oracles=verdict)
        if not self.options.found or self.counts["shrunk"] >= self.options.shrink:
            return
        kind = kind_of(failure)

        def fails(smaller: Case) -> bool:
            found = device.one(smaller, [smaller.inputs])
            return found is not None and kind_of(found) == kind

        small = renumbered(shrink(case, fails))
        found = device.one(small, [small.inputs])
        if found is None:  # it comes and goes
            small, found = renumbered(case), failure
        self.counts["shrunk"] += 1
        path = Path(self.options.found) / f"{device.name}_{seed}_{style}.mlir"
        what = f"seed {seed} {style} on {device.name}: {found.what[:600]}\nof the whole program: {verdict[:700]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kept_text(small, small.inputs, expected(small, small.inputs), what))
        text = module_text(small)
        self.say(seed=seed, device=device.name, kind="shrunk", file=str(path), ops=text.count(" = "))


def kind_of(failure: Failure) -> str:
    """A shrunk program must fail as the first one did."""
    head = failure.what.split(":")[0]
    if head == "crash" or head == "hang" or head == "execute":
        return head
    return failure.what[:60] if head == "compile" else "wrong"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1 << 40)
    parser.add_argument("--devices", default="fast", help=", ".join(DEVICES))
    parser.add_argument("--style", choices=STYLES, default="", help="default: one in eight large, one wide")
    parser.add_argument("--xla-every", type=int, default=16, help="check numpy by XLA on each n-th program; 0: never")
    parser.add_argument("--batch", type=int, default=32, help="programs whose kernels are compiled together")
    parser.add_argument("--found", default="", help="folder for shrunk programs")
    parser.add_argument("--shrink", type=int, default=20, help="how many failures to shrink")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-kernels-") as scratch:
        os.environ.setdefault("PJRT_METAL_CACHE_DIR", scratch)
        run = Run(options)
        threads = [threading.Thread(target=run.work, args=(n,)) for n in options.devices.split(",")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        run.xla.close()
        run.interpreter.close()
    seconds = time.monotonic() - run.began
    total = sum(run.counts[n] for n in DEVICES)
    run.say(programs=total, seconds=round(seconds), rate=round(total / max(seconds, 1e-9), 2), counts=dict(run.counts))
    return 1 if run.counts["failed"] + run.counts["fuzzer"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
