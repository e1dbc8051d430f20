"""What jax tells of a compiled program: its text, costs and memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def test_compiled_program_can_be_read() -> None:
    x = jax.device_put(np.ones((4, 3), np.float32), jax.devices("metal")[0])
    step = jax.jit(lambda x: (jnp.sin(x), jnp.zeros((4, 3), jnp.bfloat16), jnp.int8(3)), donate_argnums=0)
    compiled = step.lower(x).compile()
    text = compiled.as_text()
    assert "input_output_alias={ {0}: (0, {}, may-alias) }" in text
    assert "(f32[4,3]{1,0}, bf16[4,3]{1,0}, s8[])" in text
    assert "launch k_" in text  # the launch plan
    cost = compiled.cost_analysis()
    assert cost is not None and cost["transcendentals"] == 12
    memory = compiled.memory_analysis()
    assert memory is not None
    assert memory.argument_size_in_bytes == 48 and memory.output_size_in_bytes == 48 + 24 + 1


def test_rematerialization_is_kept() -> None:
    """jax.checkpoint computes each layer's two dots again, and so keeps less: barriers stop what would merge them."""
    rng = np.random.default_rng(0)
    weights = [(rng.standard_normal((64, 64)) / 8).astype(np.float32) for _ in range(6)]
    x = rng.standard_normal((512, 64)).astype(np.float32)
    found = []
    for wrap in (lambda f: f, jax.checkpoint):
        layer = wrap(lambda w, x: jnp.tanh(x @ w) + jnp.sin(jnp.tanh(x @ w.T)))

        def loss(weights, x, layer=layer):  # type: ignore[no-untyped-def]
            for w in weights:
                x = layer(w, x)
            return (x**2).sum()

        compiled = jax.jit(jax.grad(loss)).lower(weights, x).compile()
        cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
        assert cost is not None and memory is not None
        dots = int(cost["flops"]) // (2 * 512 * 64 * 64)
        found.append((dots, memory.temp_size_in_bytes, jax.tree.map(np.asarray, compiled(weights, x))))
    (dots, kept, gradients), (more_dots, kept_less, same) = found
    assert more_dots == dots + 2 * 6
    assert kept_less < 0.6 * kept
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), gradients, same)
