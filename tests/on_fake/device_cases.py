"""What only a whole process shows of csrc/metal's device. Run by test_device.py in a process that has the fake."""

from __future__ import annotations

import ctypes
import time

import jax
import jax.numpy as jnp
import numpy as np

from pjrt_metal import doctor

fake = ctypes.CDLL(None)
fake.FakeAllocated.restype = ctypes.c_long
fake.FakeMemoryPressure.restype = ctypes.c_bool
fake.FakeCommitted.restype = ctypes.c_long
MIB = 1 << 20


def test_memory_pressure_empties_the_cache() -> None:
    device = jax.devices("metal")[0]
    kept = jax.device_put(np.ones(MIB // 4, np.float32), device)
    dropped = jax.block_until_ready(kept + 1)
    del dropped
    # The execution gives up its references a little after the array is ready.
    deadline = time.monotonic() + 5
    while (statistics := device.memory_stats())["pool_bytes"] < MIB and time.monotonic() < deadline:
        time.sleep(0.01)
    held = fake.FakeAllocated()
    assert statistics["pool_bytes"] >= MIB and held >= MIB, (statistics, held)
    assert fake.FakeMemoryPressure()
    assert device.memory_stats()["pool_bytes"] == 0
    assert device.memory_stats()["bytes_in_use"] == statistics["bytes_in_use"]
    assert held - fake.FakeAllocated() >= MIB
    assert float(kept.sum()) == MIB // 4


def test_kernels_are_made_for_their_threadgroups() -> None:
    before = fake.FakePipelinesLimited()
    jax.block_until_ready(jnp.prod(jnp.ones((8, 4096)), axis=1))  # no other test's kernel
    assert fake.FakePipelinesLimited() > before


def test_what_the_doctor_says() -> None:
    found = doctor.device()
    assert found["device"].startswith("Apple Fake")
    assert found["hardware"] == (
        "GPU family apple8, unified memory, working set 8.0 GiB, largest buffer 4.0 GiB, threadgroup memory 32 KiB"
    )


def test_programs_are_encoded_before_their_inputs_are_there() -> None:
    step = jax.jit(lambda x: x[::-1] + 1)
    x = jax.block_until_ready(step(jax.device_put(np.arange(5, dtype=np.float32), jax.devices("metal")[0])))
    before = fake.FakeCommitted()
    fake.FakePause(1)
    y = x
    for _ in range(20):
        y = step(y)
    deadline = time.monotonic() + 5
    while fake.FakeCommitted() - before < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert fake.FakeCommitted() - before >= 2 and not y.is_ready()
    fake.FakePause(0)
    np.testing.assert_array_equal(y, np.asarray(x) + 20)


def test_python_that_runs_ahead_waits_for_memory() -> None:
    step = jax.jit(lambda x: jnp.tanh(x) + 1)
    x = jax.block_until_ready(step(jax.device_put(np.zeros(MIB // 16, np.float32), jax.devices("metal")[0])))
    expected = np.asarray(x)
    fake.FakeMemoryPressure()  # an empty cache
    # Four arrays more.
    fake.FakeUseElsewhere(ctypes.c_long((8 << 30) - fake.FakeAllocated() - MIB))
    try:
        for _ in range(40):
            x = step(x)
            expected = np.tanh(expected) + 1
        np.testing.assert_allclose(x, expected, rtol=1e-5)
    finally:
        fake.FakeUseElsewhere(ctypes.c_long(0))
