"""Signals, forks and the interpreter's end while metal is at work, and compilers that hang: as Python sees them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

PRELUDE = """
    import os, signal, sys, threading, time
    import numpy as np, jax, jax.numpy as jnp
    x = jax.device_put(np.arange(5, dtype=np.float32), jax.devices("metal")[0])
    def check():
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: a * 3 + 1)(x)), np.arange(5) * 3 + 1)
    @jax.jit
    def long(x, n):  # some seconds for n = 1
        return jax.lax.fori_loop(0, n * 400_000, lambda i, a: jnp.sin(a) + 1, x)
    check()
    print("begin", flush=True)
"""


def start(code: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + textwrap.dedent(code)],
        env={**os.environ, "JAX_PLATFORMS": "metal,cpu", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 120) -> str:
    """The rest of the output; the process and its children are ended if they do not end."""
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, errors = process.communicate()
        raise AssertionError(f"it hangs: {output} {errors[-4000:]}") from None
    assert process.returncode == 0, f"{process.returncode}: {output} {errors[-4000:]}"
    return output


def slow_compiler(folder: Path, seconds: float) -> str:
    path = folder / "slow-c++"
    path.write_text(f'#!/bin/sh\nsleep {seconds}\nexec g++ "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_fork_after_use() -> None:
    """A child reads what was ready; programs, transfers and compilations are errors there; the parent goes on."""
    process = start("""
        big = jax.jit(lambda a: jnp.broadcast_to(a[:, None], (5, 200_000)) * 2)(x).block_until_ready()  # on the queue
        known = jax.jit(lambda a: a + 1)
        known(x)
        ready = x + 0
        child = os.fork()
        if child == 0:
            try:
                np.testing.assert_array_equal(np.asarray(ready), np.arange(5))
                for attempt in (lambda: np.asarray(known(x)), lambda: jax.device_put(np.ones(3), x.device)):
                    try:
                        attempt()
                    except Exception as error:
                        assert "fork" in str(error), error
                        print("refused", flush=True)
                del big, known
                sys.exit(0)
            except SystemExit:
                raise
            except BaseException as error:
                print("child:", error, flush=True)
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        check()
        print("done")
    """)
    output = finish(process)
    assert output.count("refused") == 2 and "done" in output, output


@pytest.mark.parametrize("to_all", [False, True])
def test_interrupt_during_a_compilation(tmp_path: Path, to_all: bool) -> None:
    """The terminal's interrupt goes to the compiler, too; kill's goes to Python alone."""
    variables = {"PJRT_METAL_CACHE_DIR": str(tmp_path / "kernels"), "TMPDIR": str(tmp_path)}
    process = start(
        """
        os.environ.pop("nothing", None)
        try:
            np.asarray(jax.jit(lambda a: jnp.cos(a) * 17.25)(x))
            time.sleep(5)
            print("was not interrupted")
        except BaseException as error:
            print("interrupted", type(error).__name__, flush=True)
        try:
            time.sleep(0.2)  # an interrupt may come after the compiler's end
        except KeyboardInterrupt:
            print("late")
        check()
        got = np.asarray(jax.jit(lambda a: jnp.cos(a) * 17.25)(x))
        np.testing.assert_allclose(got, np.cos(np.arange(5)) * 17.25, rtol=1e-5)
        print("done")
        """,
        PJRT_METAL_CXX=slow_compiler(tmp_path, 2),
        **variables,
    )
    assert process.stdout is not None and process.stdout.readline() == "begin\n"
    time.sleep(1)
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    output = finish(process)
    assert "interrupted" in output and "done" in output and "not interrupted" not in output, output


def test_interrupt_during_a_program() -> None:
    """The interrupt comes when the program ends, as on JAX's other devices; what follows is right."""
    process = start("""
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            y = long(x, 1)
            y.block_until_ready()
            time.sleep(5)
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        check()
        np.asarray(long(x, 0))
        print("done")
    """)
    output = finish(process)
    assert "begin\ninterrupted\ndone" in output, output


@pytest.mark.parametrize(
    "work",
    [
        "long(x, 1)",
        "[long(x + i, 1) for i in range(3)]",
        "long(x, 1); sys.exit(0)",
        "y = long(x, 1); del x, y",
        # A callback that can no longer be made, and one that is under way.
        "jax.jit(lambda a: jax.pure_callback(lambda b: b + 1, a, long(a, 1)))(x)",
        "jax.jit(lambda a: jax.pure_callback(lambda b: (time.sleep(1), b)[1], a, a))(x); time.sleep(0.2)",
        "jax.jit(lambda a: jax.debug.callback(lambda b: time.sleep(1), a))(x); time.sleep(0.2)",
    ],
)
def test_interpreter_ends_with_work_in_flight(work: str) -> None:
    finish(start(work))


def test_exception_ends_the_interpreter_with_work_in_flight() -> None:
    process = start("y = long(x, 1)\nraise ValueError('of the program')")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and "of the program" in errors


def test_compiler_that_hangs(tmp_path: Path) -> None:
    path = tmp_path / "c++"
    path.write_text('#!/bin/sh\n[ -e "$0.works" ] && exec g++ "$@"\nexec sleep 1000\n')
    path.chmod(0o755)
    variables = {"PJRT_METAL_CACHE_DIR": str(tmp_path / "kernels"), "TMPDIR": str(tmp_path)}
    prelude = "import numpy as np, jax, os\nx = jax.device_put(np.ones(3, np.float32), jax.devices('metal')[0])\n"
    code = f"""
        try:
            np.asarray(jax.jit(lambda a: a * 3 + 1)(x))
        except jax.errors.JaxRuntimeError as error:
            assert "killed after 1 s" in str(error), error
            print("refused")
        open({str(path)!r} + ".works", "w").close()
        os.environ["PJRT_METAL_CXX_SECONDS"] = "600"
        np.testing.assert_array_equal(np.asarray(jax.jit(lambda a: a * 3 + 1)(x)), np.full(3, 4))
    """
    result = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code)],
        env={**os.environ, "PJRT_METAL_CXX": str(path), "PJRT_METAL_CXX_SECONDS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0 and "refused" in result.stdout, result.stderr[-3000:]
