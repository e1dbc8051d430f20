"""Buffers: from the host and back in every layout, metadata, copies, donation, deletion."""

from __future__ import annotations

import ctypes
import itertools
import struct
from typing import Any

import numpy as np
import pytest

from . import bare
from .bare import Api
from .harness import Client

RNG = np.random.default_rng(0)


def tiled(*minor_to_major: int, tiles: int = 0) -> Any:
    order = bare.int64s(*minor_to_major)
    layout = bare.new("PJRT_Buffer_MemoryLayout", type=0)
    layout.tiled = bare.new(
        "PJRT_Buffer_MemoryLayout_Tiled",
        minor_to_major=bare.address(order),
        minor_to_major_size=len(minor_to_major),
        num_tiles=tiles,
    )
    layout.keep = order
    return layout


def strided(*byte_strides: int) -> Any:
    strides = bare.int64s(*byte_strides)
    layout = bare.new("PJRT_Buffer_MemoryLayout", type=1)
    layout.strides = bare.new(
        "PJRT_Buffer_MemoryLayout_Strides",
        byte_strides=bare.address(strides),
        num_byte_strides=len(byte_strides),
    )
    layout.keep = strides
    return layout


def put_array(client: Client, array: np.ndarray, kind: int = bare.F32, **fields: Any) -> int:
    """Hands over the array as it lies in memory: any strides, also negative and zero ones."""
    strides = bare.int64s(*array.strides)
    return client.from_host(
        b"",
        array.shape,
        kind,
        data=array.__array_interface__["data"][0],
        byte_strides=bare.address(strides),
        num_byte_strides=array.ndim,
        **fields,
    )


VIEWS = {
    "dense": lambda a: a,
    "transposed": lambda a: a.transpose(2, 0, 1),
    "sliced": lambda a: a[::2, 1:, ::3],
    "negative": lambda a: a[::-1, ::-2, ::-1],
    "broadcast": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "one": lambda a: a[1:2, 1:2, 1:2],
    "empty": lambda a: a[:, :0],
    "scalar": lambda a: a[1, 1, 1],
}


@pytest.mark.drives("Client_BufferFromHostBuffer", "Buffer_ToHostBuffer", "Buffer_Destroy")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128])
def test_strides(api: Api, client: Client, view: str, dtype: type) -> None:
    kinds = {np.float32: bare.F32, np.int8: 2, np.complex128: 15}
    array = np.asarray(VIEWS[view](RNG.integers(-99, 99, (4, 5, 6)).astype(dtype)))
    buffer = put_array(client, array, kinds[dtype])
    assert client.get(buffer) == array.tobytes()
    client.destroy(buffer)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_device_and_host_layouts(client: Client, order: tuple[int, ...]) -> None:
    array = RNG.standard_normal((2, 3, 5)).astype(np.float32)
    major_to_minor = order[::-1]
    as_laid = np.ascontiguousarray(array.transpose(major_to_minor))
    by_order = put_array(client, array, device_layout=bare.address(tiled(*order)))
    strides = as_laid.transpose(np.argsort(major_to_minor)).strides
    by_strides = put_array(client, array, device_layout=bare.address(strided(*strides)))
    for buffer in (by_order, by_strides):
        assert client.get(buffer) == as_laid.tobytes()  # no host layout: the buffer's own
        assert client.get(buffer, tiled(2, 1, 0)) == array.tobytes()
        assert client.get(buffer, tiled(0, 1, 2)) == array.T.tobytes()
    client.destroy(by_order, by_strides)


def test_host_strides_with_gaps(client: Client) -> None:
    buffer = client.put(1.0, 2.0, 3.0)
    target = np.zeros(8, np.float32)
    api = client.api
    fields = {"src": buffer, "dst": target.ctypes.data, "dst_size": target.nbytes}
    args = api.call("PJRT_Buffer_ToHostBuffer", host_layout=bare.address(strided(12)), **fields)
    client.await_event(args.event)
    assert target.tolist() == [1, 0, 0, 2, 0, 0, 3, 0]
    for layout in (strided(16), strided(-4), strided(4, 4), strided(2**62), tiled(1), tiled(0, 1)):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call("PJRT_Buffer_ToHostBuffer", host_layout=bare.address(layout), **fields)
    with pytest.raises(bare.PjrtError, match="bytes"):
        api.call("PJRT_Buffer_ToHostBuffer", **{**fields, "dst_size": 11})
    client.destroy(buffer)


def leftover(content: bytes) -> Any:
    return ctypes.create_string_buffer(content.ljust(bare.struct_size("PJRT_Buffer_MemoryLayout"), b"\0"))


# What the address of a destroyed layout may lead to; the last ones are valid layouts of another array.
LEFTOVERS = {
    "nothing": leftover(b""),
    "sizes": leftover(struct.pack("<Q", 4)),
    "addresses": leftover(bytes.fromhex("4052892fff550000") * 10),
    "ones": leftover(b"\xff" * 80),
    "no order": tiled(0, 0),
    "another rank": tiled(0),
    "tiles": tiled(1, 0, tiles=1),
    "another type": bare.new("PJRT_Buffer_MemoryLayout", type=5),
    "too wide": strided(2**40, 8),
    "another order": tiled(0, 1),
    "other strides": strided(4, 8),
}


@pytest.mark.parametrize("order", [(1, 0), (0, 1)])
@pytest.mark.parametrize("found", LEFTOVERS)
def test_host_layout_ignored(api: Api, found: str, order: tuple[int, ...]) -> None:
    """As jaxlib asks: the layout is gone, and the array's own is meant."""
    client = Client(api, ignore_host_layout=True)
    array = RNG.standard_normal((2, 3)).astype(np.float32)
    buffer = put_array(client, array, device_layout=bare.address(tiled(*order)))
    assert client.get(buffer, LEFTOVERS[found]) == array.tobytes("C" if order == (1, 0) else "F")
    client.destroy(buffer)


def test_host_layout_unmapped(api: Api) -> None:
    """The address is not even read."""
    client = Client(api, ignore_host_layout=True)
    buffer = client.put(1.0, 2.0)
    target = np.zeros(2, np.float32)
    args = api.call("PJRT_Buffer_ToHostBuffer", src=buffer, dst=target.ctypes.data, dst_size=8, host_layout=8)
    client.await_event(args.event)
    assert target.tolist() == [1, 2]
    client.destroy(buffer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": 0}, "element type"),
        ({"type": 77}, "element type"),
        ({"dims": None}, "dims is null"),
        ({"data": None}, "data is null"),
        ({"num_byte_strides": 2}, "byte_strides is null"),
        ({"host_buffer_semantics": 9}, "host_buffer_semantics"),
        ({"device_layout": bare.address(tiled(0, 0))}, "permutation"),
        ({"device_layout": bare.address(tiled(0, 2))}, "permutation"),
        ({"device_layout": bare.address(tiled(0))}, "dimensions"),
        ({"device_layout": bare.address(strided(4, 100))}, "dense"),
        ({"client": None}, "client is null"),
    ],
)
def test_bad_host_buffers(client: Client, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(bare.PjrtError, match=message) as caught:
        client.from_host(bytes(24), (2, 3), **fields)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_unsupported_layouts_and_shapes(client: Client) -> None:
    with pytest.raises(bare.PjrtError, match="UNIMPLEMENTED"):
        client.from_host(bytes(24), (2, 3), device_layout=bare.address(tiled(1, 0, tiles=1)))
    wrong = bare.new("PJRT_Buffer_MemoryLayout", type=5)
    with pytest.raises(bare.PjrtError, match="unknown type"):
        client.from_host(bytes(24), (2, 3), device_layout=bare.address(wrong))
    for dims in ((-1, 3), (2**40, 2**40), (2**62, 4)):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            client.from_host(bytes(24), dims)
    with pytest.raises(bare.PjrtError, match="RESOURCE_EXHAUSTED"):
        client.from_host(bytes(24), (2**50,))


@pytest.mark.parametrize("semantics", [2, 3])
def test_zero_copy(api: Api, client: Client, semantics: int) -> None:
    """The host's memory is given back when the buffer is gone, used in place or not."""
    array = np.arange(4096, dtype=np.float32)
    args = api.call(
        "PJRT_Client_BufferFromHostBuffer",
        client=client.handle,
        data=array.ctypes.data,
        type=bare.F32,
        dims=bare.address(bare.int64s(4096)),
        num_dims=1,
        host_buffer_semantics=semantics,
        device=client.device,
    )
    assert client.get(args.buffer) == array.tobytes()
    client.destroy(args.buffer)
    client.await_event(args.done_with_host_buffer)


@pytest.mark.drives("Buffer_ElementType", "Buffer_Dimensions", "Buffer_UnpaddedDimensions")
@pytest.mark.drives("Buffer_DynamicDimensionIndices", "Buffer_GetMemoryLayout", "Buffer_Memory")
@pytest.mark.drives("Buffer_OnDeviceSizeInBytes", "Buffer_Device", "Buffer_IsOnCpu", "Buffer_ReadyEvent")
def test_metadata(api: Api, client: Client) -> None:
    buffer = client.from_host(bytes(24), (2, 3), memory=client.memories[1], device_layout=bare.address(tiled(0, 1)))

    def check() -> None:
        assert api.call("PJRT_Buffer_ElementType", buffer=buffer).type == bare.F32
        dims = api.call("PJRT_Buffer_Dimensions", buffer=buffer)
        assert (ctypes.c_int64 * dims.num_dims).from_address(dims.dims)[:] == [2, 3]
        dims = api.call("PJRT_Buffer_UnpaddedDimensions", buffer=buffer)
        assert (ctypes.c_int64 * dims.num_dims).from_address(dims.unpadded_dims)[:] == [2, 3]
        assert api.call("PJRT_Buffer_DynamicDimensionIndices", buffer=buffer).num_dynamic_dims == 0
        layout = api.call("PJRT_Buffer_GetMemoryLayout", buffer=buffer).layout
        assert layout.type == 0 and layout.tiled.minor_to_major_size == 2
        assert (ctypes.c_int64 * 2).from_address(layout.tiled.minor_to_major)[:] == [0, 1]
        assert api.call("PJRT_Buffer_OnDeviceSizeInBytes", buffer=buffer).on_device_size_in_bytes == 24
        assert api.call("PJRT_Buffer_Device", buffer=buffer).device == client.device
        assert api.call("PJRT_Buffer_Memory", buffer=buffer).memory == client.memories[1]
        assert api.call("PJRT_Buffer_IsOnCpu", buffer=buffer).is_on_cpu
        client.await_event(api.call("PJRT_Buffer_ReadyEvent", buffer=buffer).event)

    check()
    api.call("PJRT_Buffer_Delete", buffer=buffer)
    check()  # clients ask these of deleted buffers, too, and die of an error
    client.destroy(buffer)


@pytest.mark.drives("Buffer_Delete", "Buffer_IsDeleted", "Buffer_UnsafePointer")
@pytest.mark.drives("Buffer_OpaqueDeviceMemoryDataPointer", "Buffer_IncreaseExternalReferenceCount")
@pytest.mark.drives("Buffer_DecreaseExternalReferenceCount")
def test_delete_and_references(api: Api, client: Client) -> None:
    buffer = client.put(1.0, 2.0)
    pointer = api.call("PJRT_Buffer_UnsafePointer", buffer=buffer).buffer_pointer
    args = api.call("PJRT_Buffer_OpaqueDeviceMemoryDataPointer", buffer=buffer)
    assert args.device_memory_ptr == pointer
    assert bare.data(pointer, 8) == struct.pack("<2f", 1, 2)
    with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
        api.call("PJRT_Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    api.call("PJRT_Buffer_IncreaseExternalReferenceCount", buffer=buffer)
    assert not api.call("PJRT_Buffer_IsDeleted", buffer=buffer).is_deleted
    api.call("PJRT_Buffer_Delete", buffer=buffer)
    api.call("PJRT_Buffer_Delete", buffer=buffer)
    assert api.call("PJRT_Buffer_IsDeleted", buffer=buffer).is_deleted
    assert bare.data(pointer, 8) == struct.pack("<2f", 1, 2)  # the reference keeps the memory
    api.call("PJRT_Buffer_DecreaseExternalReferenceCount", buffer=buffer)
    target = ctypes.create_string_buffer(8)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("Buffer_UnsafePointer", {}),
        ("Buffer_OpaqueDeviceMemoryDataPointer", {}),
        ("Buffer_IncreaseExternalReferenceCount", {}),
        ("Buffer_CopyToDevice", {"dst_device": client.device}),
        ("Buffer_CopyToMemory", {"dst_memory": client.memories[1]}),
        ("Buffer_CopyRawToHost", {"dst": bare.address(target), "transfer_size": 8}),
        ("Buffer_CopyRawToHostFuture", {"transfer_size": 8}),
        ("Buffer_DonateWithControlDependency", {}),
    ]
    for name, fields in refused:
        with pytest.raises(bare.PjrtError, match="deleted"):
            api.call(f"PJRT_{name}", buffer=buffer, **fields)
    with pytest.raises(bare.PjrtError, match="deleted"):
        client.get(buffer)
    client.destroy(buffer)


@pytest.mark.drives("Buffer_CopyToDevice", "Buffer_CopyToMemory")
def test_copies(api: Api, client: Client) -> None:
    buffer = client.put(1.0, 2.0, 3.0)
    to_device = api.call("PJRT_Buffer_CopyToDevice", buffer=buffer, dst_device=client.device).dst_buffer
    args = api.call("PJRT_Buffer_CopyToMemory", buffer=buffer, dst_memory=client.memories[1])
    client.destroy(buffer)
    assert client.floats(to_device) == client.floats(args.dst_buffer) == [1, 2, 3]
    assert api.call("PJRT_Buffer_Memory", buffer=args.dst_buffer).memory == client.memories[1]
    for name in ("PJRT_Buffer_CopyToDevice", "PJRT_Buffer_CopyToMemory"):
        with pytest.raises(bare.PjrtError, match="null"):
            api.call(name, buffer=to_device)
    client.destroy(to_device, args.dst_buffer)


@pytest.mark.drives("Buffer_CopyRawToHost", "Buffer_CopyRawToHostFuture")
def test_raw_copies(api: Api, client: Client) -> None:
    buffer = client.put(1.0, 2.0, 3.0)
    target = (ctypes.c_float * 2)()
    fields = {"buffer": buffer, "offset": 4, "transfer_size": 8}
    args = api.call("PJRT_Buffer_CopyRawToHost", dst=bare.address(target), **fields)
    client.await_event(args.event)
    assert list(target) == [2, 3]
    for offset, size in ((-1, 4), (0, -1), (4, 9), (13, 0), (2**62, 2**62)):
        for name in ("PJRT_Buffer_CopyRawToHost", "PJRT_Buffer_CopyRawToHostFuture"):
            with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
                api.call(name, buffer=buffer, offset=offset, transfer_size=size)
    with pytest.raises(bare.PjrtError, match="dst is null"):
        api.call("PJRT_Buffer_CopyRawToHost", **fields)

    target = (ctypes.c_float * 2)()
    for destination, code, message in (
        (bare.address(target), 0, None),
        (None, 0, "dst is null"),
        (None, 4, "DEADLINE_EXCEEDED"),
    ):
        future = api.call("PJRT_Buffer_CopyRawToHostFuture", **fields)
        assert not api.call("PJRT_Event_IsReady", event=future.event).is_ready
        reply = bare.new(
            "PJRT_Buffer_CopyRawToHostFuture_Callback_Args",
            callback_data=future.callback_data,
            dst=destination,
            error_code=code,
        )
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(future.future_ready_callback)(bare.address(reply))
        if message is None:
            client.await_event(future.event)
            assert list(target) == [2, 3]
        else:
            with pytest.raises(bare.PjrtError, match=message):
                client.await_event(future.event)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(future.future_ready_callback)(None)
    client.destroy(buffer)


@pytest.mark.drives("Buffer_Bitcast")
def test_bitcast(api: Api, client: Client) -> None:
    buffer = client.put(1.0, -2.0)
    dims = bare.int64s(8)
    fields = {"buffer": buffer, "dims": bare.address(dims), "num_dims": 1}
    out = api.call("PJRT_Buffer_Bitcast", element_type=6, **fields).out_buffer
    assert client.get(out) == struct.pack("<2f", 1, -2)
    for bad in (
        {"element_type": bare.F32},
        {"element_type": 99},
        {"element_type": 6, "num_dims": 0},
    ):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call("PJRT_Buffer_Bitcast", **{**fields, **bad})
    client.destroy(buffer)
    assert client.get(out) == struct.pack("<2f", 1, -2)
    client.destroy(out)


@pytest.mark.drives("Buffer_DonateWithControlDependency")
@pytest.mark.parametrize("code", [0, 10])
def test_donate_with_dependency(api: Api, client: Client, code: int) -> None:
    buffer = client.put(5.0)
    args = api.call("PJRT_Buffer_DonateWithControlDependency", buffer=buffer)
    assert api.call("PJRT_Buffer_IsDeleted", buffer=buffer).is_deleted
    event = api.call("PJRT_Buffer_ReadyEvent", buffer=args.out_buffer).event
    assert not api.call("PJRT_Event_IsReady", event=event).is_ready
    reply = bare.new(
        "PJRT_Buffer_DonateWithControlDependency_Callback_Args",
        callback_data=args.callback_data,
        error_code=code,
    )
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.dependency_ready_callback)
    callback(bare.address(reply))
    callback(None)
    if code == 0:
        client.await_event(event)
        assert client.floats(args.out_buffer) == [5.0]
    else:
        with pytest.raises(bare.PjrtError, match="ABORTED"):
            client.await_event(event)
    client.destroy(buffer, args.out_buffer)


@pytest.mark.drives("Client_CreateUninitializedBuffer", "Client_CreateErrorBuffer")
def test_uninitialized_and_error_buffers(api: Api, client: Client) -> None:
    shape = bare.int64s(3)
    fields = {
        "client": client.handle,
        "shape_dims": bare.address(shape),
        "shape_num_dims": 1,
        "shape_element_type": bare.F32,
    }
    buffer = api.call("PJRT_Client_CreateUninitializedBuffer", device=client.device, **fields).buffer
    assert len(client.get(buffer)) == 12
    message = ctypes.create_string_buffer(b"lost")
    broken = api.call(
        "PJRT_Client_CreateErrorBuffer",
        error_code=15,
        error_message=bare.address(message),
        error_message_size=4,
        memory=client.memories[0],
        **fields,
    ).buffer
    with pytest.raises(bare.PjrtError, match="DATA_LOSS: lost"):
        client.get(broken)
    with pytest.raises(bare.PjrtError, match="DATA_LOSS"):
        client.await_event(api.call("PJRT_Buffer_ReadyEvent", buffer=broken).event)
    copy = api.call("PJRT_Buffer_CopyToMemory", buffer=broken, dst_memory=client.memories[1]).dst_buffer
    with pytest.raises(bare.PjrtError, match="DATA_LOSS"):
        client.get(copy)
    client.destroy(buffer, broken, copy)
    for name in ("Uninitialized", "Error"):
        for bad in ({"shape_element_type": 0}, {"shape_dims": None}, {"client": None}):
            with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
                api.call(f"PJRT_Client_Create{name}Buffer", **{**fields, **bad})
    with pytest.raises(bare.PjrtError, match="error_code is OK"):
        api.call("PJRT_Client_CreateErrorBuffer", memory=client.memories[0], **fields)


@pytest.mark.drives("Client_CreateAliasBuffer", "Client_FulfillAliasBuffer")
def test_alias_buffer(api: Api, client: Client) -> None:
    shape = bare.int64s(2)
    fields = {
        "client": client.handle,
        "memory": client.memories[0],
        "shape_dims": bare.address(shape),
        "shape_num_dims": 1,
        "shape_element_type": bare.F32,
    }
    name = "PJRT_Client_FulfillAliasBuffer"
    args = api.call("PJRT_Client_CreateAliasBuffer", **fields)
    fulfill = {"client": client.handle, "fulfill_alias_buffer_cb": args.fulfill_alias_buffer_cb}
    event = api.call("PJRT_Buffer_ReadyEvent", buffer=args.alias_buffer).event
    assert not api.call("PJRT_Event_IsReady", event=event).is_ready
    wrong, right = client.put(1.0), client.put(3.0, 4.0)
    with pytest.raises(bare.PjrtError, match="8 bytes"):
        api.call(name, buffer=wrong, **fulfill)
    with pytest.raises(bare.PjrtError, match="buffer is null"):
        api.call(name, **fulfill)
    api.call(name, buffer=right, **fulfill)
    client.await_event(event)
    assert client.floats(args.alias_buffer) == [3, 4]
    failed = api.call("PJRT_Client_CreateAliasBuffer", **fields)
    api.call(
        name,
        client=client.handle,
        fulfill_alias_buffer_cb=failed.fulfill_alias_buffer_cb,
        status_code=14,
    )
    with pytest.raises(bare.PjrtError, match="UNAVAILABLE"):
        client.get(failed.alias_buffer)
    client.destroy(wrong, right, args.alias_buffer, failed.alias_buffer)


@pytest.mark.drives("Client_CreateViewOfDeviceBuffer")
@pytest.mark.parametrize("size", [104, 112])
def test_view(api: Api, client: Client, size: int) -> None:
    memory = np.zeros(1 << 15, np.uint8)
    start = -memory.ctypes.data % (1 << 14)  # page-aligned
    floats = memory[start : start + 1024].view(np.float32)
    floats[:] = np.arange(256)
    deleted: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda pointer, _: deleted.append(pointer))
    dims = bare.int64s(256)
    fields = {
        "client": client.handle,
        "device_buffer_ptr": floats.ctypes.data,
        "dims": bare.address(dims),
        "num_dims": 1,
        "element_type": bare.F32,
        "device": client.device,
        "on_delete_callback": bare.function_address(callback),
        "struct_size": size,
    }
    args = bare.new("PJRT_Client_CreateViewOfDeviceBuffer_Args", **fields)
    if size < 112:
        args.memory = 0xDEAD  # beyond the struct: must not be read
    api.invoke("PJRT_Client_CreateViewOfDeviceBuffer", args)
    floats[0] = 42
    assert client.floats(args.buffer)[:3] == [42, 1, 2]
    assert api.call("PJRT_Buffer_UnsafePointer", buffer=args.buffer).buffer_pointer == floats.ctypes.data
    assert not deleted
    client.destroy(args.buffer)
    assert deleted == [floats.ctypes.data]
    for bad in ({"device_buffer_ptr": None}, {"element_type": 0}, {"dims": None}):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call("PJRT_Client_CreateViewOfDeviceBuffer", **{**fields, "struct_size": 112, **bad})
    assert len(deleted) == 1
