"""Changed compile options are read or refused; jaxlib's reader would end the process in some."""

from __future__ import annotations

import jaxlib.xla_client as xla_client
import pytest

from mlir_lowering.errors import CompileError
from mlir_lowering.options import CompileOptions, read_options
from tests.robustness import mutate_options


def test_mutations() -> None:
    refused = mutate_options.main(20_000, 5)
    assert 2000 < refused < 18_000


def test_what_jaxlib_writes_is_understood() -> None:
    assert read_options(mutate_options.original()) == CompileOptions(1, 1)
    assert read_options(xla_client.CompileOptions().SerializeAsString()) == CompileOptions(1, 1)
    options = xla_client.CompileOptions()
    options.num_replicas = 3
    with pytest.raises(CompileError, match="3 replicas and 1 partitions"):
        read_options(options.SerializeAsString())
    options = xla_client.CompileOptions()
    options.env_option_overrides = [("xla_fast", "yes")]
    with pytest.raises(CompileError, match="unknown compiler option 'xla_fast'"):
        read_options(options.SerializeAsString())
