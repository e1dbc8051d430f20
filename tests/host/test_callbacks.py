"""Python callbacks from programs on metal: pure, with effects, nested, failing."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify, io_callback

from pjrt_metal import callbacks
from tests.host import library
from tests.host.effects import forgotten_effects


@pytest.fixture(autouse=True)
def _on_metal() -> Iterator[None]:
    with jax.default_device(jax.devices("metal")[0]):
        yield


def _like(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _pure(function: Callable[..., Any], x: Any, **options: Any) -> Any:
    return jax.pure_callback(function, _like(x), x, **options)


def test_pure_callback() -> None:
    out = jax.jit(lambda x: _pure(np.sin, x * 2) + 1)(jnp.arange(5.0))
    np.testing.assert_allclose(out, np.sin(np.arange(5) * 2) + 1, rtol=1e-6)
    assert out.devices() == {jax.devices("metal")[0]}


@pytest.mark.parametrize("dtype", library.WHOLE_BYTES)
def test_element_types(dtype: Any) -> None:
    with jax.enable_x64(True):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        seen = []

        def keep(array: Any) -> Any:
            seen.append(np.asarray(array))
            return array

        out = jax.jit(lambda x: _pure(keep, x))(jnp.asarray(x))
        assert out.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(out), x)
        # The runtime's memory is used again; what a callback kept is its own.
        jax.jit(lambda x: _pure(np.zeros_like, x))(jnp.asarray(x)).block_until_ready()
        np.testing.assert_array_equal(seen[0], x)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1), (2, 3, 4)])
def test_shapes_and_several_results(shape: tuple[int, ...]) -> None:
    x = jnp.ones(shape)
    results = (_like(x), jax.ShapeDtypeStruct((0, 2), jnp.int32), jax.ShapeDtypeStruct((), jnp.float32))
    a, b, c = jax.jit(
        lambda x: jax.pure_callback(lambda x: (x + 1, np.zeros((0, 2), np.int32), np.float32(7)), results, x)
    )(x)
    np.testing.assert_array_equal(a, np.ones(shape) + 1)
    assert b.shape == (0, 2)
    assert c == 7


def test_no_operands_and_no_results() -> None:
    log: list[int] = []
    jax.jit(lambda: io_callback(lambda: log.append(1), None))()
    jax.effects_barrier()
    assert log == [1]


def test_ordered_effects_keep_their_order() -> None:
    log: list[tuple[str, float]] = []

    def function(x: Any) -> Any:
        io_callback(lambda x: log.append(("first", float(x))), None, x, ordered=True)
        y = io_callback(lambda x: np.float32(2 * x), _like(x), x + 1, ordered=True)
        io_callback(lambda y: log.append(("last", float(y))), None, y, ordered=True)
        return y

    jitted = jax.jit(function)
    result = jitted(jitted(jnp.float32(1)))
    jax.effects_barrier()
    assert result == 10
    assert log == [("first", 1.0), ("last", 4.0), ("first", 4.0), ("last", 10.0)]


def test_effects_come_in_the_programs_order() -> None:
    """y is read by the first callback and by what follows the second: fusing both readers would turn the order."""
    log: list[tuple[str, float]] = []

    def function(x: Any) -> Any:
        y = x + 1
        io_callback(lambda y: log.append(("y", float(y[0]))), None, y)
        z = io_callback(lambda x: (log.append(("x", float(x[0]))), np.asarray(x))[1], _like(x), x)
        return y + z

    np.testing.assert_array_equal(jax.jit(function)(jnp.arange(3.0)), 2 * np.arange(3) + 1)
    jax.effects_barrier()
    assert log == [("y", 1.0), ("x", 0.0)]


@pytest.mark.parametrize("ordered", [False, True])
def test_in_scan(ordered: bool) -> None:
    log: list[int] = []

    def body(carry: Any, x: Any) -> tuple[Any, Any]:
        io_callback(lambda x: log.append(int(x)), None, x, ordered=ordered)
        return carry + x, carry

    total, _ = jax.jit(lambda: jax.lax.scan(body, 0, jnp.arange(5)))()
    jax.effects_barrier()
    assert total == 10
    assert log == [0, 1, 2, 3, 4]


def test_in_a_loop_of_unknown_length() -> None:
    log: list[int] = []

    def body(i: Any) -> Any:
        jax.debug.callback(lambda i: log.append(int(i)), i, ordered=True)
        return i + 1

    assert jax.jit(lambda n: jax.lax.while_loop(lambda i: i < n, body, 0))(4) == 4
    jax.effects_barrier()
    assert log == [0, 1, 2, 3]


def test_a_loop_that_is_run_for_its_effects_only() -> None:
    log: list[int] = []

    def function(x: Any) -> Any:
        jax.lax.fori_loop(0, 3, lambda i, c: (jax.debug.callback(lambda i: log.append(int(i)), i), c)[1], 0)
        return x

    jax.jit(function)(1.0)
    jax.effects_barrier()
    assert log == [0, 1, 2]


@pytest.mark.parametrize("flag", [True, False])
def test_in_one_branch(flag: bool) -> None:
    function = jax.jit(lambda p, x: jax.lax.cond(p, lambda x: _pure(lambda x: x + 1, x), lambda x: x, x))
    np.testing.assert_array_equal(function(flag, jnp.ones(2)), np.ones(2) + flag)


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all", "legacy_vectorized"])
def test_under_vmap(method: str) -> None:
    batched = jax.jit(jax.vmap(lambda x: _pure(np.sin, x, vmap_method=method)))
    np.testing.assert_allclose(batched(jnp.arange(3.0)), np.sin(np.arange(3)), rtol=1e-6)


def test_under_grad() -> None:
    @jax.custom_vjp
    def sine(x: Any) -> Any:
        return _pure(np.sin, x)

    sine.defvjp(lambda x: (sine(x), x), lambda x, g: (g * _pure(np.cos, x),))
    gradient = jax.jit(jax.grad(lambda x: sine(x).sum()))(jnp.arange(3.0))
    np.testing.assert_allclose(gradient, np.cos(np.arange(3)), rtol=1e-6)


def test_debug_print(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        jax.debug.print("x is {x} and {}", x.sum(), x=x)
        return x

    jax.jit(function)(jnp.arange(2))
    jax.debug.print("eager {}", jnp.float32(3))
    jax.effects_barrier()
    assert capsys.readouterr().out == "x is [0 1] and 1\neager 3.0\n"


def test_checkify() -> None:
    def function(x: Any) -> Any:
        checkify.check(x > 0, "must be positive: {x}", x=x)
        return x

    error, _ = checkify.checkify(jax.jit(function))(jnp.float32(-1))
    assert "must be positive: -1" in error.get()


def _fail(x: Any) -> Any:
    raise ValueError("kaboom 17")


def test_an_exception_is_the_results_error() -> None:
    function = jax.jit(lambda x: _pure(_fail, x))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"(?s)_fail.*ValueError: kaboom 17"):
        function(jnp.ones(2)).block_until_ready()
    with forgotten_effects(), pytest.raises(jax.errors.JaxRuntimeError, match="kaboom 17"):
        jax.jit(lambda x: io_callback(_fail, _like(x), x, ordered=True))(jnp.ones(2)).block_until_ready()
    # What follows is as it was.
    np.testing.assert_array_equal(jax.jit(lambda x: _pure(lambda x: x + 1, x))(jnp.ones(2)), [2, 2])


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (np.ones(3, np.float32), r"result 0 is float32\[3\]; float32\[2\] was announced"),
        (np.ones(2, np.int32), r"result 0 is int32\[2\]; float32\[2\] was announced"),
        ((np.ones(2, np.float32),) * 2, "returned 2 arrays; 1 were announced"),
    ],
)
def test_results_that_were_not_announced(result: Any, complaint: str) -> None:
    def emitted(x: Any) -> Any:
        return io_callback(lambda x: result, _like(x), x)

    with forgotten_effects(), pytest.raises(jax.errors.JaxRuntimeError) as raised:
        jax.jit(emitted)(jnp.ones(2)).block_until_ready()
    # jax itself checks the structure of the results first.
    assert isinstance(result, tuple) or np.any([word in str(raised.value) for word in ("announced", "shape", "dtype")])
    values = result if isinstance(result, tuple) else (result,)
    with pytest.raises(RuntimeError, match=complaint):
        callbacks._checked_results(values, [_like(jnp.ones(2))])


@pytest.mark.parametrize("inner", ["metal", "cpu"])
def test_programs_run_inside_a_callback(inner: str) -> None:
    device = jax.devices(inner)[0]
    # More than one step, on arrays too large to run on the caller's thread.
    program = jax.jit(lambda x: jnp.sum(jnp.sort(x) * x) + jnp.linalg.det(jnp.eye(3)))

    def callback(x: Any) -> Any:
        with jax.default_device(device):
            return np.asarray(program(jax.device_put(np.asarray(x), device)))

    function = jax.jit(lambda x: jax.pure_callback(callback, jax.ShapeDtypeStruct((), jnp.float32), x) * 2)
    x = np.arange(100_000, dtype=np.float32) / 1e5
    np.testing.assert_allclose(function(x), 2 * (np.sum(x.astype(float) * x) + 1), rtol=1e-3)


def test_callbacks_inside_callbacks() -> None:
    innermost = jax.jit(lambda x: _pure(lambda x: np.asarray(x) + 1, x) * 3)

    def callback(x: Any) -> Any:
        with jax.default_device(jax.devices("metal")[0]):
            return np.asarray(innermost(jnp.asarray(np.asarray(x))))

    function = jax.jit(lambda x: _pure(callback, x) * 2)
    np.testing.assert_array_equal(function(jnp.arange(4.0)), (np.arange(4) + 1) * 6)


def test_arrays_from_outside_and_programs_behind() -> None:
    """A callback reads an array of the device while other programs wait behind its own."""
    constant = jnp.arange(3.0) * 2

    def callback(x: Any) -> Any:
        time.sleep(0.05)
        return np.asarray(constant) + np.asarray(x)

    function = jax.jit(lambda x: _pure(callback, x))
    behind = [function(jnp.full(3, float(i))) + 1 for i in range(5)]
    for i, result in enumerate(behind):
        np.testing.assert_array_equal(result, np.arange(3) * 2 + i + 1)


@pytest.mark.parametrize("own", [False, True], ids=["behind", "own"])
@pytest.mark.parametrize(
    "use",
    [np.asarray, jax.block_until_ready, lambda a: a + 1, lambda a: jnp.sort(a).block_until_ready(), jax.device_get],
    ids=["asarray", "block", "operand", "sort", "get"],
)
def test_a_callback_that_would_wait_for_itself(own: bool, use: Callable[[Any], Any]) -> None:
    """It asks for a result of a program that was queued behind its own, or of its own: an error that says so."""
    queued = threading.Event()
    results: list[Any] = []

    def callback(x: Any) -> Any:
        assert queued.wait(60)
        np.asarray(use(results[0 if own else 1]))
        return np.asarray(x)

    function = jax.jit(lambda x: _pure(callback, x))
    behind = jax.jit(lambda x: jnp.sort(x * 3))
    x = jnp.arange(2048.0)
    behind(x).block_until_ready()
    results.append(function(x))
    results.append(behind(x))
    queued.set()
    with forgotten_effects(), pytest.raises(Exception, match="queued behind the one that called it"):
        results[0].block_until_ready()
    np.testing.assert_array_equal(behind(x), np.arange(2048) * 3)


def test_many_threads() -> None:
    function = jax.jit(lambda x: _pure(lambda x: np.asarray(x) + 1, x))
    results: list[float] = []

    def work() -> None:
        with jax.default_device(jax.devices("metal")[0]):
            x = jnp.zeros(3)
            for _ in range(30):
                x = function(x)
            results.append(float(x[0]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [30.0] * 4


def test_a_callback_lives_as_long_as_it_is_needed() -> None:
    jax.clear_caches()
    gc.collect()
    before = len(callbacks._callbacks)
    function = jax.jit(lambda x: _pure(lambda x: (time.sleep(0.3), np.asarray(x) + 1)[1], x))
    result = function(jnp.ones(3))
    del function
    jax.clear_caches()
    gc.collect()
    np.testing.assert_array_equal(result, [2, 2, 2])  # it ran after its executable was gone
    deadline = time.monotonic() + 10
    while len(callbacks._callbacks) > before and time.monotonic() < deadline:
        time.sleep(0.01)
        gc.collect()
    assert len(callbacks._callbacks) == before


_AT_EXIT = """
import time, jax
def late(x):
    time.sleep(0.3)
    print("late", x)
with jax.default_device(jax.devices("metal")[0]):
    jax.jit(lambda x: jax.debug.callback(late, x))(5.0)
"""


def test_effects_are_waited_for_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", _AT_EXIT], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "late 5.0\n", "")


_CACHED = """
import sys, jax, numpy as np
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
with jax.default_device(jax.devices("metal")[0]):
    x = jax.numpy.ones(2)
    print(jax.jit(lambda x: jax.pure_callback(lambda x: x + np.float32(sys.argv[2]), x, x))(x)[0])
"""


def test_jaxs_compilation_cache_gives_nobody_anothers_callback(tmp_path: Any) -> None:
    for number in ("1", "2"):
        command = [sys.executable, "-c", _CACHED, str(tmp_path), number]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout == f"{1 + int(number)}.0\n", done.stderr
    assert any(tmp_path.iterdir())  # the cache is on


def test_a_failed_ordered_callback_fails_no_later_one() -> None:
    seen = []

    def run(callback: Callable[[Any], Any], x: float) -> None:
        jax.jit(lambda x: (io_callback(callback, None, x, ordered=True), x)[1])(x).block_until_ready()

    with pytest.raises(jax.errors.JaxRuntimeError, match="ZeroDivisionError"):
        run(lambda x: 1 / 0, 1.0)
    run(lambda x: seen.append(float(x)), 2.0)
    jax.effects_barrier()
    assert seen == [2.0]


_FAILED = """
import jax
from jax.experimental import io_callback
def run(callback):
    jax.jit(lambda x: (io_callback(callback, None, x, ordered=True), x)[1])(1.0).block_until_ready()
with jax.default_device(jax.devices("metal")[0]):
    try:
        run(lambda x: 1 / 0)
    except Exception as error:
        print("ZeroDivisionError" in str(error))
    run(lambda x: print("the next"))
    jax.effects_barrier()
"""


def test_a_failed_ordered_callback_is_not_reported_again_at_exit() -> None:
    done = subprocess.run([sys.executable, "-c", _FAILED], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "True\nthe next\n")
    assert "atexit" not in done.stderr
