"""The client, its devices and memories."""

from __future__ import annotations

import ctypes

import pytest

from . import bare
from .bare import Api
from .harness import Client


def option(value_kind: int, size: int = 0, **value: object) -> object:
    name = ctypes.create_string_buffer(b"no_such_option")
    result = bare.new("PJRT_NamedValue", name=bare.address(name), name_size=14, type=value_kind, value_size=size)
    result.keep = name
    for label, content in value.items():
        setattr(result, label, content)
    return result


@pytest.mark.drives("Client_Create", "Client_Destroy", "Client_Devices")
def test_create_and_destroy(api: Api) -> None:
    handle = api.call("PJRT_Client_Create").client
    assert api.call("PJRT_Client_Devices", client=handle).num_devices >= 1
    api.call("PJRT_Client_Destroy", client=handle)


def test_create_with_bad_options(api: Api) -> None:
    integers = bare.int64s(1, 2)
    for value in (
        option(0),
        option(1, 1, int64_value=3),
        option(2, 2, int64_array_value=bare.address(integers)),
        option(2, 2),
        option(3, 1, float_value=0.5),
        option(4, 1, bool_value=True),
        option(99),
    ):
        with pytest.raises(bare.PjrtError) as caught:
            api.call("PJRT_Client_Create", create_options=bare.address(value), num_options=1)
        assert caught.value.code == "INVALID_ARGUMENT"
    with pytest.raises(bare.PjrtError, match="options is null"):
        api.call("PJRT_Client_Create", num_options=1)


def test_objects_outlive_their_client(api: Api) -> None:
    """Buffers keep what they need: a client that destroys in another order loses nothing."""
    client = Client(api)
    buffer = client.put(1.0, 2.0)
    api.call("PJRT_Client_Destroy", client=client.handle)
    assert client.floats(buffer) == [1.0, 2.0]
    client.destroy(buffer)


@pytest.mark.drives("Client_PlatformName", "Client_PlatformVersion", "Client_ProcessIndex")
def test_platform(api: Api, client: Client) -> None:
    name = api.call("PJRT_Client_PlatformName", client=client.handle)
    assert bare.text(name.platform_name, name.platform_name_size) == "metal"
    version = api.call("PJRT_Client_PlatformVersion", client=client.handle)
    text = bare.text(version.platform_version, version.platform_version_size)
    assert text and not any(word in text.lower() for word in ("cuda", "rocm", "oneapi"))
    assert api.call("PJRT_Client_ProcessIndex", client=client.handle, process_index=7).process_index == 0


@pytest.mark.drives("Client_AddressableDevices", "Client_LookupDevice", "Client_LookupAddressableDevice")
@pytest.mark.drives("Client_AddressableMemories")
def test_lookups(api: Api, client: Client) -> None:
    args = api.call("PJRT_Client_AddressableDevices", client=client.handle)
    assert bare.pointers(args.addressable_devices, args.num_addressable_devices) == client.devices
    memories = api.call("PJRT_Client_AddressableMemories", client=client.handle)
    assert memories.num_addressable_memories == 3 * len(client.devices)
    assert api.call("PJRT_Client_LookupDevice", client=client.handle, id=0).device == client.device
    args = api.call("PJRT_Client_LookupAddressableDevice", client=client.handle, local_hardware_id=0)
    assert args.addressable_device == client.device
    for bad in (-1, 1000):
        with pytest.raises(bare.PjrtError, match="no device"):
            api.call("PJRT_Client_LookupDevice", client=client.handle, id=bad)
        with pytest.raises(bare.PjrtError, match="no device"):
            api.call("PJRT_Client_LookupAddressableDevice", client=client.handle, local_hardware_id=bad)


@pytest.mark.drives("Client_DefaultDeviceAssignment", "Client_UpdateGlobalProcessInfo")
def test_assignment_and_processes(api: Api, client: Client) -> None:
    ids = (ctypes.c_int * 2)(9, 9)
    fields = {"client": client.handle, "default_assignment": bare.address(ids)}
    api.call(
        "PJRT_Client_DefaultDeviceAssignment",
        num_replicas=1,
        num_partitions=1,
        default_assignment_size=1,
        **fields,
    )
    assert list(ids) == [0, 9]
    for replicas, partitions, size in (
        (0, 1, 1),
        (1, -1, 1),
        (1, 1, 0),
        (2000, 2000, 2),
        (2**30, 2**30, 2),
    ):
        with pytest.raises(bare.PjrtError):
            api.call(
                "PJRT_Client_DefaultDeviceAssignment",
                num_replicas=replicas,
                num_partitions=partitions,
                default_assignment_size=size,
                **fields,
            )
    assert list(ids) == [0, 9]
    info = bare.new("PJRT_ProcessInfo", task_id=0)
    api.call(
        "PJRT_Client_UpdateGlobalProcessInfo",
        client=client.handle,
        process_infos=bare.address(info),
        num_process_infos=1,
    )
    with pytest.raises(bare.PjrtError, match="process_infos"):
        api.call("PJRT_Client_UpdateGlobalProcessInfo", client=client.handle, num_process_infos=1)


@pytest.mark.drives("Client_DmaMap", "Client_DmaUnmap")
def test_dma_map(api: Api, client: Client) -> None:
    memory = ctypes.create_string_buffer(64)
    fields = {"client": client.handle, "data": bare.address(memory)}
    api.call("PJRT_Client_DmaMap", size=64, **fields)
    with pytest.raises(bare.PjrtError, match="ALREADY_EXISTS"):
        api.call("PJRT_Client_DmaMap", size=64, **fields)
    api.call("PJRT_Client_DmaUnmap", **fields)
    with pytest.raises(bare.PjrtError, match="NOT_FOUND"):
        api.call("PJRT_Client_DmaUnmap", **fields)


@pytest.mark.drives("DeviceDescription_Id", "DeviceDescription_ProcessIndex", "DeviceDescription_Kind")
@pytest.mark.drives("DeviceDescription_DebugString", "DeviceDescription_ToString")
@pytest.mark.drives("DeviceDescription_Attributes", "Device_GetDescription")
def test_description(api: Api, client: Client) -> None:
    description = api.call("PJRT_Device_GetDescription", device=client.device).device_description
    fields = {"device_description": description}
    assert api.call("PJRT_DeviceDescription_Id", **fields).id == 0
    assert api.call("PJRT_DeviceDescription_ProcessIndex", **fields).process_index == 0
    kind = api.call("PJRT_DeviceDescription_Kind", **fields)
    assert bare.text(kind.device_kind, kind.device_kind_size)
    debug = api.call("PJRT_DeviceDescription_DebugString", **fields)
    assert bare.text(debug.debug_string, debug.debug_string_size).startswith("METAL:0")
    text = api.call("PJRT_DeviceDescription_ToString", **fields)
    assert bare.text(text.to_string, text.to_string_size) == "MetalDevice(id=0)"
    args = api.call("PJRT_DeviceDescription_Attributes", **fields)
    assert bare.named_values(args.attributes, args.num_attributes)["target"] == client.target


@pytest.mark.drives("Device_IsAddressable", "Device_LocalHardwareId", "Device_GetAttributes")
@pytest.mark.drives("Device_PoisonExecution", "Device_ClearMemoryStats")
def test_device(api: Api, client: Client) -> None:
    assert api.call("PJRT_Device_IsAddressable", device=client.device).is_addressable
    assert api.call("PJRT_Device_LocalHardwareId", device=client.device).local_hardware_id == 0
    args = api.call("PJRT_Device_GetAttributes", device=client.device)
    assert bare.named_values(args.attributes, args.num_attributes)["target"]
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.attributes_deleter)(args.device_attributes)
    poison = api.call("PJRT_Device_PoisonExecution", device=client.device, launch_id=1, error_code=1)
    assert not poison.poisoned
    with pytest.raises(bare.PjrtError, match="error_message"):
        api.call("PJRT_Device_PoisonExecution", device=client.device, error_message_size=3)
    with pytest.raises(bare.PjrtError, match="UNIMPLEMENTED"):
        api.call("PJRT_Device_ClearMemoryStats", device=client.device)


@pytest.mark.drives("Device_MemoryStats")
def test_memory_stats(api: Api, client: Client) -> None:
    before = api.call("PJRT_Device_MemoryStats", device=client.device)
    buffer = client.from_host(bytes(1 << 20), (1 << 20,), 6)
    after = api.call("PJRT_Device_MemoryStats", device=client.device)
    assert after.bytes_in_use - before.bytes_in_use >= 1 << 20
    assert after.peak_bytes_in_use_is_set and after.peak_bytes_in_use >= after.bytes_in_use
    assert after.bytes_limit_is_set and after.bytes_limit > after.bytes_in_use
    assert not after.peak_allocated_bytes_is_set
    client.destroy(buffer)


@pytest.mark.parametrize("size", [32, 41, 57, 184, 185, 201, 208])
def test_memory_stats_of_other_versions(api: Api, client: Client, size: int) -> None:
    """jaxlib 0.10.2's struct has 185 bytes, 0.12's 201: what lies behind stays as it was."""
    args = bare.new("PJRT_Device_MemoryStats_Args", device=client.device, struct_size=size)
    tail = ctypes.sizeof(args) - size
    ctypes.memset(bare.address(args) + size, 0xA5, tail)
    api.invoke("PJRT_Device_MemoryStats", args)
    assert bytes(args)[size:] == b"\xa5" * tail
    if size >= 41:
        assert args.peak_bytes_in_use_is_set


@pytest.mark.drives("Device_CreateAsyncTrackingEvent", "AsyncTrackingEvent_Destroy")
def test_tracking_event(api: Api, client: Client) -> None:
    name = ctypes.create_string_buffer(b"step")
    args = api.call(
        "PJRT_Device_CreateAsyncTrackingEvent",
        device=client.device,
        description=bare.address(name),
        description_size=4,
    )
    assert args.event
    api.call("PJRT_AsyncTrackingEvent_Destroy", event=args.event)
    with pytest.raises(bare.PjrtError, match="description"):
        api.call("PJRT_Device_CreateAsyncTrackingEvent", device=client.device, description_size=4)


@pytest.mark.drives("Device_AddressableMemories", "Device_DefaultMemory", "Memory_Id", "Memory_Kind")
@pytest.mark.drives("Memory_Kind_Id", "Memory_DebugString", "Memory_ToString")
@pytest.mark.drives("Memory_AddressableByDevices")
def test_memories(api: Api, client: Client) -> None:
    args = api.call("PJRT_Device_AddressableMemories", device=client.device)
    memories = bare.pointers(args.memories, args.num_memories)
    assert api.call("PJRT_Device_DefaultMemory", device=client.device).memory == memories[0]
    kinds = {}
    for memory in memories:
        kind = api.call("PJRT_Memory_Kind", memory=memory)
        kinds[bare.text(kind.kind, kind.kind_size)] = api.call("PJRT_Memory_Kind_Id", memory=memory).kind_id
        assert api.call("PJRT_Memory_Id", memory=memory).id == memories.index(memory)
        text = api.call("PJRT_Memory_ToString", memory=memory)
        assert "MetalMemory" in bare.text(text.to_string, text.to_string_size)
        debug = api.call("PJRT_Memory_DebugString", memory=memory)
        assert bare.text(debug.debug_string, debug.debug_string_size)
        devices = api.call("PJRT_Memory_AddressableByDevices", memory=memory)
        assert bare.pointers(devices.devices, devices.num_devices) == [client.device]
        # A client reads the first word as a function table unless it is null.
        assert bare.STRUCTS["PJRT_Memory"].from_address(memory).vtable is None
    assert kinds == {"device": 0, "pinned_host": 1, "unpinned_host": 2}
