"""The devices that programs run on, each in a process of its own: a crash or a hang is an answer like another."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz import values
from tests.fuzz.evaluate import run_block
from tests.fuzz.graph import Array, Case, module_text
from tests.fuzz.values import Reject, Val

ROOT = Path(__file__).resolve().parents[2]
# Seconds for one program: longer is a hang. A loaded machine's compiler needs its time.
LIMIT = 90.0
# Programs after which a process is replaced: kernels stay loaded, five maps each.
LIFETIME = 2000

_STRICT = {f"apple{n}": {"PJRT_METAL_STRICT": f"apple{n}"} for n in (7, 8, 9)}
DEVICES: dict[str, dict[str, str]] = {
    "fast": {},
    "fast-O1": {"PJRT_METAL_CXX": str(Path(__file__).parent / "compiler_o1.sh")},
    "checked": {"PJRT_METAL_STRICT": "software"},
    **_STRICT,
    "fake": {"PJRT_METAL_DEVICE": "gpu", "PJRT_METAL_LIBRARY": "kernels"},
    "fake-library": {"PJRT_METAL_DEVICE": "gpu", "PJRT_METAL_LIBRARY": "mpsgraph"},
    # Oracles, to test numpy's part by.
    "xla": {},
    "interpreter": {},
}


Request = tuple[str, list[list[Array]]]


@dataclass
class Failure:
    what: str
    inputs: list[Array]


@dataclass
class Device:
    """`variables` are added to the process's environment."""

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _served: int = 0
    _errors: Any = None

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None and self._served < LIFETIME:
            return self._process
        self.close()
        environment = os.environ | {"JAX_PLATFORMS": "metal,cpu"} | DEVICES[self.name] | self.variables
        environment["PYTHONSAFEPATH"] = "1"  # the installed package, or a planted compiler, not the checkout's
        if self.name.startswith("fake"):
            from tests.metal import build_fake

            environment["LD_PRELOAD"] = str(build_fake.library())
        platform = {"xla": "cpu", "interpreter": "interpreter"}.get(self.name, "metal")
        if platform != "metal":
            environment["JAX_PLATFORMS"] = "cpu"
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.worker", platform],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd=ROOT,
        )
        self._served = 0
        return self._process

    def run(self, requests: list[Request]) -> list[tuple[Any, ...]]:
        """The worker's answers; ("error", "crash"...) for a program that it does not survive."""
        answers: list[tuple[Any, ...]] = []
        together = True
        while len(answers) < len(requests):
            rest = requests[len(answers) :]
            found = self._ask(rest if together else rest[:1])
            # With no answer to many programs, who knows which it was: one by one, then.
            if together and len(rest) > 1 and len(found) == 1 and found[0][0] == "error" and self._process is None:
                together = False
                continue
            answers += found
        return answers

    def _ask(self, requests: list[Request]) -> list[tuple[Any, ...]]:
        process = self._start()
        self._served += len(requests)
        assert process.stdin is not None and process.stdout is not None
        answers: list[tuple[Any, ...]] = []
        try:
            pickle.dump(requests, process.stdin)
            process.stdin.flush()
            for number in range(len(requests)):
                # The first answer comes when the kernels of all are compiled.
                limit = LIMIT + (10 * len(requests) if number == 0 else 0)
                if not select.select([process.stdout], [], [], limit)[0]:
                    self.close()
                    return [*answers, ("error", f"hang: nothing for {limit:.0f} s", 0)]
                answers.append(pickle.load(process.stdout))
            return answers
        except (EOFError, BrokenPipeError, pickle.UnpicklingError):
            code = process.wait()
            self._errors.seek(0)
            tail = self._errors.read()[-1500:].decode(errors="replace")
            self.close()
            return [*answers, ("error", f"crash: exit code {code}\n{tail}", 0)]

    def check(self, items: list[tuple[Case, list[list[Array]]]]) -> list[Failure | None]:
        """For each case the first set of inputs with which the device is wrong, or fails."""
        found: list[Failure | None] = [None] * len(items)
        wants: list[tuple[int, list[list[Array]], list[list[Val]]]] = []
        for n, (case, sets) in enumerate(items):
            known, want = [], []
            for inputs in sets:
                try:
                    want.append(expected(case, inputs))
                    known.append(inputs)
                except Reject:
                    continue
            if known:
                wants.append((n, known, want))
        answers = self.run([(module_text(items[n][0]), known) for n, known, _ in wants])
        for (n, known, want), answer in zip(wants, answers, strict=True):
            if answer[0] == "error":
                found[n] = Failure(answer[1], known[answer[2]])
                continue
            for inputs, vals, got in zip(known, want, answer[1], strict=True):
                if what := differences(items[n][0], got, vals):
                    found[n] = Failure(what, inputs)
                    break
        return found

    def one(self, case: Case, sets: list[list[Array]]) -> Failure | None:
        return self.check([(case, sets)])[0]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._errors.close()
        self._process = None


def expected(case: Case, inputs: list[Array]) -> list[Val]:
    return run_block(case.block, [Val(x) for x in inputs])


def differences(case: Case, got: list[Array], want: list[Val]) -> str | None:
    lines = []
    for n, (v, x, val) in enumerate(zip(case.block.outputs, got, want, strict=True)):
        if found := values.compare(x, val, v.dtype):
            lines.append(f"result {n} ({v}: {v.type}): {found}")
    return "\n".join(lines) or None
