"""Topologies: this machine's, named ones, serialized ones."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from . import bare
from .bare import Api
from .harness import Client


def create(api: Api, name: str = "", **options: object) -> Any:
    values = (bare.STRUCTS["PJRT_NamedValue"] * max(1, len(options)))()
    keep = []
    for value, (label, content) in zip(values, options.items(), strict=False):
        text = ctypes.create_string_buffer(label.encode())
        value.struct_size = bare.struct_size("PJRT_NamedValue")
        value.name, value.name_size = bare.address(text), len(label)
        if isinstance(content, int):
            value.type, value.int64_value, value.value_size = 1, content, 1
        else:
            string = ctypes.create_string_buffer(str(content).encode())
            value.type, value.string_value, value.value_size = (
                0,
                bare.address(string),
                len(str(content)),
            )
            keep.append(string)
        keep.append(text)
    topology_name = ctypes.create_string_buffer(name.encode())
    return api.call(
        "PJRT_TopologyDescription_Create",
        topology_name=bare.address(topology_name),
        topology_name_size=len(name),
        create_options=bare.address(values),
        num_options=len(options),
    ).topology


def serialize(api: Api, topology: int) -> bytes:
    args = api.call("PJRT_TopologyDescription_Serialize", topology=topology)
    content = bare.data(args.serialized_bytes, args.serialized_bytes_size)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.serialized_topology_deleter)(args.serialized_topology)
    return content


def deserialize(api: Api, content: bytes) -> Any:
    return api.call(
        "PJRT_TopologyDescription_Deserialize",
        serialized_topology=ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value,
        serialized_topology_size=len(content),
    ).topology


def fingerprint(api: Api, topology: int) -> int:
    return int(api.call("PJRT_TopologyDescription_Fingerprint", topology=topology).fingerprint)


def describe(api: Api, topology: int) -> tuple[str, str, int, str]:
    name = api.call("PJRT_TopologyDescription_PlatformName", topology=topology)
    version = api.call("PJRT_TopologyDescription_PlatformVersion", topology=topology)
    devices = api.call("PJRT_TopologyDescription_GetDeviceDescriptions", topology=topology)
    args = api.call("PJRT_TopologyDescription_Attributes", topology=topology)
    assert len(set(bare.pointers(devices.descriptions, devices.num_descriptions))) == devices.num_descriptions
    return (
        bare.text(name.platform_name, name.platform_name_size),
        bare.text(version.platform_version, version.platform_version_size),
        devices.num_descriptions,
        bare.named_values(args.attributes, args.num_attributes)["target"],
    )


@pytest.mark.drives("Client_TopologyDescription", "TopologyDescription_Create")
@pytest.mark.drives("TopologyDescription_Destroy", "TopologyDescription_PlatformName")
@pytest.mark.drives("TopologyDescription_PlatformVersion", "TopologyDescription_Attributes")
@pytest.mark.drives("TopologyDescription_GetDeviceDescriptions", "TopologyDescription_Serialize")
@pytest.mark.drives("TopologyDescription_Deserialize", "TopologyDescription_Fingerprint")
def test_this_machine(api: Api, client: Client) -> None:
    of_client = api.call("PJRT_Client_TopologyDescription", client=client.handle).topology
    assert describe(api, of_client)[3] == client.target
    made = create(api)
    assert describe(api, made) == describe(api, of_client)
    assert fingerprint(api, made) == fingerprint(api, of_client)
    again = deserialize(api, serialize(api, made))
    assert describe(api, again) == describe(api, made)
    assert fingerprint(api, again) == fingerprint(api, made)
    for topology in (made, again):
        api.call("PJRT_TopologyDescription_Destroy", topology=topology)


def test_named(api: Api, client: Client) -> None:
    by_name, by_option = create(api, "apple7"), create(api, target="apple7")
    assert describe(api, by_name) == describe(api, by_option)
    assert describe(api, by_name)[2:] == (1, "apple7")
    several = create(api, "apple7", num_devices=4)
    assert describe(api, several)[2] == 4
    assert fingerprint(api, several) != fingerprint(api, by_name)
    for topology in (by_name, by_option, several):
        api.call("PJRT_TopologyDescription_Destroy", topology=topology)


@pytest.mark.parametrize(
    "options",
    [
        {"cores": 3},
        {"num_devices": "many"},
        {"num_devices": -1},
        {"target": "x", "num_devices": 99999},
    ],
)
def test_bad_options(api: Api, options: dict[str, object]) -> None:
    with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
        create(api, **options)


def test_corrupt_bytes(api: Api) -> None:
    topology = create(api, "apple7", num_devices=2)
    good = serialize(api, topology)
    api.call("PJRT_TopologyDescription_Destroy", topology=topology)
    for size in range(len(good)):
        try:
            topology = deserialize(api, good[:size])
        except bare.PjrtError as error:
            assert error.code == "INVALID_ARGUMENT"
        else:
            api.call("PJRT_TopologyDescription_Destroy", topology=topology)
    for bad in (
        b"",
        b"\xff" * 40,
        b"\x0a\xff\xff\xff\xff\x0fabc",
        b"\x0a\x01x\x20\xff\xff\xff\xff\x0f",
    ):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            deserialize(api, bad)


@pytest.mark.drives("TopologyDescription_GetMemorySpaceKindIds")
@pytest.mark.drives("TopologyDescription_MakeCanonicalShapeForMemorySpace")
def test_memory_spaces(api: Api, client: Client) -> None:
    topology = api.call("PJRT_Client_TopologyDescription", client=client.handle).topology
    args = api.call("PJRT_TopologyDescription_GetMemorySpaceKindIds", topology=topology)
    ids = (ctypes.c_int * args.num_memory_space_kind_ids).from_address(args.memory_space_kind_ids)
    assert list(ids) == [0, 1, 2]
    dims = bare.int64s(2, 300)
    fields = {"topology": topology, "dims": bare.address(dims), "num_dims": 2}
    name = "PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace"
    shape = api.call(name, element_type=bare.F32, **fields)
    # XLA's ShapeProto of f32[2,300]{1,0}, as jaxlib's Shape.to_serialized_proto writes it.
    assert bare.data(shape.serialized_shape, shape.serialized_shape_size) == (
        b"\x10\x0b\x1a\x03\x02\xac\x02*\x07\n\x02\x01\x00\x80\x01\x012\x02\x00\x00"
    )
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(shape.serialized_shape_deleter)(shape.serialized_shape)
    for bad in (
        {"element_type": 99},
        {"memory_space_kind_id": 3, "element_type": 11},
        {"dims": None},
    ):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call(name, **{"element_type": bare.F32, **fields, **bad})
