"""Corrupt Programs are refused with a message: nothing crashes, hangs or is run."""

from __future__ import annotations

import random
import re

import pytest

from . import bare, programs
from .bare import Api
from .harness import Client

ALLOWED = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "INTERNAL"}


def try_to_load(api: Api, client: Client, blob: bytes) -> bool:
    try:
        executable = client.load(blob)
    except bare.PjrtError as error:
        assert error.code in ALLOWED
        assert error.message
        return False
    api.call("PJRT_LoadedExecutable_Destroy", executable=executable)
    return True


def test_truncations(api: Api, client: Client) -> None:
    blob = programs.copies(client.target)
    for size in range(len(blob)):
        assert not try_to_load(api, client, blob[:size])
        if size > programs.HEADER.size:
            assert not try_to_load(api, client, programs.with_checksum(blob[:size]))
    assert not try_to_load(api, client, programs.with_checksum(blob + b"\0"))
    assert try_to_load(api, client, programs.with_checksum(blob))


def test_bit_flips(api: Api, client: Client) -> None:
    """The checksum finds every single flipped bit."""
    blob = programs.copies(client.target)
    for position in range(len(blob)):
        flipped = bytearray(blob)
        flipped[position] ^= 1 << position % 8
        assert not try_to_load(api, client, bytes(flipped))


@pytest.mark.parametrize("seed", range(10))
def test_mutations(api: Api, client: Client, seed: int) -> None:
    """100 mutations a seed, with a checksum that fits: the parser must find what is wrong."""
    rng = random.Random(seed)
    blob = programs.copies(client.target)
    interesting = (0, 1, 0x7F, 0x80, 0xFF)
    for _ in range(100):
        mutated = bytearray(blob)
        for _ in range(rng.randint(1, 4)):
            position = rng.randrange(programs.HEADER.size, len(mutated))
            kind = rng.randrange(4)
            if kind == 0:
                mutated[position] = rng.randrange(256)
            elif kind == 1:
                width = rng.choice((1, 4, 8))
                mutated[position : position + width] = bytes([rng.choice(interesting)]) * width
            elif kind == 2:
                del mutated[position : position + rng.randint(1, 16)]
            else:
                mutated[position:position] = rng.randbytes(rng.randint(1, 16))
        try_to_load(api, client, programs.with_checksum(bytes(mutated)))


def test_mutated_kernels(api: Api, client: Client) -> None:
    """A kernel whose source does not compile is an error with the compiler's message."""
    blob = programs.add(client.target).replace(b"if (tid.x < n)", b"if (tid.x < m)")
    with pytest.raises(bare.PjrtError) as caught:
        client.load(programs.with_checksum(blob))
    assert "k_add" in caught.value.message
    # Compilers quote names with whatever the locale has.
    assert re.search(r"\Wm\W.*(not declared|undeclared)", caught.value.message)
