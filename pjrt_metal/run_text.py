"""Compiles and runs StableHLO text on a jax device, whatever its platform: for the doctor and the tests."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jaxlib import xla_client

Array = np.ndarray[Any, Any]


def compile_text(text: str | bytes, device: jax.Device) -> Any:
    """A loaded executable for `func.func @main` text (or a portable artifact)."""
    return device.client.compile_and_load(text, [device], xla_client.CompileOptions())


def run_text(text: str, inputs: list[Array], device: jax.Device) -> list[Array]:
    """The results for arguments of exactly the program's types, 64-bit ones included."""
    executable = compile_text(text, device)
    with jax.enable_x64(True):
        arguments = [jax.device_put(x, device) for x in inputs]
    results = executable.execute_sharded(arguments)
    return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]
