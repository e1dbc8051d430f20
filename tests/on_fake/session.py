"""A pytest plugin for a run in a process that has the fake Metal: `pytest -p tests.on_fake.session`.

Every test fails that breaks a rule of Metal's, and so does the run if, after JAX has given up its client, an object
lives that should not.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import re
import time
from collections.abc import Generator, Iterator

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


# A sample whose types the GPU has not runs as host steps, which the Metal device does not have yet: refusing it is
# what it must do. To be deleted when it has them, with the two functions below.
_ON_HOST = "f64"
_COPIES_ONLY = {"stablehlo_concatenate_3"}
_REFUSAL = re.compile("UNIMPLEMENTED: (.|\n)*needs what Metal lacks")


@functools.cache
def _refused() -> frozenset[str]:
    from mlir_lowering.samples import module_text
    from tests.ops import test_ops

    return frozenset(
        f"test_agrees_with_the_interpreter_{name}"
        for name, _, sample in test_ops.SAMPLES
        if _ON_HOST in module_text(sample) and name not in _COPIES_ONLY
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and item.name in _refused():
        refused = call.excinfo is not None and _REFUSAL.search(str(call.excinfo.value)) is not None
        report.outcome = "passed" if refused else "failed"
        report.longrepr = None if refused else f"was not refused as needing a host step: {call.excinfo}"
    return report


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
