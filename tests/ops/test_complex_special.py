"""Complex functions where a part overflows, is infinite, NaN or zero, against the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

INF, NAN = np.inf, np.nan

CASES: dict[str, tuple[Callable[[Any], Any], list[complex]]] = {
    "expm1": (jnp.expm1, [complex(INF, 0), 1e30 + 0j, complex(NAN, 0), 1 + 2j, 1e-9 + 1e-9j]),
    "root": (lambda z: z ** np.float32(1 / 3), [complex(INF, 0), 1 + 1j, 0j]),
    "power of zero": (lambda z: z ** jnp.zeros((), z.dtype), [complex(INF, 0), complex(NAN, 0), 0j, 1 + 1j]),
    "tanh": (
        jnp.tanh,
        [complex(1e30, NAN), 30 + 2j, -30 + 2j, complex(INF, 1), complex(-INF, NAN), complex(NAN, 0), 0.3 - 0.4j],
    ),
    "tan": (jnp.tan, [complex(0, NAN), 0.3 - 0.4j, 2 + 30j]),
    "sinh": (jnp.sinh, [-100 + 1e-30j, complex(-100, -1e-30), 25 + 1j, -25 + 1j, 1 + 1j, complex(INF, 1)]),
    "cosh": (jnp.cosh, [-100 + 1e-30j, complex(-100, -1e-30), 25 + 1j, -25 + 1j, 1 + 1j]),
    "sin": (jnp.sin, [complex(1e-30, -100), 1 + 25j, 1 - 25j]),
    "cos": (jnp.cos, [complex(1e-30, -100), 1 + 25j, 1 - 25j]),
}


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", CASES)
def test_equals_the_cpus(name: str, dtype: Any) -> None:
    function, values = CASES[name]
    with jax.enable_x64(True):
        z = np.array(values, dtype)
        metal, cpu = (np.asarray(jax.jit(function)(jax.device_put(z, jax.devices(p)[0]))) for p in ("metal", "cpu"))
    rtol = 1e-5 if dtype is np.complex64 else 1e-13
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(metal), part(cpu), rtol=rtol)


SPECIAL = [
    0j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(-0.0, -0.0), 1 + 0j, -1 + 0j, 1j, -1j, 2 + 0j, -2 + 0j,
    0.5 + 0j, -0.5 + 0j, 2j, -2 + 0.5j, 2 + 1j, 1e-30 + 0j, 3e38 + 0j, 1 + 3e38j, complex(INF, 0), complex(-INF, 0),
    complex(0, INF), complex(INF, INF), complex(INF, 1), complex(2, -INF), complex(NAN, 0), complex(0, NAN),
    complex(NAN, NAN), complex(1, NAN), complex(INF, NAN),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_special_powers_are_the_cpus(dtype: Any) -> None:
    """Every pair of special numbers. Of finite ones whose power overflows the CPU makes inf + nan j where ours, and
    numpy's, is inf + 0j."""
    base, exponent = (x.ravel().astype(dtype) for x in np.meshgrid(SPECIAL, SPECIAL))
    with jax.enable_x64(True):
        metal, cpu = (
            np.asarray(jax.jit(jnp.power)(*(jax.device_put(x, jax.devices(p)[0]) for x in (base, exponent))))
            for p in ("metal", "cpu")
        )
    overflow = np.isinf(cpu.real) & np.isnan(cpu.imag) & np.isfinite(base) & np.isfinite(exponent)
    assert overflow.sum() < 6
    assert np.all(np.isinf(metal[overflow].real) & (metal[overflow].imag == 0))
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(metal)[~overflow], part(cpu)[~overflow], rtol=1e-5, atol=1e-6)
    zero = (base == 0) & (exponent != 0)
    falls = (exponent.imag == 0) & (exponent.real > 0)
    assert np.all(metal[zero & falls] == 0)
    assert np.all(np.isnan(metal[zero & ~falls]))


def test_root_and_reciprocal_root_of_the_largest() -> None:
    z = np.array([3e38 + 3e38j, -3e38 + 3e38j, 3e38 - 1j, -3e38 - 3e38j, 3e38j, 4e37 + 1e37j], np.complex64)
    wide = np.sqrt(z.astype(np.complex128))
    on = jax.device_put(z, jax.devices("metal")[0])
    np.testing.assert_allclose(np.asarray(jax.jit(jax.lax.rsqrt)(on)), 1 / wide, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(jax.jit(jax.lax.sqrt)(on)), wide, rtol=1e-6)
