"""Complex numbers through jax.numpy on metal, against numpy's complex128 and, at the edges, jax on CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

Array = Any
METAL, CPU = jax.devices("metal")[0], jax.devices("cpu")[0]


def draw(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def on(device: jax.Device, f: Callable[..., Array], *args: Any) -> Any:
    return jax.tree.map(np.asarray, jax.jit(f)(*jax.device_put(args, device)))


CASES: dict[str, tuple[Callable[..., Array], tuple[tuple[int, ...], ...]]] = {
    "parts": (lambda z: (z.real, z.imag, jnp.conj(z), jnp.abs(z), jnp.angle(z)), ((3, 5),)),
    "polynomial": (lambda z: (z * z - 2j) / (z + 3), ((40,),)),
    "matmul": (lambda a, b: a @ b, ((17, 33), (33, 9))),
    "einsum": (lambda a, b: jnp.einsum("bik,bkj->bji", a, b), ((3, 4, 5), (3, 5, 6))),
    "sum and mean": (lambda z: (z.sum(0), z.mean(), z.prod(1)), ((6, 7),)),
    "cumsum": (lambda z: jnp.cumsum(z, 1), ((3, 50),)),
    "sort": (lambda z: jnp.sort(z), ((31,),)),
    "scatter": (lambda z: z.at[jnp.array([1, 1, 4])].add(1 + 1j), ((6,),)),
    "gather": (lambda z: z[jnp.array([5, 0, 5])][:, ::-1], ((6, 4),)),
    "pad and concatenate": (lambda z: jnp.concatenate([jnp.pad(z, 1), jnp.zeros((1, 6), z.dtype)]), ((3, 4),)),
    "where": (lambda z: jnp.where(z.real > 0, z, -z), ((50,),)),
    "scan": (lambda z: jax.lax.scan(lambda c, x: (c * 0.5j + x, c), z[0], z), ((20,),)),
    "norm's gradient": (jax.grad(lambda z: jnp.sum(jnp.abs(z) ** 2)), ((9,),)),
    "vmap": (jax.vmap(lambda a, b: jnp.vdot(a, b)), ((5, 8), (5, 8))),
    "inverse functions": (lambda z: (jnp.arcsin(z), jnp.arccos(z), jnp.arctan(z), jnp.arcsinh(z)), ((30,),)),
    "equality": (lambda z: (z == z, z != z[0], jnp.isfinite(z)), ((9,),)),
    "from integers": (lambda z: z + jnp.arange(4) + jnp.array([True, False, True, True]), ((4,),)),
}


@pytest.mark.parametrize("name", CASES)
def test_against_cpu(name: str) -> None:
    f, shapes = CASES[name]
    args = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    got, want = on(METAL, f, *args), on(CPU, f, *args)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), got, want)
    jax.tree.map(lambda a, b: np.testing.assert_equal(a.dtype, b.dtype), got, want)


FUNCTIONS = {
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "abs": np.abs, "square": np.square,
    "reciprocal": np.reciprocal,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_over_many_magnitudes(name: str, dtype: Any) -> None:
    """Parts from 1e-6 to 30, in all four quadrants, near the axes and near the unit circle."""
    rng = np.random.default_rng(3)
    sizes = np.exp(rng.uniform(np.log(1e-6), np.log(30), (2, 400))) * rng.choice([-1, 1], (2, 400))
    circle = np.exp(1j * rng.uniform(0, 2 * np.pi, 50)) * (1 + rng.uniform(-1e-4, 1e-4, 50))
    z = np.concatenate([sizes[0] + 1j * sizes[1], circle]).astype(dtype)
    with jax.enable_x64(True):
        got = on(METAL, getattr(jnp, name), z)
    wide = z.astype(np.clongdouble)
    want = FUNCTIONS[name](wide)
    # Relative to the magnitude: one part may cancel.
    error = np.abs(got - want) / np.maximum(np.abs(want), np.finfo(dtype).tiny)
    assert got.dtype == (np.abs(z) if name == "abs" else z).dtype
    assert np.max(error) < (60 if name in ("sin", "cos", "tan", "tanh", "log1p") else 16) * np.finfo(dtype).eps


def test_power() -> None:
    a, b = draw(60, seed=1), draw(60, seed=2)
    got = on(METAL, jnp.power, a, b)
    np.testing.assert_allclose(got, a.astype(np.complex128) ** b.astype(np.complex128), rtol=3e-5)


EDGES = np.array(
    [0, 1, -1, 1j, -1j, 3e38, 3e38j, 3e38 + 3e38j, 4e-38 + 4e-38j, 1e-30, complex(-0.0, 0.0)], np.complex64
)


@pytest.mark.parametrize("name", ["abs", "sqrt", "square", "exp", "sign", "log"])
def test_large_small_and_zero(name: str) -> None:
    z = EDGES * 0.5 if name == "sign" else EDGES
    with np.errstate(all="ignore"):
        want = {"sign": lambda z: z / np.maximum(np.abs(z), 1e-300), **FUNCTIONS}[name](z.astype(np.complex128))
    got = on(METAL, getattr(jnp, name), z)
    inside = np.abs(want) < 3.4e38
    np.testing.assert_allclose(got[inside], want[inside].astype(np.complex128), rtol=1e-5, atol=1e-37)


def test_quotients_at_the_edges_are_xlas() -> None:
    a = np.array([1, 1j, 1 + 1j, 3e38 + 3e38j, 1e-37, 0, np.inf, 2 - 3j], np.complex64)
    b = np.array([0, 1, 3e38 + 3e38j, 1e-30 + 1e-30j, np.inf, 5j, 1e-20j], np.complex64)
    got, want = (on(d, lambda a, b: a[:, None] / b, a, b) for d in (METAL, CPU))
    for part in (np.real, np.imag):
        np.testing.assert_allclose(part(got), part(want), rtol=1e-5, atol=1e-37)
