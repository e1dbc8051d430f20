"""BERT (Devlin et al., 2018) and GPT-2 (Radford et al., 2019): one stack of blocks, two ways to read it."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from examples.models import layers
from examples.models.layers import Params


@dataclass(frozen=True)
class TransformerConfig:
    """`causal`: GPT-2 (layer norm first, tanh GELU, next-token logits); else BERT (norm last, erf GELU)."""

    causal: bool
    layers: int = 12
    features: int = 768
    heads: int = 12
    vocabulary: int = 30522
    length: int = 512
    dropout: float = 0.1


BERT_BASE = TransformerConfig(causal=False)
GPT2 = TransformerConfig(causal=True, vocabulary=50257, length=1024)


def init(key: jax.Array, config: TransformerConfig) -> Params:
    keys = iter(jax.random.split(key, 2 + 2 * config.layers))
    features = config.features
    params: Params = {
        "tokens": 0.02 * jax.random.normal(next(keys), (config.vocabulary, features)),
        "positions": 0.02 * jax.random.normal(next(keys), (config.length, features)),
        "norm": layers.layer_norm_init(features),
    }
    for i in range(config.layers):
        params[f"block.{i}"] = {
            "attention": layers.attention_init(next(keys), features),
            "mlp": layers.mlp_init(next(keys), features, 4 * features),
            "norm1": layers.layer_norm_init(features),
            "norm2": layers.layer_norm_init(features),
        }
    return params


def apply(params: Params, tokens: jax.Array, config: TransformerConfig, key: jax.Array | None = None) -> jax.Array:
    """Logits over the vocabulary, [batch, length, vocabulary], of tokens [batch, length]."""
    keys = [None] * (2 * config.layers)
    if key is not None:
        keys = list(jax.random.split(key, 2 * config.layers))
    x = params["tokens"][tokens] + params["positions"][: tokens.shape[1]]
    if not config.causal:
        x = layers.layer_norm(params["norm"], x)
    for i in range(config.layers):
        block = params[f"block.{i}"]

        def attend(x: jax.Array, block: Params = block) -> jax.Array:
            return layers.attention(block["attention"], x, config.heads, config.causal)

        def feed(x: jax.Array, block: Params = block) -> jax.Array:
            return layers.mlp(block["mlp"], x, approximate=config.causal)

        for j, (norm, inner) in enumerate((("norm1", attend), ("norm2", feed))):
            if config.causal:
                y = inner(layers.layer_norm(block[norm], x))
                x = x + layers.dropout(keys[2 * i + j], y, config.dropout)
            else:
                y = layers.dropout(keys[2 * i + j], inner(x), config.dropout)
                x = layers.layer_norm(block[norm], x + y)
    if config.causal:
        x = layers.layer_norm(params["norm"], x)
    return jnp.einsum("blf,vf->blv", x, params["tokens"])
