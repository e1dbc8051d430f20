"""Buffers filled piece by piece, and the streams of receive callbacks."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import numpy as np
import pytest

from . import bare
from .bare import Api
from .harness import Client
from .test_buffers import tiled

PREFIX = "PJRT_AsyncHostToDeviceTransferManager_"


def manager(owner: Client, *shapes: tuple[int, ...], **fields: Any) -> int:
    specs = (bare.STRUCTS["PJRT_ShapeSpec"] * max(1, len(shapes)))()
    keep = [bare.int64s(*shape) for shape in shapes]
    for spec, shape, dims in zip(specs, shapes, keep, strict=False):
        spec.struct_size = bare.struct_size("PJRT_ShapeSpec")
        spec.dims, spec.num_dims, spec.element_type = bare.address(dims), len(shape), bare.F32
    args = owner.api.call(
        "PJRT_Client_CreateBuffersForAsyncHostToDevice",
        **{
            "client": owner.handle,
            "shape_specs": bare.address(specs),
            "num_shape_specs": len(shapes),
            "memory": owner.memories[0],
            **fields,
        },
    )
    return int(args.transfer_manager)


def transfer(api: Api, handle: int, index: int, content: bytes, offset: int = 0, last: bool = False) -> int:
    args = api.call(
        PREFIX + "TransferData",
        transfer_manager=handle,
        buffer_index=index,
        data=ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value,
        offset=offset,
        transfer_size=len(content),
        is_last_transfer=last,
    )
    return int(args.done_with_h2d_transfer)


@pytest.mark.drives("Client_CreateBuffersForAsyncHostToDevice")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_TransferData")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_RetrieveBuffer")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_Device")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_BufferCount")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_BufferSize")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_AddMetadata")
@pytest.mark.drives("AsyncHostToDeviceTransferManager_Destroy")
def test_pieces(api: Api, client: Client) -> None:
    handle = manager(client, (2,), (3, 5))
    assert api.call(PREFIX + "BufferCount", transfer_manager=handle).buffer_count == 2
    size = api.call(PREFIX + "BufferSize", transfer_manager=handle, buffer_index=1)
    assert size.buffer_size == 60
    assert api.call(PREFIX + "Device", transfer_manager=handle).device_out == client.device
    api.call(PREFIX + "AddMetadata", transfer_manager=handle)
    first = api.call(PREFIX + "RetrieveBuffer", transfer_manager=handle, buffer_index=0).buffer_out
    ready = api.call("PJRT_Buffer_ReadyEvent", buffer=first).event
    client.await_event(transfer(api, handle, 0, struct.pack("<f", 2), 4))
    assert not api.call("PJRT_Event_IsReady", event=ready).is_ready
    client.await_event(transfer(api, handle, 0, struct.pack("<f", 1), 0, last=True))
    client.await_event(ready)
    assert client.floats(first) == [1, 2]
    with pytest.raises(bare.PjrtError, match="last transfer"):
        transfer(api, handle, 0, bytes(4))
    with pytest.raises(bare.PjrtError, match="retrieved"):
        api.call(PREFIX + "RetrieveBuffer", transfer_manager=handle, buffer_index=0)
    second = api.call(PREFIX + "RetrieveBuffer", transfer_manager=handle, buffer_index=1).buffer_out
    api.call(PREFIX + "Destroy", transfer_manager=handle)
    with pytest.raises(bare.PjrtError, match="CANCELLED"):
        client.get(second)
    client.destroy(first, second)


def test_bad_pieces(api: Api, client: Client) -> None:
    handle = manager(client, (2,))
    for index in (-1, 1):
        for name in (
            "BufferSize",
            "RetrieveBuffer",
            "TransferData",
            "TransferLiteral",
            "SetBufferError",
        ):
            with pytest.raises(bare.PjrtError, match="buffer_index"):
                api.call(PREFIX + name, transfer_manager=handle, buffer_index=index)
    for offset, size in ((-1, 1), (0, 9), (9, 0), (0, -1), (2**62, 2**62)):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call(PREFIX + "TransferData", transfer_manager=handle, offset=offset, transfer_size=size)
    with pytest.raises(bare.PjrtError, match="data is null"):
        api.call(PREFIX + "TransferData", transfer_manager=handle, transfer_size=4)
    with pytest.raises(bare.PjrtError, match="options is null"):
        api.call(PREFIX + "AddMetadata", transfer_manager=handle, num_metadata=1)
    api.call(PREFIX + "Destroy", transfer_manager=handle)
    for bad in ({"client": None}, {"shape_specs": None}, {"num_device_layouts": 1}):
        with pytest.raises(bare.PjrtError, match="null"):
            manager(client, (2,), **bad)
    layouts = (ctypes.c_void_p * 2)()
    with pytest.raises(bare.PjrtError, match="2 device_layouts for 1"):
        manager(client, (2,), device_layouts=bare.address(layouts), num_device_layouts=2)
    with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
        manager(client, (-2,))
    with pytest.raises(bare.PjrtError, match="struct_size"):
        manager(client, (2,), shape_specs=bare.address(bare.STRUCTS["PJRT_ShapeSpec"]()))


@pytest.mark.drives("AsyncHostToDeviceTransferManager_TransferLiteral")
def test_literal(api: Api, client: Client) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    column_major = tiled(0, 1)
    layouts = (ctypes.c_void_p * 1)(bare.address(column_major))
    handle = manager(client, (2, 3), device_layouts=bare.address(layouts), num_device_layouts=1)
    buffer = api.call(PREFIX + "RetrieveBuffer", transfer_manager=handle).buffer_out
    fields = {
        "transfer_manager": handle,
        "data": array.ctypes.data,
        "shape_dims": bare.address(bare.int64s(2, 3)),
        "shape_num_dims": 2,
        "shape_element_type": bare.F32,
        "shape_layout": bare.address(tiled(1, 0)),
    }
    for bad in (
        {"shape_dims": bare.address(bare.int64s(3, 2))},
        {"shape_num_dims": 1},
        {"shape_element_type": bare.S32},
        {"data": None},
    ):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call(PREFIX + "TransferLiteral", **{**fields, **bad})
    client.await_event(api.call(PREFIX + "TransferLiteral", **fields).done_with_h2d_transfer)
    assert client.get(buffer) == array.T.tobytes()  # as it lies on the device
    assert client.get(buffer, tiled(1, 0)) == array.tobytes()
    with pytest.raises(bare.PjrtError, match="last transfer"):
        api.call(PREFIX + "TransferLiteral", **fields)
    api.call(PREFIX + "Destroy", transfer_manager=handle)
    client.destroy(buffer)


@pytest.mark.drives("AsyncHostToDeviceTransferManager_SetBufferError")
def test_buffer_error(api: Api, client: Client) -> None:
    handle = manager(client, (2,))
    buffer = api.call(PREFIX + "RetrieveBuffer", transfer_manager=handle).buffer_out
    with pytest.raises(bare.PjrtError, match="error_code is OK"):
        api.call(PREFIX + "SetBufferError", transfer_manager=handle)
    api.call(PREFIX + "SetBufferError", transfer_manager=handle, error_code=15)
    api.call(PREFIX + "Destroy", transfer_manager=handle)
    with pytest.raises(bare.PjrtError, match="DATA_LOSS"):
        client.get(buffer)
    client.destroy(buffer)


@pytest.mark.drives("CopyToDeviceStream_AddChunk", "CopyToDeviceStream_TotalBytes")
@pytest.mark.drives("CopyToDeviceStream_GranuleSize", "CopyToDeviceStream_CurrentBytes")
@pytest.mark.drives("CopyToDeviceStream_Destroy")
def test_streams_do_not_exist(api: Api) -> None:
    """Streams come with receive callbacks, which Execute refuses."""
    stream = ctypes.create_string_buffer(64)
    for name in ("AddChunk", "TotalBytes", "GranuleSize", "CurrentBytes", "Destroy"):
        with pytest.raises(bare.PjrtError, match="UNIMPLEMENTED"):
            api.call(f"PJRT_CopyToDeviceStream_{name}", stream=bare.address(stream))
    api.call("PJRT_CopyToDeviceStream_Destroy")
