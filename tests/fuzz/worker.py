"""A process that compiles and runs programs, or has StableHLO's interpreter run them, for `devices.py`.

Pickled requests come in, results go out:

request   a list of (text, sets of inputs)
answers   for each: ("ok", a list of results for each set) or ("error", what, the number of the set)
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import re
import sys
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

from mlir_lowering.options import read_options
from mlir_lowering.pipeline import compile_program
from mlir_lowering.program import MAGIC, Kernel, Program, serialize
from mlir_lowering.targets import parse_target
from tests.fuzz.interpreter import interpret

Array = np.ndarray[Any, Any]


# XLA:CPU is asked as it stands after these passes are taken away. Fused, it overwrites what it still reads
# (v = cumsum(x); dynamic_update_slice(v, flip(v[:4]), i)). With the simplifier but without fusion, gathers with indices
# without a sign read element 0, and products of integers without a sign, of complex numbers or with several batches are
# wrong. Folded, count_leading_zeros of a negative constant is -32.
_XLA_WITHOUT = "fusion,algsimp,constant_folding"


def compile(text: str, platform: str) -> Any:
    device = jax.devices(platform)[0]
    options = xla_client.CompileOptions()
    if platform == "cpu":
        options.env_option_overrides = [("xla_disable_hlo_passes", _XLA_WITHOUT)]
    return device.client.compile_and_load(text, [device], options)


def execute(executable: Any, platform: str, inputs: list[Array]) -> list[Array]:
    device = jax.devices(platform)[0]
    before = [x.tobytes() for x in inputs]
    with jax.enable_x64(True):
        arguments = [jax.device_put(x, device) for x in inputs]
    results = executable.execute_sharded(arguments)
    found = [np.array(shards[0]) for shards in results.disassemble_into_single_device_arrays()]
    if before != [x.tobytes() for x in inputs]:
        raise RuntimeError("the caller's own array was overwritten")
    return found


def run(text: str, sets: list[list[Array]], platform: str) -> tuple[Any, ...]:
    if platform == "interpreter":
        try:
            return "ok", [interpret(text, inputs) for inputs in sets]
        except Exception as error:
            return "error", f"compile: {type(error).__name__}: {error}"[:3000], 0
    try:
        executable = compile(text, platform)
    except Exception as error:
        return "error", f"compile: {type(error).__name__}: {error}"[:3000], 0
    found = []
    for number, inputs in enumerate(sets):
        try:
            found.append(execute(executable, platform, inputs))
        except Exception as error:
            return "error", f"execute: {type(error).__name__}: {error}"[:3000], number
    return "ok", found


_TRIVIAL = """func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
  %b = stablehlo.add %a, %a : tensor<3xf32>
  return %b : tensor<3xf32>
}
"""


class KernelsAtOnce:
    """Has the kernels of many programs compiled together: most of the host compiler's time goes into its start.

    Loads one Program that has them all; afterwards each program's own kernels are found in the device's memory.
    """

    def __init__(self) -> None:
        self.client = jax.devices("metal")[0].client
        data = self.client.serialize_executable(compile(_TRIVIAL, "metal"))
        at = data.index(MAGIC)
        self.head = data[:at]
        found = re.search(rb"(software|apple\d+)(:[\w=,]*)?", data[at:])
        assert found is not None
        self.target = parse_target(found.group().decode())
        self.program = self._program(_TRIVIAL)

    def _program(self, text: str) -> Program:
        return compile_program(text.encode(), read_options(b""), self.target)

    def compile(self, texts: list[str]) -> None:
        """Errors are left to the compilation of each program on its own."""
        kernels: dict[str, Kernel] = {}
        for text in texts:
            try:
                program = self._program(text)
            except Exception:
                continue
            if program.preamble == self.program.preamble:
                kernels |= {k.name: k for k in program.kernels}
        whole = dataclasses.replace(self.program, kernels=[*self.program.kernels, *kernels.values()])
        with contextlib.suppress(Exception):
            self.client.deserialize_executable(self.head + serialize(whole), jax.devices("metal")[:1], None)


def main() -> None:
    platform = sys.argv[1]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else prints
    if platform != "interpreter":
        jax.devices(platform)
    together = KernelsAtOnce() if platform == "metal" else None
    while True:
        try:
            requests = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        if together is not None and len(requests) > 1:
            together.compile([text for text, _ in requests])
        for text, sets in requests:
            pickle.dump(run(text, sets, platform), answers)
            answers.flush()


if __name__ == "__main__":
    main()
