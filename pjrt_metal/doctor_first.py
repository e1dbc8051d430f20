"""The first minutes on a Mac, which no test of ours has seen: each in a process of its own, before anything else.

What ends such a process is reported with its last words and not the doctor's end. The details say what was found.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator

from pjrt_metal.doctor import FIRST, Check

PATIENCE = 300  # seconds; Metal's compiler and MPSGraph may be loaded for the first time

_START = """
import numpy as np, jax, jax.numpy as jnp
from jax import lax
metal = jax.devices("metal")[0]
def same(found, expected, rtol=1e-5):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=1e-6)
"""
# Copies on the GPU: what a program returns twice is copied, at sizes around 16 bytes a thread.
_COPIES = """
for n in (1, 3, 15, 16, 17, 1000, 1 << 20):
    x = np.arange(n, dtype=np.uint8)
    for y in jax.jit(lambda x: (x, x))(jax.device_put(x, metal)):
        np.testing.assert_array_equal(np.asarray(y), x)
print("7 sizes")
"""
# Every function of msl/*.metal is in one of these kernels.
_FUNCTIONS = """
x = np.linspace(-0.9, 0.9, 64).astype(np.float32)
z = (x + 1j * x[::-1]).astype(np.complex64)
cases = {
    "erf": (lax.erf, x), "erfc": (lax.erfc, x), "expm1": (lax.expm1, x), "log1p": (lax.log1p, x),
    "cbrt": (lax.cbrt, x), "sign": (lax.sign, x), "max": (lambda x: lax.max(x, -x), x),
    "min": (lambda x: lax.min(x, -x), x), "rem": (lambda x: lax.rem(3 + x, x), x),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 5, 7), x),
    "to_integer": (lambda x: (x * 1e12).astype(np.int32), x), "ipow": (lambda x: (x * 9).astype(np.int32) ** 3, x),
    "shifts": (lambda x: lax.shift_right_arithmetic((x * 1e6).astype(np.int32), 3), x),
    "division": (lambda x: lax.div((x * 1e6).astype(np.int32), 7) + lax.rem((x * 1e6).astype(np.int32), 7), x),
    "popcount": (lambda x: lax.population_count((x * 1e6).astype(np.int32)), x),
    "clz": (lambda x: lax.clz((x * 1e6).astype(np.int32)), x), "sort": (jnp.sort, x[::-1]),
}
complexes = "abs exp expm1 log log1p sqrt sin cos tan tanh sign".split()
cases |= {"complex " + name: (getattr(lax, name), z) for name in complexes}
cases |= {"complex *": (lambda z: z * z, z), "complex /": (lambda z: z / (z + 2), z), "complex **": (lambda z: z**z, z)}
cpu = jax.devices("cpu")[0]
wrong = []
for name, (function, argument) in cases.items():
    try:
        expected = np.asarray(jax.jit(function)(jax.device_put(argument, cpu)))
        same(jax.jit(function)(jax.device_put(argument, metal)), expected, 1e-4)
    except Exception as error:
        wrong.append(f"{name}: {str(error).strip()[:1500]}")
print(f"{len(cases) - len(wrong)} of {len(cases)}")
assert not wrong, chr(10).join(wrong)
"""
# A sum of 256 products in f32 is off by 256 roundings of what is summed at most, in whatever order; where its terms
# cancel, that is much of it.
_LIBRARY = """
a = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
found = np.asarray(jax.jit(jnp.matmul)(*jax.device_put((a, a), metal)))
exact, size = a.astype(np.float64) @ a, np.abs(a) @ np.abs(a)
np.testing.assert_array_less(np.abs(found - exact), 256 * 2.0**-24 * size)
print("256 x 256")
"""
_RESIDENCY = """
x = jax.device_put(np.ones(1 << 22, np.float32), metal)
for _ in range(50):
    x = jax.jit(lambda x: x * 0.5 + 0.5)(x)
same(x.sum(), 1 << 22)
statistics = metal.memory_stats()
print(f"{statistics['bytes_in_use'] >> 20} MiB in use, {statistics['pool_bytes'] >> 20} MiB kept")
"""
_OPEN = "print(metal.device_kind, '|', getattr(metal, 'target', ''), '|', metal.client.platform_version)"


def applies() -> bool:
    """Where there is a GPU, or there should be one."""
    return platform.system() == "Darwin" or os.environ.get("PJRT_METAL_DEVICE") == "gpu"


def _run(program: str, show: str = "", **variables: str) -> str:
    """What the program prints, and the plugin's log lines that match `show`; raises with its last words."""
    environment = os.environ | {"JAX_PLATFORMS": "metal,cpu", "PJRT_METAL_LOG": "1"} | variables
    command = [sys.executable, "-c", _START + program]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False, errors="replace"
    )
    log = [line.removeprefix("pjrt_metal: ") for line in ran.stderr.splitlines() if line.startswith("pjrt_metal: ")]
    shown = [re.sub(r"\s+", " ", line) for line in log if show and re.match(show, line)]
    if ran.returncode != 0:
        words = [line for line in ran.stderr.splitlines() if not line.startswith("pjrt_metal: ")]
        raise RuntimeError("\n".join([f"ended with {ran.returncode}", *shown, *words[-40:], "log:", *log[-5:]]))
    return "; ".join([*ran.stdout.split("\n")[:-1], *shown])


def checks() -> Iterator[Check]:
    """In the order in which a program meets them."""
    gpu = {"PJRT_METAL_DEVICE": "gpu"}
    yield Check(FIRST, "both of Metal's doors to a device", lambda: _run(_OPEN, "metal: (devices|no )", **gpu))
    yield Check(FIRST, "functions that kernels carry", lambda: _run(_FUNCTIONS, **gpu, PJRT_METAL_LIBRARY="kernels"))
    yield Check(FIRST, "copies are kernels", lambda: _run(_COPIES, **gpu))
    yield Check(FIRST, "memory is kept resident", lambda: _run(_RESIDENCY, "metal: no res", **gpu))
    yield Check(
        FIRST,
        "without residency (PJRT_METAL_RESIDENCY=0)",
        lambda: _run(_RESIDENCY, "metal: no res", **gpu, PJRT_METAL_RESIDENCY="0"),
    )
    yield Check(
        FIRST,
        "MPSGraph, tried in a child process and timed",
        lambda: _run(_LIBRARY, "library:", **gpu, PJRT_METAL_LIBRARY="auto"),
    )
    yield Check(FIRST, "MPSGraph", lambda: _run(_LIBRARY, "library:", **gpu, PJRT_METAL_LIBRARY="mpsgraph"))
    yield Check(FIRST, "matrix products of our own", lambda: _run(_LIBRARY, **gpu, PJRT_METAL_LIBRARY="kernels"))
