"""Families of programs with the power of n that their algorithm's work grows with (test_bounds.py).

Each program is a function of one size; the shapes of its arguments grow with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Family:
    """`run` takes arrays of `shapes(n)`, all f32 but for those whose numbers are in `integers`.

    `power`: of n, to within a factor that grows as a logarithm does.
    `sizes`: where it is measured; the last is as large as users have it.
    """

    name: str
    run: Callable[..., Any]
    shapes: Callable[[int], tuple[Shape, ...]]
    power: float = 1.0
    sizes: tuple[int, ...] = (200_000, 2_000_000, 20_000_000)
    integers: tuple[int, ...] = ()

    def text(self, n: int) -> str:
        """StableHLO for one size."""
        arguments = [
            jax.ShapeDtypeStruct(shape, jnp.int32 if i in self.integers else jnp.float32)
            for i, shape in enumerate(self.shapes(n))
        ]
        return str(jax.jit(self.run).lower(*arguments).as_text())


def _one(n: int) -> tuple[Shape, ...]:
    return ((n,),)


def _pool(window: int, stride: int) -> Callable[[Any], Any]:
    return lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (window,), (stride,), "SAME")


def _growing_pool(fold: Any, start: float) -> Callable[[Any], Any]:
    return lambda x: lax.reduce_window(x, start, fold, (x.shape[0] // 4,), (1,), "SAME")


def _growing_pool_2d(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (x.shape[0] // 4, x.shape[0] // 4), (1, 1), "SAME")


def _pool_gradient(x: Any) -> Any:
    def pool(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")

    return jax.grad(lambda x: jnp.sum(pool(x) ** 2))(x)


def _large_pool_gradient(x: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(lax.reduce_window(x, -jnp.inf, lax.max, (16,), (1,), "SAME")))(x)


def _segment_sum(count: int) -> Callable[[Any, Any], Any]:
    return lambda x, i: jax.ops.segment_sum(x, i, num_segments=count)


def _embedding_gradient(table: Any, tokens: Any) -> Any:
    return jax.grad(lambda t: jnp.sum(t[tokens] ** 2))(table)


def _slice_gradients(x: Any, starts: Any) -> Any:
    """Of every row's slice of half its length."""

    def loss(row: Any, start: Any) -> Any:
        return jnp.sum(lax.dynamic_slice(row, (start,), (row.shape[0] // 2,)) ** 2)

    return jax.vmap(jax.grad(loss))(x, starts)


def _frames_gradient(x: Any, starts: Any) -> Any:
    """Of overlapping frames of one signal, as spectrograms take them."""

    def loss(x: Any) -> Any:
        return jnp.sum(jax.vmap(lambda start: lax.dynamic_slice(x, (start,), (400,)))(starts) ** 2)

    return jax.grad(loss)(x)


def _halving(x: Any) -> Any:
    return lax.while_loop(lambda s: jnp.max(s) > 1, lambda s: s / 2, x)


def _residual_block_gradient(x: Any, w: Any) -> Any:
    """A strided block of ResNet-50 with its norm and pool, and the first convolution's gradients."""

    def loss(x: Any, w: Any) -> Any:
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.nn.relu(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=numbers))
        x = (x - jnp.mean(x, (0, 1, 2))) * lax.rsqrt(jnp.var(x, (0, 1, 2)) + 1e-5)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.mean(x**2)

    return jax.grad(loss, (0, 1))(x, w)


def _transformer_gradient(table: Any, w: Any, tokens: Any) -> Any:
    """A layer of a small BERT over sequences of 128, with the embedding's gradient and the loss over the vocabulary."""

    def loss(table: Any, w: Any) -> Any:
        x = table[tokens]
        q, k, v = (x @ w[i] for i in range(3))
        scores = jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) / 16)
        x = x + jax.nn.gelu(jnp.einsum("bqk,bkd->bqd", scores, v) @ w[3])
        x = (x - jnp.mean(x, -1, keepdims=True)) * lax.rsqrt(jnp.var(x, -1, keepdims=True) + 1e-5)
        losses = jax.nn.log_softmax(x @ table.T)
        return -jnp.mean(jnp.take_along_axis(losses, tokens[..., None], 2))

    gradients = jax.grad(loss, (0, 1))(table, w)
    return table - 0.1 * gradients[0], w - 0.1 * gradients[1]


FAMILIES = (
    # Models' training steps grow with the batch.
    Family("residual_block", _residual_block_gradient, lambda n: ((n, 112, 112, 64), (3, 3, 64, 64)), 1, (4, 16, 64)),
    Family(
        "transformer", _transformer_gradient, lambda n: ((30_522, 256), (4, 256, 256), (n, 128)), 1, (4, 16, 64), (2,)
    ),
    Family("elementwise", lambda x: jnp.sin(x) * x + 1, _one),
    Family("broadcast", lambda x: x[:, None] + jnp.ones(7), _one),
    Family("transpose", lambda x: x.T * 2, lambda n: ((n // 8, 8),)),
    Family("reduce", jnp.sum, _one),
    Family("reduce_rows", lambda x: jnp.max(x, 1), lambda n: ((n // 100, 100),)),
    Family("reduce_columns", lambda x: jnp.sum(x, 0), lambda n: ((n // 100, 100),)),
    Family("argmax", jnp.argmax, _one),
    Family("softmax", jax.nn.softmax, lambda n: ((n // 500, 500),)),
    Family("dot", jnp.dot, lambda n: ((n, n), (n, n)), 3, (256, 1024, 4096)),
    Family("matrix_vector", jnp.dot, lambda n: ((n, n), (n,)), 2, (256, 1024, 4096)),
    Family("vector_dot", jnp.dot, lambda n: ((n,), (n,))),
    Family(
        "conv",
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
        lambda n: ((4, n, n, 64), (3, 3, 64, 64)),
        2,
        (14, 56, 224),
    ),
    Family("concatenate_many", lambda x: jnp.concatenate([x[i::50] for i in range(50)]), _one),
    Family("pad", lambda x: jnp.pad(x, 100), _one),
    Family("reverse", lambda x: x[::-1], _one),
    Family("gather", lambda x, i: x[i], lambda n: ((n,), (n,)), integers=(1,)),
    Family("gather_rows", lambda x, i: x[i], lambda n: ((1000, 64), (n // 64,)), integers=(1,)),
    Family("scatter_add", lambda x, i, u: x.at[i].add(u), lambda n: ((n,), (n,), (n,)), integers=(1,)),
    Family("scatter_set", lambda x, i, u: x.at[i].set(u), lambda n: ((n,), (n,), (n,)), integers=(1,)),
    Family("scatter_few_rows", lambda x, i, u: x.at[i].add(u), lambda n: ((n,), (9,), (9,)), integers=(1,)),
    Family("scatter_into_few", lambda x, i, u: x.at[i].max(u), lambda n: ((10,), (n,), (n,)), integers=(1,)),
    Family(
        "scatter_unique",
        lambda x, i, u: x.at[i].add(u, unique_indices=True),
        lambda n: ((n,), (n,), (n,)),
        integers=(1,),
    ),
    Family("segment_sum", _segment_sum(1000), lambda n: ((n,), (n,)), integers=(1,)),
    Family("segment_sum_rows", _segment_sum(1000), lambda n: ((n // 64, 64), (n // 64,)), integers=(1,)),
    Family("bincount", lambda i: jnp.bincount(i, length=256), _one, integers=(0,)),
    Family(
        "embedding_gradient", _embedding_gradient, lambda n: ((30_522, 64), (n // 64,)), 1, (640_000, 6_400_000), (1,)
    ),
    Family(
        "dynamic_slice",
        lambda x, i: lax.dynamic_slice(x, (i,), (x.shape[0] // 2,)),
        lambda n: ((n,), ()),
        integers=(1,),
    ),
    Family(
        "dynamic_update_slice",
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)),
        lambda n: ((n,), (n // 2,), ()),
        integers=(2,),
    ),
    Family("slice_gradients", _slice_gradients, lambda n: ((64, n // 64), (64,)), integers=(1,)),
    Family("slice_gradients_many", _slice_gradients, lambda n: ((n // 64, 64), (n // 64,)), integers=(1,)),
    Family("frames_gradient", _frames_gradient, lambda n: ((n,), (n // 100,)), integers=(1,)),
    Family("cumsum", jnp.cumsum, _one),
    Family("cumprod", jnp.cumprod, _one),
    Family("cummax_reverse", lambda x: lax.cummax(x, reverse=True), _one),
    Family("cumlogsumexp", lax.cumlogsumexp, _one),
    Family("cumsum_columns", lambda x: jnp.cumsum(x, 0), lambda n: ((n // 40, 40),)),
    Family("cumsum_rows", lambda x: jnp.cumsum(x, 1), lambda n: ((40, n // 40),)),
    Family("pool", _pool(3, 2), _one),
    Family("pool_large", _pool(65, 1), _one),
    Family("pool_growing", _growing_pool(lax.max, -jnp.inf), _one),
    Family("pool_growing_sum", _growing_pool(lax.add, 0.0), _one),
    Family("pool_growing_2d", _growing_pool_2d, lambda n: ((n, n),), 2, (1024, 4096)),
    Family("pool_gradient", _pool_gradient, lambda n: ((4, n, n, 64),), 2, (14, 56, 224)),
    Family("pool_gradient_large", _large_pool_gradient, _one),
    Family("sort", jnp.sort, _one),
    Family("sort_rows", lambda x: jnp.sort(x, 1), lambda n: ((n // 50, 50),)),
    Family("argsort", jnp.argsort, _one),
    Family("top_k", lambda x: lax.top_k(x, 10), _one),
    Family("unique", lambda x: jnp.unique(x, size=1000), _one),
    Family("while", _halving, _one),
    Family("scan", lambda x: lax.scan(lambda c, a: (c + a, c), jnp.zeros(8), x), lambda n: ((n // 8, 8),)),
)
