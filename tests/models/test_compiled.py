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
