"""Layers shared by the models. Images are NHWC, kernels HWIO; parameters and statistics are dicts of arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Params = dict[str, Any]


def conv_init(key: jax.Array, size: int, features_in: int, features_out: int) -> Params:
    """A square convolution kernel, He-initialized, without bias."""
    scale = (2.0 / (size * size * features_in)) ** 0.5
    return {"kernel": scale * jax.random.normal(key, (size, size, features_in, features_out))}


def conv(params: Params, x: jax.Array, stride: int = 1) -> jax.Array:
    """x: [batch, height, width, features]; "SAME" padding."""
    return jax.lax.conv_general_dilated(
        x,
        params["kernel"].astype(x.dtype),
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def dense_init(key: jax.Array, features_in: int, features_out: int) -> Params:
    scale = features_in**-0.5
    kernel = scale * jax.random.normal(key, (features_in, features_out))
    return {"kernel": kernel, "bias": jnp.zeros(features_out)}


def dense(params: Params, x: jax.Array) -> jax.Array:
    """x: [..., features_in]."""
    return x @ params["kernel"].astype(x.dtype) + params["bias"].astype(x.dtype)


def batch_norm_init(features: int) -> tuple[Params, Params]:
    """Parameters and running statistics."""
    params = {"scale": jnp.ones(features), "bias": jnp.zeros(features)}
    return params, {"mean": jnp.zeros(features), "var": jnp.ones(features)}


def batch_norm(
    params: Params, stats: Params, x: jax.Array, train: bool, momentum: float = 0.9
) -> tuple[jax.Array, Params]:
    """Normalizes over all but the last axis; in training returns statistics moved towards the batch's."""
    if train:
        axes = tuple(range(x.ndim - 1))
        mean = jnp.mean(x, axes)
        var = jnp.mean(jnp.square(x), axes) - jnp.square(mean)
        stats = {
            "mean": momentum * stats["mean"] + (1 - momentum) * mean,
            "var": momentum * stats["var"] + (1 - momentum) * var,
        }
    else:
        mean, var = stats["mean"], stats["var"]
    scale = params["scale"] * jax.lax.rsqrt(var + 1e-5)
    return (x - mean) * scale + params["bias"], stats


def layer_norm_init(features: int) -> Params:
    return {"scale": jnp.ones(features), "bias": jnp.zeros(features)}


def layer_norm(params: Params, x: jax.Array) -> jax.Array:
    """Normalizes over the last axis."""
    mean = jnp.mean(x, -1, keepdims=True)
    var = jnp.mean(jnp.square(x - mean), -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * params["scale"] + params["bias"]


def max_pool(x: jax.Array, window: int, stride: int, padding: str = "VALID") -> jax.Array:
    """x: [batch, height, width, features]."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, window, window, 1), (1, stride, stride, 1), padding)


def attention_init(key: jax.Array, features: int) -> Params:
    keys = jax.random.split(key, 2)
    return {
        "qkv": dense_init(keys[0], features, 3 * features),
        "out": dense_init(keys[1], features, features),
    }


def attention(params: Params, x: jax.Array, heads: int, causal: bool) -> jax.Array:
    """x: [batch, length, features]; softmax(q k^T / sqrt(d)) v for each head."""
    batch, length, features = x.shape
    qkv = dense(params["qkv"], x).reshape(batch, length, 3, heads, features // heads)
    q, k, v = (qkv[:, :, i] for i in range(3))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (features // heads) ** -0.5
    if causal:
        mask = jnp.tril(jnp.ones((length, length), bool))
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    weights = jax.nn.softmax(scores, axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(batch, length, features)
    return dense(params["out"], mixed)


def mlp_init(key: jax.Array, features: int, hidden: int) -> Params:
    keys = jax.random.split(key, 2)
    return {
        "up": dense_init(keys[0], features, hidden),
        "down": dense_init(keys[1], hidden, features),
    }


def mlp(params: Params, x: jax.Array, approximate: bool) -> jax.Array:
    """GELU between two dense layers; `approximate` uses the tanh form (GPT-2), else erf (BERT)."""
    return dense(params["down"], jax.nn.gelu(dense(params["up"], x), approximate=approximate))


def dropout(key: jax.Array | None, x: jax.Array, rate: float) -> jax.Array:
    """Zeroes elements with probability `rate` and scales the others; identity without a key."""
    if key is None or rate == 0.0:
        return x
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0.0)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean negative log-likelihood of integer labels; logits: [..., classes]."""
    log_probabilities = jax.nn.log_softmax(logits.astype(jnp.float32))
    picked = jnp.take_along_axis(log_probabilities, labels[..., None], axis=-1)
    return -jnp.mean(picked)
