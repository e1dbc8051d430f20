"""What Metal may fail at, made to fail: each becomes an exception that says so, and the next program runs.

Run by test_failures.py in a process that has the fake.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlir_lowering.program import Kernel
from tests.on_fake import session

ERROR = jax.errors.JaxRuntimeError


@pytest.fixture(autouse=True)
def nothing_fails_for_ever() -> Iterator[None]:
    yield
    session.fail("")


def _compute(size: int) -> jax.Array:
    """A program that no other size shares a buffer with."""
    x = jax.device_put(np.arange(size, dtype=np.float32), jax.devices("metal")[0])
    return jax.jit(lambda x: 2 * x[::-1] + 1)(x)


def _check(size: int) -> None:
    np.testing.assert_array_equal(_compute(size), 2 * np.arange(size, dtype=np.float32)[::-1] + 1)


def _to_device() -> Any:
    return jax.device_put(np.ones(123_457, np.float32), jax.devices("metal")[0])


def _results() -> Any:
    return jax.jit(lambda x: jnp.broadcast_to(x, (234_567, 3)))(jnp.float32(3)).block_until_ready()


@pytest.mark.parametrize("program", [_to_device, _results])
def test_allocation(program: Callable[[], Any]) -> None:
    _check(7)
    session.fail("allocate")
    with pytest.raises(ERROR, match=r"RESOURCE_EXHAUSTED: .*out of memory"):
        program()
    session.fail("")
    program()
    _check(7)


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("compile", r"Metal could not compile it: program_source:1:2: error: planted \(MTLLibraryErrorDomain 3\)"),
        ("pipeline", r"Metal could not make its pipeline: Threadgroup memory size \(40000\) exceeds the maximum"),
        ("width", "64 threads in a SIMD group; kernels are written for 32"),
    ],
)
def test_compilation(what: str, text: str) -> None:
    def program() -> jax.Array:
        return jax.jit(lambda x: jnp.tanh(x) * len(what))(jnp.float32(1))

    session.fail(what)
    with pytest.raises(ERROR, match=f"INTERNAL: (.|\n)*{text}"):
        program()
    session.fail("")
    np.testing.assert_allclose(program(), np.tanh(1.0) * len(what), rtol=1e-6)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (8, "RESOURCE_EXHAUSTED: (.|\n)*Insufficient Memory"),
        (2, "DEADLINE_EXCEEDED: (.|\n)*Caused GPU Timeout Error"),
        (4, "UNAVAILABLE: (.|\n)*SubmissionsIgnored"),
        (11, "UNAVAILABLE: (.|\n)*Device was removed"),
        (3, "INTERNAL: (.|\n)*Caused GPU Address Fault Error"),
        (1, "INTERNAL: (.|\n)*CallbackErrorUnknown"),
    ],
)
def test_command_buffer(code: int, text: str) -> None:
    _check(9)
    session.fail(f"run:{code}")
    failed = _compute(9)
    with pytest.raises(ERROR, match=text):
        np.asarray(failed)
    # What comes of a failed array fails too, for the same reason.
    session.fail("")
    with pytest.raises(ERROR, match=text):
        np.asarray(failed + 1)
    _check(9)


def test_completions_out_of_order() -> None:
    session.fail("reorder")
    x = jax.device_put(np.ones(10, np.float32), jax.devices("metal")[0])
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(20):
        x = step(x)
    np.testing.assert_array_equal(x, np.full(10, 21, np.float32))


def _broken(monkeypatch: pytest.MonkeyPatch, pattern: str, replacement: str) -> jax.Array:
    """A sum over rows by a compiler that writes `replacement` for what `pattern` finds in its kernels."""
    init = Kernel.__init__

    def with_fault(self: Kernel, name: str, source: str, *rest: Any) -> None:
        changed, count = re.subn(pattern, replacement, source)
        assert count > 0, source
        init(self, name, changed, *rest)

    x = jax.device_put(np.ones((3, 5000), np.float32), jax.devices("metal")[0])
    with monkeypatch.context() as patch:
        patch.setattr(Kernel, "__init__", with_fault)
        # A program of its own: those of other tests are compiled already.
        return jax.jit(lambda x: x.sum(1) * len(pattern))(x)


@pytest.mark.parametrize(
    ("pattern", "replacement", "text"),
    [
        (r"threadgroup_barrier\(.*?\);", "", "no thread has written|no barrier in between"),
        (r"threadgroup_barrier\(.*?\);", r"\g<0>", None),
        (r"out0\[(.*?)\] =", r"out0[(\1) + 4096] =", "out of bounds"),
    ],
)
def test_violations(monkeypatch: pytest.MonkeyPatch, pattern: str, replacement: str, text: str | None) -> None:
    """A kernel that breaks a rule is an exception, and a line for the test; one that breaks none is neither."""
    if text is None:
        np.testing.assert_array_equal(_broken(monkeypatch, pattern, replacement), np.full(3, 5000.0) * len(pattern))
        return
    with pytest.raises(ERROR, match=f"INTERNAL: (.|\n)*({text})"):
        np.asarray(_broken(monkeypatch, pattern, replacement))
    assert re.search(text, session.take_violations())
    _check(11)


def test_what_comes_of_a_failed_array_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    session.pause(True)
    failed = _broken(monkeypatch, r"out0\[(.*?)\] =", r"out0[(\1) + 4096] =")  # in a command buffer of its own
    follower = failed + 1  # encoded behind it
    session.pause(False)
    with pytest.raises(ERROR, match="out of bounds"):
        np.asarray(follower)
    assert "out of bounds" in session.take_violations()
    _check(13)
