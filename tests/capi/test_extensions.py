"""The chained extensions: layouts, FFI, memory descriptions, and our own."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from . import bare
from .bare import Api
from .harness import Client
from .test_buffers import tiled

LAYOUTS, FFI, MEMORY_DESCRIPTIONS = 4, 5, 6


def extension(api: Api, kind: int, struct: str) -> Any:
    found = api.extension(kind, struct)
    assert found is not None and found.base.struct_size == bare.struct_size(struct)
    return found


@pytest.mark.parametrize(
    ("kind", "struct"),
    [
        (LAYOUTS, "PJRT_Layouts_Extension"),
        (FFI, "PJRT_FFI_Extension"),
        (MEMORY_DESCRIPTIONS, "PJRT_MemoryDescriptions_Extension"),
    ],
)
def test_bad_arguments(api: Api, kind: int, struct: str) -> None:
    found = extension(api, kind, struct)
    for label, _ in found._fields_[1:]:
        slot = getattr(found, label)
        error = api.take_error(api.raw(slot, None))
        assert error is not None and error.code == "INVALID_ARGUMENT"
        small = (ctypes.c_size_t * 16)(8)
        error = api.take_error(api.raw(slot, bare.address(small)))
        assert error is not None and "struct_size" in error.message
        zeros = (ctypes.c_size_t * 16)(128)
        error = api.take_error(api.raw(slot, bare.address(zeros)))
        assert error is not None or label.endswith("_Destroy")


@pytest.mark.drives("Layouts_MemoryLayout_Destroy", "Layouts_MemoryLayout_Serialize")
@pytest.mark.drives("Layouts_PJRT_Client_GetDefaultLayout", "Layouts_PJRT_Topology_GetDefaultLayout")
@pytest.mark.drives("Layouts_PJRT_Buffer_MemoryLayout", "Layouts_PJRT_Executable_GetOutputLayouts")
@pytest.mark.drives("Layouts_PJRT_Executable_GetParameterLayouts")
def test_layouts(api: Api, client: Client, add: int) -> None:
    functions = extension(api, LAYOUTS, "PJRT_Layouts_Extension")

    def call(name: str, **fields: Any) -> Any:
        return api.call(f"PJRT_Layouts_{name}", getattr(functions, f"PJRT_Layouts_{name}"), **fields)

    def spell(layout: int) -> str:
        args = call("MemoryLayout_Serialize", layout=layout)
        text = bare.text(args.serialized_bytes, args.serialized_bytes_size)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.serialized_layout_deleter)(args.serialized_layout)
        return text

    def take(layout: int) -> str:
        text = spell(layout)
        call("MemoryLayout_Destroy", layout=layout)
        return text

    shape = {"type": bare.F32, "dims": bare.address(bare.int64s(2, 3, 4)), "num_dims": 3}
    topology = api.call("PJRT_Client_TopologyDescription", client=client.handle).topology
    assert take(call("PJRT_Client_GetDefaultLayout", client=client.handle, **shape).layout) == "{2,1,0}"
    args = call("PJRT_Topology_GetDefaultLayout", topology_description=topology, **shape)
    assert take(args.layout) == "{2,1,0}"
    args = call("PJRT_Client_GetDefaultLayout", client=client.handle, type=bare.F32)
    assert take(args.layout) == "{}"
    for bad in ({"type": 0}, {"dims": None}):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            call("PJRT_Client_GetDefaultLayout", client=client.handle, **{**shape, **bad})
    buffer = client.from_host(bytes(24), (2, 3), device_layout=bare.address(tiled(0, 1)))
    assert take(call("PJRT_Buffer_MemoryLayout", buffer=buffer).layout) == "{0,1}"
    client.destroy(buffer)

    executable = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=add).executable
    outputs = call("PJRT_Executable_GetOutputLayouts", executable=executable)
    assert [spell(p) for p in bare.pointers(outputs.layouts, outputs.num_outputs)] == ["{0}"]
    parameters = call("PJRT_Executable_GetParameterLayouts", executable=executable)
    layouts = bare.pointers(parameters.layouts, parameters.num_parameters)
    # These are the executable's: a client that destroys one does no harm.
    assert [take(p) for p in layouts] == [spell(p) for p in layouts] == ["{0}", "{0}"]
    api.call("PJRT_Executable_Destroy", executable=executable)


@pytest.mark.drives("FFI_Type_Register", "FFI_UserData_Add", "FFI_Register_Handler")
def test_ffi(api: Api) -> None:
    functions = extension(api, FFI, "PJRT_FFI_Extension")

    def string(label: str, content: bytes) -> dict[str, Any]:
        return {
            label: bare.address(ctypes.create_string_buffer(content)),
            f"{label}_size": len(content),
        }

    def register_type(name: bytes, type_id: int = 0) -> int:
        args = api.call(
            "PJRT_FFI_Type_Register",
            functions.type_register,
            type_id=type_id,
            **string("type_name", name),
        )
        return int(args.type_id)

    first = register_type(b"capi.first")
    assert first > 0 and register_type(b"capi.first") == first
    assert register_type(b"capi.second") != first
    assert register_type(b"capi.third", 12345) == 12345
    with pytest.raises(bare.PjrtError, match="ALREADY_EXISTS"):
        register_type(b"capi.third", 12346)
    with pytest.raises(bare.PjrtError, match="empty"):
        register_type(b"")

    context = api.call("PJRT_ExecuteContext_Create").context
    args = bare.new("PJRT_FFI_UserData_Add_Args", context=context)
    args.user_data.type_id, args.user_data.data = first, 0x1234
    api.invoke("PJRT_FFI_UserData_Add", args, functions.user_data_add)
    with pytest.raises(bare.PjrtError, match="ALREADY_EXISTS"):
        api.invoke("PJRT_FFI_UserData_Add", args, functions.user_data_add)
    api.call("PJRT_ExecuteContext_Destroy", context=context)

    def register(handler: int | None, target: bytes = b"capi.target") -> None:
        api.call(
            "PJRT_FFI_Register_Handler",
            functions.register_handler,
            handler=handler,
            **string("target_name", target),
            **string("platform_name", b"METAL"),
        )

    register(0x1000)
    register(0x1000)
    with pytest.raises(bare.PjrtError, match=r"ALREADY_EXISTS.*capi.target"):
        register(0x2000)
    for bad in ((None, b"capi.other"), (0x1000, b"")):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            register(*bad)


@pytest.mark.drives("DeviceDescription_MemoryDescriptions", "MemoryDescription_Kind")
def test_memory_descriptions(api: Api, client: Client) -> None:
    functions = extension(api, MEMORY_DESCRIPTIONS, "PJRT_MemoryDescriptions_Extension")
    description = api.call("PJRT_Device_GetDescription", device=client.device).device_description
    args = api.call(
        "PJRT_DeviceDescription_MemoryDescriptions",
        functions.PJRT_DeviceDescription_MemoryDescriptions,
        device_description=description,
    )
    kinds = []
    for memory in bare.pointers(args.memory_descriptions, args.num_memory_descriptions):
        kind = api.call(
            "PJRT_MemoryDescription_Kind",
            functions.PJRT_MemoryDescription_Kind,
            memory_description=memory,
        )
        kinds.append((bare.text(kind.kind, kind.kind_size), kind.kind_id))
    assert kinds == [("device", 0), ("pinned_host", 1), ("unpinned_host", 2)]
    assert args.default_memory_index == 0


def test_private_extension_logs(api: Api, capfd: pytest.CaptureFixture[str]) -> None:
    """log_phase is there and takes nulls; it prints only if PJRT_METAL_LOG was set at start."""
    found = api.extension(0x4D544C, "PJRT_Extension_Base")
    assert found is not None
    slot = ctypes.c_void_p.from_address(ctypes.addressof(found) + 40).value
    assert slot
    ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_double, ctypes.c_char_p)(slot)(None, 1.0, None)
