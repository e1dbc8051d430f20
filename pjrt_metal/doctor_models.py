"""Three small networks of the headline models' kinds, trained a few steps on metal and on the CPU: residual blocks with
batch normalization (ResNet), plain convolutions with pooling (VGG), and a transformer layer (BERT)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from pjrt_metal.doctor import Check

STEPS = 5
CLASSES = 7
Network = Callable[[Any, Any], jax.Array]


def checks() -> Iterator[Check]:
    rng = np.random.default_rng(0)
    images = _normal(rng, 4, 16, 16, 3)
    tokens = rng.integers(0, 31, (4, 12)).astype(np.int32)
    labels = rng.integers(0, CLASSES, 4).astype(np.int32)
    for name, network, parameters, inputs in (
        ("residual blocks (as in ResNet)", _residual, _residual_parameters(rng), images),
        ("convolutions and pooling (as in VGG)", _plain, _plain_parameters(rng), images),
        ("transformer layer (as in BERT)", _transformer, _transformer_parameters(rng), tokens),
    ):
        yield Check("models", name, functools.partial(_compare, network, parameters, inputs, labels))


def _compare(network: Network, parameters: Any, inputs: Any, labels: Any) -> str:
    want, got = (_train(network, parameters, inputs, labels, jax.devices(name)[0]) for name in ("cpu", "metal"))
    if not want[-1] < want[0]:
        raise AssertionError(f"the CPU's losses do not fall: {want}")
    np.testing.assert_allclose(got, want, rtol=1e-3, err_msg="losses of the training steps")
    return "losses " + " ".join(f"{loss:.4f}" for loss in got)


def _train(network: Network, parameters: Any, inputs: Any, labels: Any, device: jax.Device) -> list[float]:
    def loss_of(parameters: Any, inputs: Any, labels: Any) -> jax.Array:
        scores = jax.nn.log_softmax(network(parameters, inputs))
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    def step(parameters: Any, inputs: Any, labels: Any) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, labels)
        return jax.tree.map(lambda p, g: p - 0.05 * g, parameters, gradients), loss

    jitted = jax.jit(step)
    state, x, y = jax.device_put((parameters, inputs, labels), device)
    losses = []
    for _ in range(STEPS):
        state, loss = jitted(state, x, y)
        losses.append(float(loss))
    return losses


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(np.float32)


def _weights(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Scaled so that a layer keeps its input's variance; the last axis is the output's."""
    return _normal(rng, *shape) / np.float32(np.sqrt(np.prod(shape[:-1])))


def _convolve(x: jax.Array, kernel: Any, stride: int = 1) -> jax.Array:
    return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _normalize(x: jax.Array, axes: tuple[int, ...], scale: Any) -> jax.Array:
    mean = jnp.mean(x, axes, keepdims=True)
    return (x - mean) * lax.rsqrt(jnp.var(x, axes, keepdims=True) + 1e-3) * scale


def _residual_parameters(rng: np.random.Generator) -> Any:
    block = [{"kernel": _weights(rng, 3, 3, 8, 8), "scale": np.ones(8, np.float32)} for _ in range(4)]
    return {"stem": _weights(rng, 3, 3, 3, 8), "blocks": block, "head": _weights(rng, 8, CLASSES)}


def _residual(parameters: Any, x: Any) -> jax.Array:
    x = _convolve(x, parameters["stem"], 2)
    for first, second in (parameters["blocks"][:2], parameters["blocks"][2:]):
        y = jax.nn.relu(_normalize(_convolve(x, first["kernel"]), (0, 1, 2), first["scale"]))
        x = jax.nn.relu(x + _normalize(_convolve(y, second["kernel"]), (0, 1, 2), second["scale"]))
    return jnp.mean(x, (1, 2)) @ parameters["head"]


def _plain_parameters(rng: np.random.Generator) -> Any:
    kernels = [_weights(rng, 3, 3, *channels) for channels in ((3, 8), (8, 16))]
    return {"kernels": kernels, "hidden": _weights(rng, 256, 32), "head": _weights(rng, 32, CLASSES)}


def _plain(parameters: Any, x: Any) -> jax.Array:
    for kernel in parameters["kernels"]:
        x = jax.nn.relu(_convolve(x, kernel))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ parameters["hidden"])
    return x @ parameters["head"]


def _transformer_parameters(rng: np.random.Generator) -> Any:
    return {
        "tokens": _normal(rng, 31, 16),
        "positions": _normal(rng, 12, 16),
        "attention": _weights(rng, 16, 48),
        "project": _weights(rng, 16, 16),
        "up": _weights(rng, 16, 32),
        "down": _weights(rng, 32, 16),
        "scale": np.ones(16, np.float32),
        "head": _weights(rng, 16, CLASSES),
    }


def _transformer(parameters: Any, tokens: Any) -> jax.Array:
    x = parameters["tokens"][tokens] + parameters["positions"]
    batch, length, features = x.shape
    mixed = (x @ parameters["attention"]).reshape(batch, length, 3, 4, features // 4)
    query, key, value = mixed[:, :, 0], mixed[:, :, 1], mixed[:, :, 2]
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key) / 2.0)  # sqrt of 4, a head's features
    x = x + jnp.einsum("bhqk,bkhd->bqhd", weights, value).reshape(x.shape) @ parameters["project"]
    x = _normalize(x, (2,), parameters["scale"])
    x = _normalize(x + jax.nn.gelu(x @ parameters["up"]) @ parameters["down"], (2,), parameters["scale"])
    return jnp.tanh(x[:, 0]) @ parameters["head"]
