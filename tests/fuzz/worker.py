"""Runs programs on one device, in a process of its own: what it was doing when it died is what the supervisor reads.

    python -m tests.fuzz.worker --seed 0 --count 100 --style small

A line of JSON for each event on stdout: {"start": seed}, {"done": seed, ...}, {"fail": seed, "what": ...}.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "metal,cpu")

import jax
import numpy as np
from jaxlib import xla_client

from tests.fuzz import values
from tests.fuzz.evaluate import run_block
from tests.fuzz.generate import LARGE, SMALL, build, redraw
from tests.fuzz.graph import Array, Case, module_text
from tests.fuzz.values import Reject, Val

STYLES = {"small": SMALL, "large": LARGE}
# Values that a program is run with: compiling it costs far more than running it.
INPUT_SETS = 3


@dataclass
class Failure:
    what: str
    inputs: list[Array]


def compile_metal(text: str) -> Any:
    device = jax.devices("metal")[0]
    return device.client.compile_and_load(text, [device], xla_client.CompileOptions())


def compile_xla(text: str) -> Any:
    """XLA:CPU with each op a kernel of its own: fused, it overwrites what it still reads (dynamic_update_slice)."""
    device = jax.devices("cpu")[0]
    options = xla_client.CompileOptions()
    options.env_option_overrides = [("xla_disable_hlo_passes", "fusion")]
    return device.client.compile_and_load(text, [device], options)


def execute(executable: Any, platform: str, inputs: list[Array]) -> list[Array]:
    device = jax.devices(platform)[0]
    with jax.enable_x64(True):
        arguments = [jax.device_put(x, device) for x in inputs]
    results = executable.execute_sharded(arguments)
    return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]


def expected(case: Case, inputs: list[Array]) -> list[Val]:
    return run_block(case.block, [Val(x) for x in inputs])


def differences(case: Case, got: list[Array], want: list[Val]) -> str | None:
    lines = []
    for n, (v, x, val) in enumerate(zip(case.block.outputs, got, want, strict=True)):
        if found := values.compare(x, val, v.dtype):
            lines.append(f"result {n} ({v}: {v.type}): {found}")
    return "\n".join(lines) or None


def check(case: Case, sets: list[list[Array]], compile: Any = compile_metal, platform: str = "metal") -> Failure | None:
    """The first set of inputs with which the device is wrong, or fails."""
    wants = []
    for inputs in sets:
        try:
            wants.append((inputs, expected(case, inputs)))
        except Reject:
            continue
    if not wants:
        return None
    try:
        executable = compile(module_text(case))
    except Exception as error:  # noqa: BLE001: any is a finding
        return Failure(f"compile: {_message(error)}", wants[0][0])
    for inputs, want in wants:
        try:
            got = execute(executable, platform, inputs)
        except Exception as error:  # noqa: BLE001
            return Failure(f"execute: {_message(error)}", inputs)
        if found := differences(case, got, want):
            return Failure(found, inputs)
    return None


def _message(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:1500]


def input_sets(case: Case, seed: int) -> list[list[Array]]:
    return [case.inputs, *(redraw(case, seed + 1_000_000_007 * n) for n in range(1, INPUT_SETS))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--style", choices=STYLES, default="small")
    parser.add_argument("--xla-every", type=int, default=16, help="check the oracle by XLA on each n-th program")
    options = parser.parse_args()
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints

    def say(**event: Any) -> None:
        report.write(json.dumps(event) + "\n")
        report.flush()

    for seed in range(options.seed, options.seed + options.count):
        say(start=seed)
        began = time.perf_counter()
        try:
            case = build(seed, STYLES[options.style])
        except Exception:  # noqa: BLE001: the generator's own fault
            say(fail=seed, kind="generator", what=traceback.format_exc()[-1500:])
            continue
        built = time.perf_counter()
        sets = input_sets(case, seed)
        failure = check(case, sets)
        kind = "metal"
        if failure or seed % options.xla_every == 0:
            other = check(case, [failure.inputs] if failure else sets[:1], compile_xla, "cpu")
            if other:
                kind = "oracle" if not failure else "both"
                failure = Failure(f"{failure.what if failure else ''}\nXLA: {other.what}", other.inputs)
        if failure:
            say(fail=seed, kind=kind, what=failure.what)
        say(done=seed, ops=len(case.block.ops), build=built - began, total=time.perf_counter() - began)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Leave at once: an abandoned executable's destructor is no part of the test.
    os._exit(0)
