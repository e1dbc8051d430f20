"""NaN and infinities in the operands of contractions: at exactly the results that numpy and XLA have them in.

A masked step of k must add nothing, not zero times what stands behind it. Also run on the strict device
(test_gpu_schedules.py), so that each schedule of both is tried.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

Array = np.ndarray[Any, Any]

METAL, CPU = jax.devices("metal")[0], jax.devices("cpu")[0]
SPECIAL = np.array([np.nan, np.inf, -np.inf], np.float32)


def planted(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers, and one of each special value."""
    array = rng.standard_normal(shape).astype(np.float32)
    array.reshape(-1)[rng.choice(array.size, min(3, array.size), replace=False)] = SPECIAL[: array.size]
    return array


def generator(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def assert_same(got: Array, want: Array) -> None:
    """The same special values at the same places, and the others close."""
    for test in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(test(got), test(want), test.__name__)
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-4, atol=1e-4)


# Plain sums by strips and by dots, tiles, tiles that are cut on every side, several blocks of k.
SIZES = [(1, 50, 40), (40, 50, 1), (3, 5, 4), (13, 33, 17), (31, 300, 65), (100, 1, 7), (64, 64, 48)]
FORMULAS = ["mk,kn->mn", "km,kn->mn", "mk,nk->nm", "bmk,bkn->bmn"]


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_dot(size: tuple[int, int, int], formula: str) -> None:
    rng = generator(f"{size} {formula}")
    extents = dict(zip("mknb", (*size, 2), strict=True))
    lhs, rhs = (planted(rng, *(extents[d] for d in part)) for part in formula.partition("->")[0].split(","))
    got = jax.jit(lambda a, b: jnp.einsum(formula, a, b))(*jax.device_put((lhs, rhs), METAL))
    with np.errstate(invalid="ignore"):
        want = np.einsum(formula, lhs.astype(np.float64), rhs.astype(np.float64))
    assert_same(np.asarray(got), want)


class Convolution(NamedTuple):
    """Over 8 x 8 positions. Padding is in front and behind, of both dimensions."""

    taps: int = 3
    stride: int = 1
    padding: tuple[int, int] = (1, 1)
    holes: int = 1  # the dilation of the input
    spread: int = 1  # of the kernel
    groups: bool = False  # a group a channel

    def __call__(self, x: jax.Array, w: jax.Array, layout: tuple[str, str, str]) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (self.stride,) * 2, [self.padding] * 2, (self.holes,) * 2, (self.spread,) * 2, layout,
            x.shape[layout[0].index("C")] if self.groups else 1,
        )  # fmt: skip


CONVOLUTIONS = {
    "plain": Convolution(),
    "even kernel": Convolution(taps=2, padding=(0, 1)),
    "stride": Convolution(stride=2, padding=(0, 1)),
    "spread kernel": Convolution(padding=(2, 2), spread=2),
    "groups": Convolution(groups=True),
    # Phases that have fewer taps than others.
    "two phases": Convolution(padding=(1, 2), holes=2),
    "three phases": Convolution(taps=4, padding=(2, 3), holes=3),
    # As many output positions as no phase divides.
    "holes": Convolution(padding=(1, 1), holes=2),
}
LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout[0])
@pytest.mark.parametrize(("channels", "features"), [(1, 2), (16, 33)])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolution(name: str, channels: int, features: int, layout: tuple[str, str, str]) -> None:
    """Padding is zeros that are multiplied, so that an infinite weight makes NaN of them; a tap that the kernel
    does not have, or that falls into a hole, is none."""
    convolution = CONVOLUTIONS[name]
    rng = generator(f"{name} {channels} {features}")
    features += -features % channels if convolution.groups else 0
    taps = convolution.taps
    x = planted(rng, 2, 8, 8, channels)
    w = rng.standard_normal((taps, taps, 1 if convolution.groups else channels, features)).astype(np.float32)
    strange = w.copy()
    if convolution.holes > 1:
        strange[..., 1] = np.nan  # of one feature all: its neighbours must not see them
    else:
        strange[0, 0, 0, features - 1], strange[1, 1, 0, 0] = np.inf, np.nan
    if layout[0] == "NCHW":
        x, (w, strange) = x.transpose(0, 3, 1, 2), (k.transpose(3, 2, 0, 1) for k in (w, strange))
    f = jax.jit(lambda x, w: convolution(x, w, layout))
    for arguments in ((x, w), (np.nan_to_num(x, posinf=1, neginf=1), strange)):
        got, want = (np.asarray(f(*jax.device_put(arguments, device))) for device in (METAL, CPU))
        assert_same(got, want)


def test_input_gradient_reads_no_tap_behind_the_kernel() -> None:
    """Op by op, with memory around that holds NaN."""
    x, w = (jax.device_put(planted(generator("x"), *shape), METAL) for shape in ((2, 8, 8, 3), (3, 3, 3, 8)))
    x, w = jnp.nan_to_num(x, posinf=1, neginf=1), jnp.nan_to_num(w, posinf=1, neginf=1)

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=LAYOUTS[0]).sum()

    with jax.default_device(METAL):
        strange = [jnp.full((n,), jnp.nan) for n in (100, 200, 384, 500, 1000)]
        jax.block_until_ready(strange)
        del strange
        assert np.isfinite(np.asarray(jax.grad(loss)(x, w))).all()
