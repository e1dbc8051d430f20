"""A process that compiles and runs programs on its platform, for `devices.py`: pickled requests in, results out.

    request   (text, sets of inputs)
    answer    ("ok", a list of results for each set) or ("error", what, the number of the set)
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

Array = np.ndarray[Any, Any]


def compile(text: str, platform: str) -> Any:
    """On the CPU each op is a kernel of its own: fused, XLA overwrites what it still reads (dynamic_update_slice)."""
    device = jax.devices(platform)[0]
    options = xla_client.CompileOptions()
    if platform == "cpu":
        options.env_option_overrides = [("xla_disable_hlo_passes", "fusion")]
    return device.client.compile_and_load(text, [device], options)


def execute(executable: Any, platform: str, inputs: list[Array]) -> list[Array]:
    device = jax.devices(platform)[0]
    with jax.enable_x64(True):
        arguments = [jax.device_put(x, device) for x in inputs]
    results = executable.execute_sharded(arguments)
    return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]


def run(text: str, sets: list[list[Array]], platform: str) -> tuple[Any, ...]:
    try:
        executable = compile(text, platform)
    except Exception as error:  # noqa: BLE001: any is a finding
        return "error", f"compile: {type(error).__name__}: {error}"[:3000], 0
    found = []
    for number, inputs in enumerate(sets):
        try:
            found.append(execute(executable, platform, inputs))
        except Exception as error:  # noqa: BLE001
            return "error", f"execute: {type(error).__name__}: {error}"[:3000], number
    return "ok", found


def main() -> None:
    platform = sys.argv[1]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what else prints
    jax.devices(platform)
    while True:
        try:
            text, sets = pickle.load(sys.stdin.buffer)
        except EOFError:
            break
        pickle.dump(run(text, sets, platform), answers)
        answers.flush()


if __name__ == "__main__":
    main()
