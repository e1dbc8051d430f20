"""Matrix products and convolutions with their gradients, against XLA:CPU.

JAX_PLATFORMS=metal,cpu python -m benchmarks.contraction
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from jax import lax

from benchmarks.timing import alternate, report

_JSON = flags.DEFINE_string("json", None, "Where the figures go as JSON.")
_TURNS = flags.DEFINE_integer("turns", 30, "Measured calls of each rival.")
_ONLY = flags.DEFINE_string("only", "", "Only cases whose name contains this.")

Function = Callable[..., jax.Array]
Shape = tuple[int, ...]

# Name, operand shapes, einsum.
_PRODUCTS = (
    ("dot 1024", (1024, 1024), (1024, 1024), "mk,kn->mn"),
    ("dot 1024, transposed rhs", (1024, 1024), (1024, 1024), "mk,nk->mn"),
    ("dense 64x64x10", (64, 64), (64, 10), "mk,kn->mn"),
    ("dense 512x768x3072", (512, 768), (768, 3072), "mk,kn->mn"),
    ("matrix-vector 1024", (1024, 1024), (1024,), "mk,k->m"),
    ("attention scores", (4, 128, 12, 64), (4, 128, 12, 64), "bqhd,bkhd->bhqk"),
    ("attention values", (4, 12, 128, 128), (4, 128, 12, 64), "bhqk,bkhd->bqhd"),
)
# Name, input (NHWC), kernel (HWIO), stride, groups.
_CONVOLUTIONS = (
    ("digits 8x8x32", (64, 8, 8, 32), (3, 3, 32, 32), 1, 1),
    ("56x56x64", (4, 56, 56, 64), (3, 3, 64, 64), 1, 1),
    ("14x14x256", (4, 14, 14, 256), (3, 3, 256, 256), 1, 1),
    ("1x1 28x28x128", (4, 28, 28, 128), (1, 1, 128, 512), 1, 1),
    ("stride 2 56x56x128", (4, 56, 56, 128), (3, 3, 128, 128), 2, 1),
    ("7x7 stride 2 224", (4, 224, 224, 3), (7, 7, 3, 64), 2, 1),
    ("depthwise 56x56x128", (4, 56, 56, 128), (3, 3, 1, 128), 1, 128),
)


def _convolution(stride: int, groups: int) -> Function:
    return lambda x, w: lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def cases() -> Iterator[tuple[str, Function, list[Shape]]]:
    """Name, function and the shapes of its arguments."""
    for name, lhs, rhs, formula in _PRODUCTS:
        yield name, lambda a, b, formula=formula: jnp.einsum(formula, a, b), [lhs, rhs]
    for name, x, w, stride, groups in _CONVOLUTIONS:
        f = _convolution(stride, groups)
        y = jax.eval_shape(f, jnp.zeros(x), jnp.zeros(w)).shape
        yield f"conv {name}", f, [x, w]
        yield (
            f"conv {name}, kernel gradient",
            lambda a, g, f=f, w=w: jax.vjp(lambda k: f(a, k), jnp.zeros(w))[1](g)[0],
            [x, y],
        )
        yield (
            f"conv {name}, input gradient",
            lambda k, g, f=f, x=x: jax.vjp(lambda a: f(a, k), jnp.zeros(x))[1](g)[0],
            [w, y],
        )


def _rival(f: Function, arguments: list[np.ndarray[Any, Any]], platform: str) -> Callable[[], Any]:
    device = jax.devices(platform)[0]
    placed = [jax.device_put(a, device) for a in arguments]
    compiled = jax.jit(f)
    return lambda: compiled(*placed).block_until_ready()


def main(argv: list[str]) -> None:
    del argv
    rng = np.random.default_rng(0)
    rows = []
    for name, f, shapes in cases():
        if _ONLY.value not in name:
            continue
        arguments = [rng.standard_normal(s).astype(np.float32) for s in shapes]
        rivals = {p: _rival(f, arguments, p) for p in ("metal", "cpu")}
        seconds = alternate(rivals, _TURNS.value)
        rows.append(
            {
                "what": name,
                **{f"{p} (us)": s * 1e6 for p, s in seconds.items()},
                "metal/cpu": seconds["metal"] / seconds["cpu"],
            }
        )
    report("contractions", rows, _JSON.value)


if __name__ == "__main__":
    app.run(main)
