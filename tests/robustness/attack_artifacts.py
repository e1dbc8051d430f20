"""Compiles changed StableHLO artifacts by the hundred thousand, in forks of one process that has read the compiler.

    python -m tests.robustness.attack_artifacts COUNT SEED [ONLY]        (make sanitize)

MLIR's reader and bindings end on some (text that is no UTF-8 aborts); the product reads in a child for that reason
(mlir_lowering/compile_process.py), so signals are counted and no fault. What comes after the reader is ours: whatever
it is given, it answers with a Program or a CompileError, within SECONDS and BYTES of memory. A fork compiles until one
ends it; that one is then tried alone.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np

from mlir_lowering.errors import CompileError
from mlir_lowering.pipeline import compile_artifact

SECONDS = 20  # of CPU time: other processes do not count
READER_SECONDS = 1
BYTES = 4 << 30  # beyond what the process has at its start
TARGET = "software:threads=2,vector_bytes=64"
# What a fork says of an artifact: `r` when it has been read, then one of the others.
READ, COMPILED, REFUSED, FAULT = b"r", b"p", b"e", b"f"


def mutated(original: bytes, rng: np.random.Generator) -> bytes:
    data = bytearray(original)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(data)))
        match rng.integers(4):
            case 0:
                data[at] ^= 1 << int(rng.integers(8))
            case 1:
                data[at] = int(rng.integers(256))
            case 2:
                del data[at : at + int(rng.integers(1, 5))]
            case _:
                data[at:at] = rng.bytes(int(rng.integers(1, 5)))
    return bytes(data)


def originals() -> list[bytes]:
    """Made elsewhere: JAX starts threads, which no fork has."""
    code = "import pickle, sys; from tests.robustness.mutate_artifacts import artifacts as a"
    command = [sys.executable, "-c", code + "; sys.stdout.buffer.write(pickle.dumps(a()))"]
    return list(pickle.loads(subprocess.check_output(command)))


def limit(seconds: int) -> None:
    """`seconds` more of CPU time, then SIGXCPU."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, resource.RLIM_INFINITY))


def compile_all(data: list[bytes], answers: int) -> None:
    """In a fork: compiles one after another and says what became of each."""
    with open("/proc/self/statm") as statm:
        size = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + BYTES, size + BYTES))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for code in data:
        read = False

        def log(phase: str, milliseconds: float, detail: str) -> None:
            nonlocal read
            if not read:
                read = True
                os.write(answers, READ)
                limit(SECONDS)

        limit(READER_SECONDS)
        try:
            compile_artifact(code, "mlir", b"", TARGET, log=log)
            os.write(answers, COMPILED)
        except CompileError:
            os.write(answers, REFUSED)
        except BaseException as error:
            os.write(answers, FAULT + f"{type(error).__name__}: {error}".encode(errors="replace")[:2000])
            return


@dataclass
class Outcome:
    answers: bytes
    status: int


def in_fork(data: list[bytes]) -> Outcome:
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reader)
        try:
            compile_all(data, writer)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answers = pipe.read()
    return Outcome(answers, os.waitpid(process, 0)[1])


@dataclass
class Counts:
    compiled: int = 0
    refused: int = 0
    ended: int = 0
    endless: int = 0
    faults: list[str] = field(default_factory=list)


def attack(artifacts: list[bytes], numbers: list[int], seed: int, counts: Counts) -> None:
    data = [mutated(artifacts[n % len(artifacts)], np.random.default_rng([seed, n])) for n in numbers]
    done = 0
    while done < len(data):
        outcome = in_fork(data[done:])
        good = outcome.answers.partition(FAULT)[0]
        counts.compiled += good.count(COMPILED)
        counts.refused += good.count(REFUSED)
        done += good.count(COMPILED) + good.count(REFUSED)
        if done == len(data):
            return
        # An earlier artifact may have damaged the fork.
        alone = in_fork(data[done : done + 1])
        how = os.waitstatus_to_exitcode(alone.status)
        match alone.answers[-1:]:
            case _ if FAULT in alone.answers:
                counts.faults.append(f"{numbers[done]}: {alone.answers.partition(FAULT)[2].decode(errors='replace')}")
            case b"p":
                counts.compiled += 1
            case b"e":
                counts.refused += 1
            case b"r" if how == -signal.SIGXCPU:
                counts.faults.append(f"{numbers[done]}: took more than {SECONDS} s after it had been read")
            case b"r" if how < 0:
                counts.faults.append(f"{numbers[done]}: ended by signal {-how} after it had been read")
            case _ if how == -signal.SIGXCPU:
                counts.endless += 1
            case _ if how < 0:
                counts.ended += 1
            case _:
                counts.faults.append(f"{numbers[done]}: ended with {how}")
        if counts.faults[-1:] and counts.faults[-1].startswith(f"{numbers[done]}: "):
            print(counts.faults[-1], flush=True)
        done += 1


def main(count: int, seed: int, only: int | None) -> int:
    artifacts = originals()
    counts = Counts()
    numbers = list(range(count)) if only is None else [only]
    for start in range(0, len(numbers), 100):
        attack(artifacts, numbers[start : start + 100], seed, counts)
        if start % 5000 == 4900:
            print(f"artifacts: {start + 100} so far, {len(counts.faults)} faults", flush=True)
    print(
        f"artifacts: {len(numbers)} changed, {counts.refused} refused, {counts.compiled} compiled, "
        f"{counts.ended} ended MLIR, {counts.endless} kept its reader, {len(counts.faults)} faults"
    )
    return 1 if counts.faults else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None))
