"""A third party's client, PyPI's `pypjrt` (pure Python), loads the plugin and runs a program.

It is not a dependency of the tests: `pip install pypjrt` to run these.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest

from . import bare

conform = pytest.importorskip("pypjrt.conform", reason="pip install pypjrt")

ADD = """
module @add {
  func.func public @main(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %b : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


@pytest.fixture(scope="module")
def plugin() -> Any:
    from pypjrt import Plugin

    return Plugin(bare.library_path())


def test_conformance(plugin: Any) -> None:
    """What we lack may be unsupported, but nothing that we have may fail."""
    report = conform.run(plugin)
    failed = [check for check in report.checks if check.result is conform.Result.FAIL]
    assert failed == []
    assert report.counts()["pass"] > 40


def test_runs_a_program(plugin: Any) -> None:
    pytest.importorskip("pjrt_metal.compiler_hook", reason="compiling needs the installed package")
    from pypjrt import Client

    with Client.create(plugin) as client, client.devices() as devices:
        executable = client.compile(ADD)
        values = bytearray(struct.pack("<4f", 1, 2, 3, 4))  # the client takes writable memory only
        a = client.buffer_from_host(values, bare.F32, [4], devices[0])
        (out,) = executable(a, a)
        assert struct.unpack("<4f", bytes(out.to_host())) == (2, 4, 6, 8)
