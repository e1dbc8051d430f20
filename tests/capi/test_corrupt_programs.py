"""Corrupt Programs are refused with a message: nothing crashes, hangs or is run."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

import pytest

from mlir_lowering import program as p

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


@pytest.mark.parametrize("make", [programs.copies, programs.library_call])
@pytest.mark.parametrize("seed", range(10))
def test_mutations(api: Api, client: Client, seed: int, make: Callable[[str], bytes]) -> None:
    """100 mutations a seed, with a checksum that fits: the parser must find what is wrong."""
    rng = random.Random(seed)
    blob = make(client.target)
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


def view(*shape: int, dims: tuple[int, ...] = (), by: tuple[int, ...] = ()) -> p.LibraryView:
    dims = dims or shape
    return p.LibraryView(dims, by or tuple(range(len(dims))), shape)


def matmul(*views: p.LibraryView, dtype: int = programs.F32) -> p.LibraryOp:
    return p.LibraryOp(p.LibraryKind.MATMUL, dtype, *views)


A, B, C = view(1, 2, 3), view(1, 3, 4), view(1, 2, 4)
LAUNCH = p.Launch(0, (2,), b"", (1, 1, 1))


def convolution(**fields: object) -> p.LibraryOp:
    """6 elements by 12: one image of 3 x 2 with one feature, 12 weights of 1 x 1, none of the result's size."""
    sound = {
        "lhs": view(1, 3, 2, 1),
        "rhs": view(1, 1, 1, 12),
        "result": view(1, 2, 1, 12, dims=(24,)),
        "stride": (2, 2),
        "data_layout": p.DataLayout.NHWC,
        "weights_layout": p.WeightsLayout.HWIO,
    }
    return p.LibraryOp(kind=p.LibraryKind.CONVOLUTION, dtype=programs.F32, **{**sound, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"op": matmul(A, B, C, dtype=12)}, "an element type that is not f32, f16 or bf16"),
        ({"op": matmul(A, B, C, dtype=200)}, "an element type that is not f32, f16 or bf16"),
        ({"op": matmul(view(2, 3), B, C)}, "a shape of the wrong rank"),
        ({"op": matmul(p.LibraryView((1, 2, 3), (0, 1), (1, 2, 3)), B, C)}, "a view of the wrong rank"),
        ({"op": matmul(view(1, 2, 3, dims=(1,) * 16 + (6,)), B, C)}, "a view of the wrong rank"),
        ({"op": matmul(p.LibraryView((), (), (1, 2, 3)), B, C)}, "a view of the wrong rank"),
        ({"op": matmul(view(1, 2, 3, by=(0, 1, 1)), B, C)}, "a view whose permutation is none"),
        ({"op": matmul(view(1, 2, 3, by=(0, 1, 3)), B, C)}, "a view whose permutation is none"),
        ({"op": matmul(view(1, 2, 3, dims=(1, 2, 4)), B, C)}, "a view whose shape has another size"),
        ({"op": matmul(view(1, 0, 3), B, view(1, 0, 4))}, "a view that is empty or too large"),
        ({"op": matmul(view(1 << 30, 1 << 30, 3), B, C)}, "a view that is empty or too large"),
        ({"op": matmul(view(1, -2, -3), B, C)}, "a view that is empty or too large"),
        ({"op": matmul(A, view(1, 4, 3), C)}, "shapes that do not fit"),
        ({"op": matmul(view(2, 1, 3), B, C)}, "shapes that do not fit"),
        ({"op": convolution(groups=0)}, "batches or features that do not fit"),
        ({"op": convolution(groups=5)}, "batches or features that do not fit"),
        ({"op": convolution(rhs=view(1, 1, 12, 1))}, "batches or features that do not fit"),
        ({"op": convolution(data_layout=p.DataLayout.NCHW)}, "batches or features that do not fit"),
        ({"op": convolution(stride=(0, 2))}, "a window that is empty or too large"),
        ({"op": convolution(dilation=(1, 1 << 31))}, "a window that is empty or too large"),
        ({"op": convolution(stride=(1, 2))}, "windows that do not fit"),
        ({"op": convolution(padding=(0, 0, 0, 1 << 30))}, "windows that do not fit"),
        ({"op": convolution(rhs=view(4, 1, 1, 3))}, "batches or features that do not fit"),
        ({"op": convolution()}, "slot has another size"),
        ({"op": matmul(A, B, C, dtype=10)}, "slot has another size"),
        ({"slots": (0, 1, 3)}, "names slot 3"),
        ({"slots": (0, 1, 1)}, "writes a parameter"),
        ({"kernels": ()}, "not made of launches"),
        ({"kernels": (LAUNCH, p.Copy(2, 2))}, "not made of launches"),
        ({"kernels": (p.Launch(1, (2,), b"", (1, 1, 1)),)}, "names a kernel that is not there"),
        ({"kernels": (p.Launch(0, (2,), b"", (1, 1, 1), label=1),)}, "names a label that is not there"),
    ],
)
def test_library_calls(client: Client, fields: dict[str, object], message: str) -> None:
    with pytest.raises(bare.PjrtError) as caught:
        client.load(programs.library_call(client.target, **fields))  # type: ignore[arg-type]
    assert caught.value.code == "INVALID_ARGUMENT"
    assert message in caught.value.message


def test_a_sound_library_call_loads(api: Api, client: Client) -> None:
    """On the software device, which has no library, too."""
    assert try_to_load(api, client, programs.library_call(client.target))


def test_the_work_of_a_launch(client: Client) -> None:
    """A device may divide what it is given by it: none is less than its threads."""
    blob = programs.add(client.target, count=8)
    grid = struct.pack("<6IQ", 8, 1, 1, 0, 0, 0, 8)
    assert blob.count(grid) == 1
    with pytest.raises(bare.PjrtError, match="work is less than an iteration a thread"):
        client.load(programs.with_checksum(blob.replace(grid, grid[:-8] + struct.pack("<Q", 7))))


@pytest.mark.parametrize(
    ("buffers", "arguments", "fits"), [(31, 0, True), (30, 1, True), (32, 0, False), (31, 1, False)]
)
def test_buffers_of_a_kernel(api: Api, client: Client, buffers: int, arguments: int, fits: bool) -> None:
    """Metal's argument tables have 31 entries."""
    blob = programs.many_buffers(client.target, buffers, arguments)
    if not fits:
        with pytest.raises(bare.PjrtError, match=f"k_many binds {buffers} buffers and {arguments} arguments"):
            client.load(blob)
        return
    loaded = client.load(blob)
    (result,) = client.execute(loaded, client.put(2.0))
    assert client.floats(result) == [2.0 * (buffers - 1)]
    client.destroy(result)
    api.call("PJRT_LoadedExecutable_Destroy", executable=loaded)
