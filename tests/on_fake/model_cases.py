"""The headline models and the digits network, a few steps each: what they lose on the fake, they lose on the CPU.

Run by test_models.py in a process that has the fake.
"""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest

from examples import digits
from tests.models.test_training import CASES, train


@pytest.mark.parametrize("name", ["resnet50", "vgg16", "bert"])
def test_training_equals_the_cpus(name: str) -> None:
    case = CASES[name]()
    expected, expected_logits = train(case, jax.devices("cpu")[0], steps=3)
    losses, logits = train(case, jax.devices("metal")[0], steps=3)
    assert losses[0] != losses[-1]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    scale = float(np.max(np.abs(expected_logits)))
    np.testing.assert_allclose(logits, expected_logits, atol=1e-2 * scale)


def test_digits() -> None:
    images, labels, _, _ = digits.load()
    optimizer = optax.adam(3e-3)
    step = digits.make_step(optimizer)
    with jax.default_device(jax.devices("cpu")[0]):
        initial = jax.tree.map(np.asarray, jax.jit(lambda: digits.new_state(optimizer))())
    losses = {}
    for platform in ("cpu", "metal"):
        state, *batch = jax.device_put((initial, images[:16], labels[:16]), jax.devices(platform)[0])
        losses[platform] = []
        for _ in range(4):
            state, loss = step(state, *batch)
            losses[platform].append(float(loss))
    assert losses["metal"][-1] < losses["metal"][0]
    np.testing.assert_allclose(losses["metal"], losses["cpu"], rtol=1e-4)
