"""VGG-16 (Simonyan and Zisserman, 2014)."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from examples.models import layers
from examples.models.layers import Params


@dataclass(frozen=True)
class VGGConfig:
    """`stages`: (convolutions, features) between poolings. `hidden`: width of the two dense layers."""

    stages: tuple[tuple[int, int], ...] = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
    hidden: int = 4096
    image_size: int = 224
    channels: int = 3
    classes: int = 1000
    dropout: float = 0.5


VGG16 = VGGConfig()


def init(key: jax.Array, config: VGGConfig) -> Params:
    count = sum(n for n, _ in config.stages) + 3
    keys = iter(jax.random.split(key, count))
    params: Params = {}
    features = config.channels
    for stage, (convolutions, width) in enumerate(config.stages):
        for i in range(convolutions):
            params[f"{stage}.{i}"] = layers.conv_init(next(keys), 3, features, width)
            features = width
    size = config.image_size // 2 ** len(config.stages)
    shapes = [(size * size * features, config.hidden), (config.hidden, config.hidden)]
    for i, shape in enumerate([*shapes, (config.hidden, config.classes)]):
        params[f"dense.{i}"] = layers.dense_init(next(keys), *shape)
    return params


def apply(params: Params, images: jax.Array, config: VGGConfig, key: jax.Array | None) -> jax.Array:
    """Logits [batch, classes] of images [batch, size, size, channels]; dropout if there is a key."""
    x = images
    for stage, (convolutions, _) in enumerate(config.stages):
        for i in range(convolutions):
            x = jax.nn.relu(layers.conv(params[f"{stage}.{i}"], x))
        x = layers.max_pool(x, 2, 2)
    x = x.reshape(x.shape[0], -1)
    keys = [None, None] if key is None else list(jax.random.split(key))
    for i in range(2):
        x = layers.dropout(keys[i], jax.nn.relu(layers.dense(params[f"dense.{i}"], x)), config.dropout)
    return layers.dense(params["dense.2"], x)
