"""What a CompileOptionsProto asks of the compiler."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlir_lowering.errors import CompileError

# Field numbers of CompileOptionsProto, and of its ExecutableBuildOptionsProto.
_BUILD_OPTIONS, _ENV_OPTION_OVERRIDES = 3, 7
_NUM_REPLICAS, _NUM_PARTITIONS = 4, 5


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
    # Not by jaxlib, which a corrupt message ends the process in.
    overrides, replicas, partitions = [], 0, 0
    try:
        for field, value in _fields(data):
            if field == _ENV_OPTION_OVERRIDES:
                entry = dict(_fields(_message(value)))
                overrides.append(_message(entry.get(1, b"")).decode(errors="replace"))
            if field == _BUILD_OPTIONS:
                for build_field, number in _fields(_message(value)):
                    if build_field == _NUM_REPLICAS:
                        replicas = _number(number)
                    if build_field == _NUM_PARTITIONS:
                        partitions = _number(number)
    except ValueError as error:
        raise CompileError(f"the compile options cannot be read: {error}") from error
    for name in overrides:
        raise CompileError(f"unknown compiler option {name!r}: pjrt-metal has none; leave it out")
    # An absent build-options message reads as 0.
    options = CompileOptions(max(replicas, 1), max(partitions, 1))
    if options.num_replicas * options.num_partitions > 1:
        raise CompileError(
            f"the program is for {options.num_replicas} replicas and {options.num_partitions} partitions;"
            " pjrt-metal runs a program on one device: use one device"
        )
    return options


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protocol buffer message's fields: varints and byte strings; others are skipped over.
    Raises ValueError for what is no message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        match key & 7:
            case 0:
                number, at = _varint(data, at)
                yield key >> 3, number
            case 2:
                size, at = _varint(data, at)
                if size > len(data) - at:
                    raise ValueError(f"a field of {size} bytes exceeds what is left")
                yield key >> 3, data[at : at + size]
                at += size
            case 1 | 5 as fixed:
                at += 8 if fixed == 1 else 4
                if at > len(data):
                    raise ValueError("a number exceeds what is left")
            case wire_type:
                raise ValueError(f"a field has the unknown wire type {wire_type}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where the next thing begins."""
    value = 0
    for i in range(10):  # of 7 bits, for 64
        if at + i >= len(data):
            raise ValueError("it ends within a number")
        value |= (data[at + i] & 0x7F) << 7 * i
        if data[at + i] < 0x80:
            return value, at + i + 1
    raise ValueError("a number is longer than 64 bits")


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def _number(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError("bytes where a number should be")
    return value
