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

from tests.ops.harness import compile_text

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
    with jax.default_device(device), pytest.raises(Exception, match="complex"):
        np.asarray(jnp.sin(jnp.ones(3, jnp.complex64)))
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
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
