"""Fixtures of the bare client's tests.

A test names the functions that it is about: `@pytest.mark.drives("Event_Await", ...)`. It fails if
it did not call them, and test_coverage.py fails if a function of the API is named by no test.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # mlir_lowering, where it is not installed

from . import bare, programs
from .harness import Client


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "drives(*names): PJRT functions that the test calls")


@pytest.fixture(scope="session")
def api() -> bare.Api:
    api = bare.Api(bare.library_path())
    api.call("PJRT_Plugin_Initialize")
    return api


@pytest.fixture(scope="session")
def client(api: bare.Api) -> Client:
    return Client(api)


@pytest.fixture(scope="session")
def add(client: Client) -> int:
    """A loaded executable: f32[8] + f32[8]."""
    return client.load(programs.add(client.target))


@pytest.fixture(autouse=True)
def drives(request: pytest.FixtureRequest, api: bare.Api) -> Iterator[None]:
    api.called.clear()
    yield
    for marker in request.node.iter_markers("drives"):
        missing = {f"PJRT_{name}" for name in marker.args} - api.called
        assert not missing, f"the test says that it drives {missing}"
