"""What a CompileOptionsProto asks of the compiler."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlib import xla_client

from mlir_lowering.errors import CompileError


@dataclass(frozen=True)
class CompileOptions:
    """How many copies of the program run together; 1 and 1 is all that this compiler makes."""

    num_replicas: int = 1
    num_partitions: int = 1


def read_options(data: bytes) -> CompileOptions:
    """Reads a serialized CompileOptionsProto (xla/pjrt/proto/compile_options.proto); empty bytes are the defaults.

    Raises CompileError for bytes that are no such message, for more than one device, and for `compiler_options`
    that jax.jit was given: this compiler has none.
    """
    if not data:
        return CompileOptions()
    try:
        proto = xla_client.CompileOptions.ParseFromString(data)
        overrides = list(proto.env_option_overrides)
    except Exception as error:
        raise CompileError(f"the compile options cannot be read: {error}") from error
    for name, _ in overrides:
        raise CompileError(f"unknown compiler option {name!r}: pjrt-metal has none; leave it out")
    # An absent build-options message reads as 0.
    options = CompileOptions(max(proto.num_replicas, 1), max(proto.num_partitions, 1))
    if options.num_replicas * options.num_partitions > 1:
        raise CompileError(
            f"the program is for {options.num_replicas} replicas and {options.num_partitions} partitions;"
            " pjrt-metal runs a program on one device: use one device"
        )
    return options
