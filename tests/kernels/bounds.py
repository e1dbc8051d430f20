"""The work of a program's launches (mlir_lowering/work.py), from its schedules: nothing is compiled or run.

    python tests/kernels/bounds.py program.mlir [--target apple8]

prints each launch's work, the largest first, and ends with 1 if one is not bounded.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlir_lowering.ops
from mlir_lowering import importer, sequence
from mlir_lowering.kernel import KernelCall
from mlir_lowering.library import LibraryCall
from mlir_lowering.passes import PASSES
from mlir_lowering.sequence import CaseNode, WhileNode
from mlir_lowering.targets import Target, parse_target

assert mlir_lowering.ops

# Iterations of one launch: an M1's 1,024 lanes do some 10^10 to 10^11 small ones a second, its watchdog allows seconds.
MOST = 10**10


@dataclass(frozen=True)
class LaunchWork:
    what: str
    work: int
    unbounded: tuple[str, ...]


def launches(text: str, target: Target) -> list[LaunchWork]:
    """Every launch of a StableHLO program, those of a loop's body once."""
    with importer.lock:
        graph = importer.build(importer.normalize(importer.decode(text.encode())))
    for _, run in PASSES:
        run(graph, target)
    calls = _calls(sequence.build_sequence(graph, target))
    return [LaunchWork(str(call.label), call.work, call.unbounded) for call in calls]


def _calls(found: sequence.Sequence) -> Iterator[KernelCall]:
    for node in found.nodes:
        match node:
            case KernelCall():
                yield node
            case LibraryCall():
                yield from node.kernels
            case WhileNode():
                yield from _calls(node.condition)
                yield from _calls(node.body)
            case CaseNode():
                for branch in node.branches:
                    yield from _calls(branch)


def problems(text: str, target: Target) -> list[str]:
    """What is wrong with a program's launches."""
    found = []
    for launch in launches(text, target):
        found += [f"no bound: {head} in {launch.what}" for head in launch.unbounded]
        if launch.work > MOST:
            found.append(f"{launch.work:.1e} iterations: {launch.what}")
    return found


def exponent(sizes: Sequence[int], texts: Sequence[str], target: Target) -> float:
    """The power of n with which a program's work grows at most, from one of the sizes to the next."""
    works = [sum(launch.work for launch in launches(text, target)) for text in texts]
    steps = zip(sizes, sizes[1:], works, works[1:], strict=False)
    return max(math.log(b / a) / math.log(n / m) for m, n, a, b in steps)


def main() -> int:
    parser = argparse.ArgumentParser(description="The work of a StableHLO program's launches.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", default="apple8")
    options = parser.parse_args()
    target = parse_target(options.target)
    text = options.file.read_text()
    for launch in sorted(launches(text, target), key=lambda launch: -launch.work):
        print(f"{launch.work:12.3e}  {launch.what}")
    found = problems(text, target)
    print("\n".join(found) or "no problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
