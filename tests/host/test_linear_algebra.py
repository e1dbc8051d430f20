"""jax.numpy.linalg, jax.scipy.linalg and jax.lax.linalg on metal against XLA:CPU: both call jaxlib's LAPACK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
import pytest
from jax.lax import linalg

Function = Callable[[Any], Any]


def _general(a: Any) -> Any:
    return a


def _hermitian(a: Any) -> Any:
    return a + np.swapaxes(a, -1, -2).conj()


def _positive(a: Any) -> Any:
    return a @ np.swapaxes(a, -1, -2).conj() + a.shape[-1] * np.eye(a.shape[-1], dtype=a.dtype)


def _banded(a: Any) -> Any:
    ones = jnp.ones_like(a[..., 0])
    return linalg.tridiagonal_solve(ones.at[..., 0].set(0), 5 * ones, ones.at[..., -1].set(0), a)


def _reflectors(a: Any) -> Any:
    return linalg.householder_product(*linalg.geqrf(a)) if hasattr(linalg, "geqrf") else jnp.linalg.qr(a)


# Name: what is computed of which kind of matrix.
_FAMILIES: dict[str, tuple[Function, Function]] = {
    "cholesky": (jnp.linalg.cholesky, _positive),
    "cho_solve": (lambda a: jax.scipy.linalg.cho_solve((a, True), a), _positive),
    "inv": (jnp.linalg.inv, _general),
    "det": (jnp.linalg.det, _general),
    "slogdet": (jnp.linalg.slogdet, _general),
    "solve": (lambda a: jnp.linalg.solve(a, a @ a), _general),
    "lu": (linalg.lu, _general),
    "qr": (jnp.linalg.qr, _general),
    "qr_complete": (lambda a: jnp.linalg.qr(a[..., :-1], mode="complete"), _general),
    "householder_product": (_reflectors, _general),
    "qr_pivoting": (lambda a: jax.scipy.linalg.qr(a, pivoting=True), _general),
    "svd": (jnp.linalg.svd, _general),
    "svdvals": (jnp.linalg.svdvals, _general),
    "svd_wide": (lambda a: jnp.linalg.svd(a[..., :-1, :], full_matrices=False), _general),
    "pinv": (jnp.linalg.pinv, _general),
    "lstsq": (lambda a: jnp.linalg.lstsq(a, a[:, 0])[0], _general),
    "matrix_rank": (jnp.linalg.matrix_rank, _general),
    "eigh": (jnp.linalg.eigh, _hermitian),
    "eigvalsh": (jnp.linalg.eigvalsh, _hermitian),
    "eigh_upper": (lambda a: jnp.linalg.eigh(a, UPLO="U", symmetrize_input=False), _hermitian),
    "eig": (jnp.linalg.eig, _general),
    "eigvals": (jnp.linalg.eigvals, _general),
    "schur": (linalg.schur, _general),
    "hessenberg": (linalg.hessenberg, _general),
    "tridiagonal": (linalg.tridiagonal, _hermitian),
    "tridiagonal_solve": (_banded, _general),
    "triangular_solve": (lambda a: linalg.triangular_solve(a, a, left_side=True, lower=True), _positive),
    "triangular_solve_transposed": (lambda a: linalg.triangular_solve(a, a, transpose_a=True), _positive),
    "expm": (jax.scipy.linalg.expm, _general),
    "gradient_of_cholesky": (jax.grad(lambda a: jnp.linalg.cholesky(a).real.sum()), _positive),
    "gradient_of_eigh": (jax.grad(lambda a: (jnp.linalg.eigh(a)[0] ** 2).sum().real), _hermitian),
    "vmap_of_solve": (jax.vmap(lambda row: jnp.linalg.solve(jnp.outer(row, row) + jnp.eye(row.size), row)), _general),
}
# jax does not take batches, or no matrix that small, on the CPU either.
_NO_BATCH = frozenset(
    {"lstsq", "qr_pivoting", "vmap_of_solve", "cho_solve", "gradient_of_cholesky", "gradient_of_eigh"}
)
_AT_LEAST = {"qr_complete": 2, "svd_wide": 2, "hessenberg": 1, "matrix_rank": 1, "lstsq": 1, "qr_pivoting": 1}
_AT_LEAST |= {"tridiagonal": 1, "tridiagonal_solve": 3, "vmap_of_solve": 1}

_SHAPES = [(4, 4), (1, 1), (0, 0), (2, 3, 3), (0, 3, 3)]
_TOLERANCES = {np.float32: 3e-4, np.float64: 1e-9, np.complex64: 3e-4, np.complex128: 1e-9}


def _cases() -> list[Any]:
    cases = []
    for name in _FAMILIES:
        for dtype in _TOLERANCES:
            # All shapes in one type; of the others one matrix and one batch.
            for shape in _SHAPES if dtype is np.float32 else [(4, 4), (2, 3, 3)]:
                if (len(shape) > 2 and name in _NO_BATCH) or shape[-1] < _AT_LEAST.get(name, 0):
                    continue
                label = f"{name}-{np.dtype(dtype)}-{'x'.join(map(str, shape))}"
                cases.append(pytest.param(name, dtype, shape, id=label))
    return cases


def _matrix(prepare: Function, dtype: type, shape: tuple[int, ...]) -> Any:
    rng = np.random.default_rng(7)
    a = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.standard_normal(shape)
    return prepare(a.astype(dtype))


@pytest.mark.parametrize(("name", "dtype", "shape"), _cases())
def test_as_on_the_cpu(name: str, dtype: type, shape: tuple[int, ...]) -> None:
    function, prepare = _FAMILIES[name]
    a = _matrix(prepare, dtype, shape)
    with jax.enable_x64(np.finfo(dtype).bits == 64):
        results = []
        for platform in ("metal", "cpu"):
            device = jax.devices(platform)[0]
            with jax.default_device(device):
                leaves = jax.tree.leaves(jax.jit(function)(jax.device_put(a, device)))
            assert all(leaf.devices() == {device} for leaf in leaves)
            results.append(leaves)
    tolerance = _TOLERANCES[dtype]
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def test_matrices_that_have_no_decomposition() -> None:
    """LAPACK's own verdict makes NaNs, as on the CPU."""
    with jax.default_device(jax.devices("metal")[0]):
        assert np.isnan(jnp.linalg.cholesky(-jnp.eye(3))).any()
        assert np.isinf(jnp.linalg.inv(jnp.zeros((2, 2)))).any()


def test_larger_matrices() -> None:
    with jax.default_device(jax.devices("metal")[0]):
        a = jnp.asarray(_matrix(_general, np.float32, (200, 200)))
        u, s, v = jax.jit(jnp.linalg.svd)(a)
        np.testing.assert_allclose((u * s) @ v, a, atol=1e-3)
        np.testing.assert_allclose(jnp.linalg.inv(a) @ a, np.eye(200), atol=1e-2)
