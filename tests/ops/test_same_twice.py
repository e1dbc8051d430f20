"""A value that is evaluated twice is the same twice: no compiler fuses a product into a sum where the program has two.

A fused kernel evaluates values that another has stored (a softmax's argument for the maximum and for the exponent).
So elementwise arithmetic is IEEE's, op by op: numpy's to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

METAL = jax.devices("metal")[0]
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16, np.float64]


def on_metal(f: Callable[..., Any], *args: Any) -> Any:
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, jax.jit(f)(*(jax.device_put(a, METAL) for a in args)))


@pytest.mark.parametrize("scale", [1e12, 3.3333e9, 1e30])
@pytest.mark.parametrize("shape", [(7, 33), (1, 1000), (64, 5)])
def test_softmax_of_large_products(scale: float, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    got = on_metal(lambda x: jax.nn.softmax(x * scale), x)
    logits = (x * np.float32(scale)).astype(np.float64)
    want = np.exp(logits - logits.max(-1, keepdims=True))
    np.testing.assert_allclose(got, want / want.sum(-1, keepdims=True), rtol=1e-5, atol=1e-30)


def test_distance_to_the_maximum_is_zero_there() -> None:
    a, b = (np.random.default_rng(i).standard_normal((50, 40)).astype(np.float32) * 1e6 for i in (1, 2))

    def f(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = a * b
        return (product - product.max(1, keepdims=True)).max(1), product

    distance, product = on_metal(f, a, b)
    np.testing.assert_array_equal(distance, np.zeros(50, np.float32))
    np.testing.assert_array_equal(product, a * b)


CHAINS: dict[str, Callable[..., Any]] = {
    "a * b + c": lambda a, b, c: a * b + c,
    "c - a * b": lambda a, b, c: c - a * b,
    "a * b - c * b": lambda a, b, c: a * b - c * b,
    "product stored and used": lambda a, b, c: (a * b, a * b + c, c - a * b),
    "Horner": lambda a, b, c: ((a * b + c) * b - a) * c + b,
    "quotient": lambda a, b, c: (a * b - c) / (b * b + a * a),
    "shifted": lambda a, b, c: (a * b)[1:] - (a * b)[:-1] + c[1:],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CHAINS)
def test_arithmetic_is_numpys_to_the_bit(name: str, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(531).astype(dtype) for _ in range(3))
    got = on_metal(CHAINS[name], a, b, c)
    # numpy computes 16-bit floats op by op through f32, as kernels do.
    want = CHAINS[name](a, b, c)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_product_of_a_number_and_its_conjugate_is_real() -> None:
    rng = np.random.default_rng(4)
    z = (rng.standard_normal(100) + 1j * rng.standard_normal(100)).astype(np.complex64)
    np.testing.assert_array_equal(on_metal(lambda z: (z * jnp.conj(z)).imag, z), np.zeros(100, np.float32))
