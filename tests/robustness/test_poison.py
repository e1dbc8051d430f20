"""PJRT_METAL_POISON: what nobody wrote is bytes of 0xff, on every device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.on_fake import processes

ROOT = Path(__file__).parents[2]

# 400 bytes stand in a block of 448. A block that was freed stays in the cache, where it may be looked at.
PROGRAM = """
import ctypes
import jax, jax.numpy as jnp, numpy as np

def byte(address, count):
    return set(ctypes.string_at(address, count))

device = jax.devices("metal")[0]
print(device.device_kind)
# Not aligned as a device's memory is, which would be used in place.
given = jax.device_put(np.zeros(101, np.float32)[1:], device)
made = jax.jit(lambda x: x * 0)(given)
jax.block_until_ready(made)
addresses = [x.unsafe_buffer_pointer() for x in (given, made)]
print([byte(a, 400) == {0} for a in addresses], [byte(a + 400, 48) for a in addresses])
del given, made
print([byte(a, 448) for a in addresses])
# Of temporaries: two values of one size, one after the other in an arena that is used again.
for _ in range(2):
    print(jax.jit(lambda x: jnp.sort(jnp.cumsum(jnp.sort(x))))(np.arange(3, dtype=np.float32)))
"""


def output(device: str, poison: str) -> list[str]:
    if device == "fake":
        result = processes.run(["-c", PROGRAM], PJRT_METAL_POISON=poison)
    else:
        variables = {"PJRT_METAL_POISON": poison, "JAX_PLATFORMS": "metal,cpu", "PJRT_METAL_STRICT": device}
        result = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=os.environ | variables, cwd=ROOT, capture_output=True, text=True
        )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("device", ["", "software", "apple8", "fake"])
def test_what_nobody_wrote(device: str) -> None:
    kind, padding, freed, *sums = output(device, "1")
    assert ("strict" in kind) == (device in ("software", "apple8")), kind
    assert padding == "[True, True] [{255}, {255}]"
    assert freed == "[{255}, {255}]"
    assert sums == ["[0. 1. 3.]"] * 2


def test_off() -> None:
    assert output("", "0")[2] != "[{255}, {255}]"
