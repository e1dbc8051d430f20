"""Training steps during which memory runs out: at the n-th allocation, for each n. One process a device.

    python -m tests.robustness.allocation_faults loaded|anew

Each attempt puts the state on the device, makes two steps and reads the result; `anew`: having loaded the program.
From its n-th allocation on there is no memory: an exception that says so. Or that one allocation alone fails: the
allocator gives back what it keeps and asks again, and the result is right. Then the next attempt is right, and no
memory is lost. Prints the number of allocations, of exceptions, and of failures that were got over.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

METAL = jax.devices("metal")[0]
SIZES = [(24, 40), (40, 56), (56, 8)]


class Controls:
    """The fake Metal's, or those of the preloaded faults.cc."""

    def __init__(self) -> None:
        process: Any = ctypes.CDLL(None)
        self.is_fake = hasattr(process, "FakeFailAllocation")
        self.fail = process.FakeFailAllocation if self.is_fake else process.FailAllocation
        self.fail.restype = ctypes.c_long
        self.process = process

    def drop_cached(self) -> None:
        """The allocator keeps no free memory: every allocation asks the device."""
        if self.is_fake:
            assert self.process.FakeMemoryPressure()
            return
        too_much = np.broadcast_to(np.float32(0), (METAL.memory_stats()["bytes_limit"] // 4 + 1,))
        try:
            jax.device_put(too_much, METAL)
        except jax.errors.JaxRuntimeError as error:
            assert "RESOURCE_EXHAUSTED" in str(error)
        else:
            raise AssertionError("more than all memory was allocated")
        assert METAL.memory_stats()["pool_bytes"] == 0


def state() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(size).astype(np.float32) / 8 for size in SIZES]


X = np.random.default_rng(1).standard_normal((32, SIZES[0][0])).astype(np.float32)


def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    table = jnp.asarray(np.linspace(-1, 1, SIZES[-1][1], dtype=np.float32))  # a constant of the program
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean((x - table) ** 2)


def step(weights: list[jax.Array], momentum: list[jax.Array], x: jax.Array) -> Any:
    value, gradients = jax.value_and_grad(loss)(weights, x)
    momentum = [0.9 * m + g for m, g in zip(momentum, gradients, strict=True)]
    return [w - 0.1 * m for w, m in zip(weights, momentum, strict=True)], momentum, value


def attempt(compiled: Any) -> list[np.ndarray]:
    weights, x = jax.device_put((state(), X), METAL)
    momentum = jax.device_put([np.zeros(size, np.float32) for size in SIZES], METAL)
    for _ in range(2):
        weights, momentum, value = compiled(weights, momentum, x)
    return [np.asarray(array) for array in (*weights, *momentum, value)]


def fresh() -> Any:
    return jax.jit(step, donate_argnums=(0, 1))


def check(got: list[np.ndarray], expected: list[np.ndarray]) -> None:
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e)


def expected_on_cpu() -> list[np.ndarray]:
    with jax.default_device(jax.devices("cpu")[0]):
        weights: Any = state()
        momentum: Any = [np.zeros(size, np.float32) for size in SIZES]
        for _ in range(2):
            weights, momentum, value = jax.jit(step)(weights, momentum, X)
        return [np.asarray(array) for array in (*weights, *momentum, value)]


def sweep(controls: Controls, make: Callable[[], Any], expected: list[np.ndarray]) -> dict[str, int]:
    def counted() -> int:
        compiled = make()
        controls.drop_cached()
        controls.fail(0, 0)
        check(attempt(compiled), expected)
        return int(controls.fail(0, 0))

    counted()
    allocations = counted()
    raised = absorbed = 0
    gc.collect()
    in_use = METAL.memory_stats()["bytes_in_use"]
    for once in (0, 1):
        for n in range(1, allocations + 1):
            compiled = make()
            controls.drop_cached()
            controls.fail(n, once)
            try:
                check(attempt(compiled), expected)
                absorbed += 1
            except (jax.errors.JaxRuntimeError, ValueError) as error:  # jaxlib's, by the way it took
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                raised += 1
            finally:
                controls.fail(0, 0)
            check(attempt(compiled), expected)
            del compiled
            gc.collect()
    now = METAL.memory_stats()["bytes_in_use"]
    assert now <= in_use, f"{now - in_use} bytes of the device's memory are lost"
    return {"allocations": allocations, "raised": raised, "absorbed": absorbed}


def main(how: str) -> None:
    controls = Controls()
    compiled = fresh()
    expected = attempt(compiled)
    for g, e in zip(expected, expected_on_cpu(), strict=True):
        np.testing.assert_allclose(g, e, rtol=2e-5, atol=1e-6)

    def anew() -> Any:
        jax.clear_caches()
        return fresh()

    print(json.dumps(sweep(controls, anew if how == "anew" else lambda: compiled, expected)))


if __name__ == "__main__":
    main(sys.argv[1])
