"""What a small call costs: a cached jitted scalar add, and an eager op at a shape not seen before.

JAX_PLATFORMS=metal,cpu python -m benchmarks.latency
"""

from __future__ import annotations

import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from benchmarks.timing import report

_JSON = flags.DEFINE_string("json", None, "Where the figures go as JSON.")
_CALLS = flags.DEFINE_integer("calls", 2000, "Calls a round of the scalar add.")


def cached_add(device: jax.Device) -> float:
    """Seconds a call of a jitted scalar add whose executable is cached; the median of ten rounds."""
    x = jax.device_put(np.float32(1), device)
    add = jax.jit(lambda a: a + 1)
    add(x).block_until_ready()
    rounds = []
    for _ in range(10):
        start = time.perf_counter()
        for _ in range(_CALLS.value):
            y = add(x)
        y.block_until_ready()
        rounds.append((time.perf_counter() - start) / _CALLS.value)
    return statistics.median(rounds)


def first_eager(device: jax.Device, base: int) -> float:
    """Seconds of `x * 2` at a shape never seen, when the op was seen at other shapes; median of 20."""
    times = []
    for i in range(22):
        x = jax.device_put(np.ones(base + i, np.float32), device)
        start = time.perf_counter()
        jnp.multiply(x, x).block_until_ready()
        times.append(time.perf_counter() - start)
    return statistics.median(times[2:])


def main(argv: list[str]) -> None:
    del argv
    devices = {name: jax.devices(name)[0] for name in ("metal", "cpu")}
    rows = []
    for label, measure in (
        ("cached scalar add (us)", lambda d, i: cached_add(d) * 1e6),
        ("first eager op at a new shape (ms)", lambda d, i: first_eager(d, 1000 + 500 * i) * 1e3),
    ):
        figures = {name: measure(d, i) for i, (name, d) in enumerate(devices.items())}
        rows.append({"what": label, **figures, "metal/cpu": figures["metal"] / figures["cpu"]})
    report("latency", rows, _JSON.value)


if __name__ == "__main__":
    app.run(main)
