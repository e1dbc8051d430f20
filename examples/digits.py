"""Trains a small residual network on scikit-learn's digits (1,797 images of 8x8) and compares its speed with the CPU.

JAX_PLATFORMS=metal,cpu python -m examples.digits
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags
from sklearn.datasets import load_digits
from tqdm import tqdm

from examples.models import layers, resnet

_EPOCHS = flags.DEFINE_integer("epochs", 12, "Passes over the training images.")
_BATCH = flags.DEFINE_integer("batch", 128, "Images a step.")
_RATE = flags.DEFINE_float("learning_rate", 3e-3, "Adam's peak learning rate.")
_PLOT = flags.DEFINE_string("plot", "digits_loss.png", "Where the loss curve goes.")
_COMPARE = flags.DEFINE_integer("compare_steps", 30, "Steps timed on each backend; 0: none.")

CONFIG = resnet.ResNetConfig((1, 1, 1), width=16, bottleneck=False, small_images=True, channels=1, classes=10)

State = Any
Step = Callable[[State, jax.Array, jax.Array], tuple[State, jax.Array]]


def load(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images [n, 8, 8, 1] in [0, 1] and labels; a fifth is for testing."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., None]
    labels = digits.target.astype(np.int32)
    order = np.random.default_rng(seed).permutation(len(images))
    images, labels = images[order], labels[order]
    cut = len(images) // 5
    return images[cut:], labels[cut:], images[:cut], labels[:cut]


def make_step(optimizer: optax.GradientTransformation) -> Step:
    """One training step: loss, gradients, Adam. The state is donated."""

    def step(state: State, images: jax.Array, labels: jax.Array) -> tuple[State, jax.Array]:
        params, stats, opt_state = state

        def loss_of(params: Any) -> tuple[jax.Array, Any]:
            logits, new_stats = resnet.apply(params, stats, images, CONFIG, train=True)
            return layers.cross_entropy(logits, labels), new_stats

        (loss, stats), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, opt_state = optimizer.update(gradients, opt_state, params)
        return (optax.apply_updates(params, updates), stats, opt_state), loss

    return jax.jit(step, donate_argnums=0)


def new_state(optimizer: optax.GradientTransformation) -> State:
    params, stats = resnet.init(jax.random.key(0), CONFIG)
    return params, stats, optimizer.init(params)


def seconds_a_step(
    devices: list[jax.Device], step: Step, state: State, images: np.ndarray, labels: np.ndarray
) -> list[float]:
    """The median time of a step on each device; the devices take turns, so that noise hits them alike."""
    runs = []
    for device in devices:
        on_device = jax.device_put(jax.tree.map(np.asarray, (state, images, labels)), device)
        runs.append([*on_device, []])
    for turn in range(_COMPARE.value + 3):
        for run in runs:
            start = time.perf_counter()
            run[0], loss = step(run[0], run[1], run[2])
            loss.block_until_ready()
            if turn >= 3:  # compiled and warm
                run[3].append(time.perf_counter() - start)
    return [float(np.median(run[3])) for run in runs]


def main(argv: list[str]) -> None:
    del argv
    device = jax.devices()[0]
    print(f"device: {device.device_kind}, jax {jax.__version__}")
    train_x, train_y, test_x, test_y = load()
    batch = _BATCH.value
    steps = len(train_x) // batch
    schedule = optax.cosine_onecycle_schedule(_EPOCHS.value * steps, _RATE.value)
    optimizer = optax.adam(schedule)
    step = make_step(optimizer)
    state = jax.jit(lambda: new_state(optimizer))()

    @jax.jit
    def correct(state: State, images: jax.Array, labels: jax.Array) -> jax.Array:
        logits, _ = resnet.apply(state[0], state[1], images, CONFIG, train=False)
        return jnp.sum(jnp.argmax(logits, -1) == labels)

    start = time.perf_counter()
    losses = []
    rng = np.random.default_rng(0)
    with tqdm(total=_EPOCHS.value * steps, unit="step", desc="compiling") as bar:
        for _ in range(_EPOCHS.value):
            order = rng.permutation(len(train_x))
            for i in range(steps):
                chosen = order[i * batch : (i + 1) * batch]
                state, loss = step(state, train_x[chosen], train_y[chosen])
                losses.append(float(loss))
                bar.set_description("training")
                bar.set_postfix(loss=f"{losses[-1]:.4f}")
                bar.update()
    accuracy = int(correct(state, test_x, test_y)) / len(test_x)
    print(f"trained and tested in {time.perf_counter() - start:.1f} s, {len(losses)} steps, compilation included")
    print(f"loss {losses[-1]:.4f}, test accuracy {accuracy:.1%} on {len(test_x)} images")

    if _COMPARE.value:
        rivals = [device]
        try:
            rivals += jax.devices("cpu")[:1] if device.platform != "cpu" else []
        except RuntimeError:
            print("no CPU backend in JAX_PLATFORMS: no comparison")
        times = seconds_a_step(rivals, step, new_state(optimizer), train_x[:batch], train_y[:batch])
        for rival, seconds in zip(rivals, times, strict=True):
            print(f"  {rival.platform:>6}: {seconds * 1e3:7.2f} ms a step of {batch} images")
        if len(times) == 2:
            print(f"  metal / cpu: {times[0] / times[1]:.2f}")

    import logging

    import matplotlib

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # the first start tells of its fonts
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title=f"digits on {device.device_kind}")
    figure.tight_layout()
    figure.savefig(_PLOT.value, dpi=120)
    print(f"loss curve: {Path(_PLOT.value).resolve()}")


if __name__ == "__main__":
    app.run(main)
