"""ResNet (He et al., 2015): bottleneck blocks as in ResNet-50, or basic blocks for small images."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from examples.models import layers
from examples.models.layers import Params


@dataclass(frozen=True)
class ResNetConfig:
    """`stages`: blocks in each stage. `small_images`: a 3x3 first convolution and no pooling before the stages."""

    stages: tuple[int, ...]
    width: int = 64
    bottleneck: bool = True
    small_images: bool = False
    channels: int = 3
    classes: int = 1000


RESNET50 = ResNetConfig((3, 4, 6, 3))


def _convolutions(config: ResNetConfig, features_in: int, width: int) -> list[tuple[int, int, int]]:
    """(size, in, out) of a block's convolutions."""
    if config.bottleneck:
        return [(1, features_in, width), (3, width, width), (1, width, 4 * width)]
    return [(3, features_in, width), (3, width, width)]


def init(key: jax.Array, config: ResNetConfig) -> tuple[Params, Params]:
    """Parameters and batch-norm statistics."""
    keys = iter(jax.random.split(key, 4 + 4 * sum(config.stages)))
    params: Params = {}
    stats: Params = {}

    def add(name: str, size: int, features_in: int, features_out: int) -> None:
        norm, state = layers.batch_norm_init(features_out)
        params[name] = {
            "conv": layers.conv_init(next(keys), size, features_in, features_out),
            "norm": norm,
        }
        stats[name] = state

    add("stem", 3 if config.small_images else 7, config.channels, config.width)
    features = config.width
    for stage, blocks in enumerate(config.stages):
        width = config.width * 2**stage
        for block in range(blocks):
            convolutions = _convolutions(config, features, width)
            for i, shape in enumerate(convolutions):
                add(f"{stage}.{block}.{i}", *shape)
            out = convolutions[-1][2]
            if features != out:
                add(f"{stage}.{block}.shortcut", 1, features, out)
            features = out
    params["head"] = layers.dense_init(next(keys), features, config.classes)
    return params, stats


def apply(
    params: Params, stats: Params, images: jax.Array, config: ResNetConfig, train: bool
) -> tuple[jax.Array, Params]:
    """Logits [batch, classes] of images [batch, height, width, channels], and the new statistics."""
    new_stats: Params = {}

    def unit(name: str, x: jax.Array, stride: int = 1) -> jax.Array:
        x = layers.conv(params[name]["conv"], x, stride)
        x, new_stats[name] = layers.batch_norm(params[name]["norm"], stats[name], x, train)
        return x

    x = jax.nn.relu(unit("stem", images, 1 if config.small_images else 2))
    if not config.small_images:
        x = layers.max_pool(x, 3, 2, "SAME")
    for stage, blocks in enumerate(config.stages):
        for block in range(blocks):
            name = f"{stage}.{block}"
            stride = 2 if stage > 0 and block == 0 else 1
            count = 3 if config.bottleneck else 2
            strided = 1 if config.bottleneck else 0  # the 3x3 convolution that downsamples
            y = x
            for i in range(count):
                y = unit(f"{name}.{i}", y, stride if i == strided else 1)
                if i < count - 1:
                    y = jax.nn.relu(y)
            shortcut = f"{name}.shortcut"
            x = jax.nn.relu(y + (unit(shortcut, x, stride) if shortcut in params else x))
    return layers.dense(params["head"], jnp.mean(x, (1, 2))), new_stats
