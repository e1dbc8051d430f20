"""Arrays and keys of metal used on the CPU: jaxlib copies them through the host, by three ways. Repeated, since what
jaxlib passes with such a copy depends on what is left on its stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.layout import Format, Layout
from jax.sharding import SingleDeviceSharding

TIMES = 20
DTYPES = [
    np.bool_, ml_dtypes.int2, ml_dtypes.int4, ml_dtypes.uint4,
    np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32,
    ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.bfloat16, np.float16, np.float32, np.complex64,
]  # fmt: skip


@pytest.fixture
def cpu() -> Any:
    return jax.devices("cpu")[0]


def put(array: Any, cpu: Any) -> Any:
    return jax.device_put(array, SingleDeviceSharding(cpu))


def outputs(array: Any, cpu: Any) -> Any:
    return jax.jit(lambda a: a, out_shardings=SingleDeviceSharding(cpu))(array)


def operand(array: Any, cpu: Any) -> Any:
    with jax.default_device(cpu):
        return jnp.flip(jnp.flip(array))


WAYS: list[Callable[[Any, Any], Any]] = [put, outputs, operand]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_arrays(way: Callable[[Any, Any], Any], dtype: Any, cpu: Any) -> None:
    for i in range(TIMES):
        shape = [(), (7,), (3, 5), (2, 3, 4)][i % 4]
        values = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
        array = jnp.asarray(values)
        result = way(array, cpu)
        assert array.devices() == {jax.devices()[0]}
        assert result.devices() == {cpu}
        np.testing.assert_array_equal(np.asarray(result), values)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.int4], ids=["float32", "int4"])
@pytest.mark.parametrize("major_to_minor", [(0, 1), (1, 0)])
def test_layouts(dtype: Any, major_to_minor: tuple[int, ...], cpu: Any) -> None:
    """An array of metal that is laid column by column."""
    values = (np.arange(15) % 7).reshape(3, 5).astype(dtype)
    array = jax.device_put(values, Format(Layout(major_to_minor), SingleDeviceSharding(jax.devices()[0])))
    assert array.format.layout.major_to_minor == major_to_minor
    for _ in range(TIMES):
        np.testing.assert_array_equal(np.asarray(put(array, cpu)), values)
        array.copy_to_host_async()
        np.testing.assert_array_equal(np.asarray(array), values)


def test_keys(cpu: Any) -> None:
    """The key is metal's; what is drawn from it on the CPU is what the CPU draws from its own."""
    with jax.default_device(cpu):
        want = np.asarray(jax.random.normal(jax.random.key(3), (4,)))
    for _ in range(TIMES):
        key = jax.random.key(3)
        with jax.default_device(cpu):
            drawn = jax.random.normal(key, (4,))
        np.testing.assert_array_equal(np.asarray(drawn), want)
        data = jax.random.key_data(jax.device_put(key, SingleDeviceSharding(cpu)))
        np.testing.assert_array_equal(np.asarray(data), [0, 3])
