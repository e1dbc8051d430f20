"""A pytest plugin for a run in a process that has the fake Metal: `pytest -p tests.on_fake.session`.

Every test fails that breaks a rule of Metal's, and so does the run if, after JAX has given up its client, an object
lives that should not.
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Iterator

import jax
import jax.extend.backend
import pytest

# tests/metal/fake/fake.h
_fake = ctypes.CDLL(None)
_fake.FakeViolations.restype = _fake.FakeLiveNames.restype = ctypes.c_char_p
_fake.FakeLive.restype = _fake.FakeDispatches.restype = ctypes.c_long


def fail(what: str) -> None:
    """Makes one thing go wrong from now on, as fake.h lists them; "" ends it."""
    _fake.FakeFail(what.encode())


def pause(paused: bool) -> None:
    """While paused, the GPU starts no command buffer."""
    _fake.FakePause(paused)


def take_violations() -> str:
    """Those since the last call, a line each."""
    found: str = _fake.FakeViolations().decode()
    _fake.FakeClear()
    return found


def release_client() -> str:
    """What lives after JAX has given up its client: nothing, or names and numbers."""
    jax.clear_caches()
    jax.extend.backend.clear_backends()
    gc.collect()
    # The fake's threads release what they hold a little after completion.
    deadline = time.monotonic() + 5
    while _fake.FakeLive() and time.monotonic() < deadline:
        time.sleep(0.01)
    names: str = _fake.FakeLiveNames().decode()
    return names


def pytest_configure(config: pytest.Config) -> None:
    kind = jax.devices("metal")[0].device_kind
    if kind != "Apple Fake":
        raise pytest.UsageError(f"this process runs on {kind!r}, not on the fake Metal")


@pytest.fixture(autouse=True)
def no_violations() -> Iterator[None]:
    yield
    found = take_violations()
    assert not found, found


def pytest_sessionfinish(session: pytest.Session) -> None:
    dispatches = _fake.FakeDispatches()
    lives = release_client()
    found = take_violations()
    print(f"\nfake Metal: {dispatches} dispatches; violations at the end: {found or 'none'}; live: {lives or 'none'}")
    if lives or found or dispatches == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
