"""Bad programs, arguments and surroundings: a Python exception with a clear message, and a process that lives on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pjrt_metal.run_text import compile_text

DEVICE = "metal"


@pytest.fixture
def device() -> jax.Device:
    return jax.devices(DEVICE)[0]


def _alive(device: jax.Device) -> None:
    """The device still computes after what went before."""
    x = jax.device_put(np.arange(5, dtype=np.float32), device)
    np.testing.assert_array_equal(np.asarray(x + 1), np.arange(1, 6, dtype=np.float32))


def test_text_that_is_no_program(device: jax.Device) -> None:
    with pytest.raises(Exception, match=r"(?i)mlir|parse|StableHLO"):
        compile_text("this is not MLIR", device)
    _alive(device)


def test_unknown_op_names_the_op_and_its_types(device: jax.Device) -> None:
    text = """
      func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.custom_call @no_such_target(%x) : (tensor<3xf32>) -> tensor<3xf32>
        return %0 : tensor<3xf32>
      }"""
    with pytest.raises(Exception, match="no_such_target"):
        compile_text(text, device)
    _alive(device)


def test_unsupported_dtype_names_it(device: jax.Device) -> None:
    with jax.default_device(device), pytest.raises(Exception, match=r"(?s)f8E5M2.*use f16"):
        np.asarray(jnp.sin(jnp.ones(3, jnp.float8_e5m2)))
    _alive(device)


def test_wrong_argument_count(device: jax.Device) -> None:
    executable = compile_text(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {"
        " %0 = stablehlo.tanh %x : tensor<3xf32> return %0 : tensor<3xf32> }",
        device,
    )
    x = jax.device_put(np.ones(3, np.float32), device)
    with pytest.raises(Exception, match="argument"):
        executable.execute([x, x])
    _alive(device)


def test_wrong_argument_shape(device: jax.Device) -> None:
    executable = compile_text(
        "func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {"
        " %0 = stablehlo.tanh %x : tensor<3xf32> return %0 : tensor<3xf32> }",
        device,
    )
    with pytest.raises(Exception, match=r"argument|shape|size"):
        executable.execute([jax.device_put(np.ones(4, np.float32), device)])
    _alive(device)


def test_donated_buffer_used_again(device: jax.Device) -> None:
    x = jax.device_put(np.ones(8, np.float32), device)
    y = jax.jit(lambda a: a + 1, donate_argnums=0)(x)
    with pytest.raises(Exception, match=r"(?i)delet|donat"):
        np.asarray(x + 1)
    np.testing.assert_array_equal(np.asarray(y), np.full(8, 2, np.float32))
    _alive(device)


def test_impossible_allocation(device: jax.Device) -> None:
    with (
        jax.default_device(device),
        pytest.raises(Exception, match=r"(?i)RESOURCE_EXHAUSTED|memory"),
    ):
        np.asarray(jax.jit(lambda: jnp.ones((1 << 20, 1 << 20), jnp.float32))())
    _alive(device)


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    prelude = """
        import numpy as np, jax, jax.numpy as jnp
        def attempt(f):
            try:
                return np.asarray(f())
            except Exception as error:
                print(f"{type(error).__name__}: {error}")
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(prelude) + textwrap.dedent(code)],
        env={**os.environ, "JAX_PLATFORMS": "metal,cpu", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_missing_compiler_says_what_to_install(tmp_path: Path) -> None:
    result = _run(
        """
        attempt(lambda: jnp.arange(3.0) * 17.25)
        print("alive", jax.device_put(np.float32(2), jax.devices("cpu")[0]) + 1)
        """,
        PJRT_METAL_CXX=str(tmp_path / "no-such-compiler"),
        PJRT_METAL_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert "no-such-compiler" in result.stdout, result.stderr
    assert "alive 3.0" in result.stdout and result.returncode == 0


def test_failing_compiler_shows_its_message(tmp_path: Path) -> None:
    compiler = tmp_path / "failing-c++"
    compiler.write_text("#!/bin/sh\necho 'the compiler is on strike' >&2\nexit 3\n")
    compiler.chmod(0o755)
    result = _run(
        "attempt(lambda: jnp.arange(3.0) * 17.25)\nprint('alive')",
        PJRT_METAL_CXX=str(compiler),
        PJRT_METAL_CACHE_DIR=str(tmp_path / "cache"),
    )
    assert "on strike" in result.stdout, result.stdout + result.stderr
    assert "alive" in result.stdout and result.returncode == 0


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    """A cache folder under a file can never be made: programs run without it."""
    blocker = tmp_path / "file"
    blocker.write_text("")
    result = _run(
        "print(attempt(lambda: jnp.arange(3.0) * 2))",
        PJRT_METAL_CACHE_DIR=str(blocker / "cache"),
    )
    assert "[0. 2. 4.]" in result.stdout, result.stdout + result.stderr
    assert result.returncode == 0
    assert result.stderr.count(f"PJRT_METAL_CACHE_DIR cannot be used, nothing is kept there: {blocker}/cache") == 1


def test_running_out_of_memory_leaves_donated_arguments(device: jax.Device) -> None:
    x = jax.device_put(np.ones(8, np.float32), device)
    step = jax.jit(lambda a: (a + 1, jnp.zeros((1 << 15, 1 << 15, 16), jnp.float32)), donate_argnums=0)
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
        step(x)
    np.testing.assert_array_equal(np.asarray(x), np.ones(8, np.float32))


def test_an_op_in_a_function_of_jaxs_has_the_line_of_its_call(device: jax.Device) -> None:
    """jax lowers fft in a private function, whose ops have no line."""

    def spectrum(x: jax.Array) -> jax.Array:
        return jnp.fft.rfft(x).real.sum()

    with jax.default_device(device), pytest.raises(Exception, match=r"stablehlo\.fft") as caught:
        jax.jit(spectrum)(np.ones((3, 4), np.float32))
    line = spectrum.__code__.co_firstlineno + 1
    assert f"test_bad_input.py:{line}" in str(caught.value)
    assert "jax.devices" in str(caught.value)  # what to do


def test_unsupported_type_names_the_line(device: jax.Device) -> None:
    x = jax.device_put(np.ones(3, jnp.float8_e5m2), device)
    with pytest.raises(Exception, match=r"stablehlo\.add.*f8E5M2(.|\n)*test_bad_input"):
        jax.jit(lambda a: a + a)(x)


def test_control_flow_in_a_reducer_is_refused(device: jax.Device) -> None:
    def reducer(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.cond(a > b, lambda: a, lambda: b)

    with jax.default_device(device), pytest.raises(Exception, match=r"UNIMPLEMENTED(.|\n)*stablehlo\.case"):
        jax.jit(lambda x: jax.lax.reduce(x, np.float32(0), reducer, (0,)))(np.ones(5, np.float32))


def test_empty_arrays(device: jax.Device) -> None:
    with jax.default_device(device):
        empty = jnp.zeros((0, 2))
        assert float(jnp.sum(empty @ empty.T)) == 0
        assert float(jnp.sum(jnp.sort(jnp.zeros(0)))) == 0
        assert float(jnp.max(jnp.zeros(0), initial=3.0)) == 3
        assert jnp.concatenate([empty, jnp.ones((1, 2))]).shape == (1, 2)


def test_nested_concatenates_compile_in_bounded_time(device: jax.Device) -> None:
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(40):
            x = jnp.concatenate([x[1:], x[:2]]) + jnp.concatenate([x[:1], x])
        return x

    x = np.arange(3, dtype=np.float32)
    with jax.default_device(device):
        got = jax.jit(chain)(x)
    np.testing.assert_allclose(got, jax.jit(chain, backend="cpu")(x), rtol=1e-5)


def test_unsigned_counter_that_wraps(device: jax.Device) -> None:
    def count(start: int) -> jax.Array:
        def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return state[0] - jnp.uint8(3), state[1] + 1

        return jax.lax.while_loop(lambda s: s[0] > 0, body, (jnp.uint8(start), jnp.int32(0)))[1]

    with jax.default_device(device):
        got = int(jax.jit(count, static_argnums=0)(5))
    with jax.default_device(jax.devices("cpu")[0]):
        assert got == int(jax.jit(count, static_argnums=0)(5))
