"""The chained extensions: layouts, FFI, memory descriptions, and our own."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from . import bare, programs
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


def test_user_data_reaches_handlers(api: Api, client: Client) -> None:
    """What the client attaches to an execution's context, by type; an error for a type that it did not attach."""
    functions = extension(api, FFI, "PJRT_FFI_Extension")
    name = ctypes.create_string_buffer(b"capi.data")
    kind = api.call(
        "PJRT_FFI_Type_Register", functions.type_register, type_name=bare.address(name), type_name_size=9
    ).type_id

    class ContextGet(ctypes.Structure):
        """XLA_FFI_ExecutionContext_Get_Args."""

        _fields_ = (
            ("struct_size", ctypes.c_size_t),
            *((field, ctypes.c_void_p) for field in ("extension", "context", "type", "data")),
        )

    word = ctypes.sizeof(ctypes.c_void_p)

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
    def handler(frame: int) -> int | None:
        # XLA_FFI_CallFrame: struct_size, extension, api, context, stage, operands (size, extension, count, kinds,
        # values), results.
        _, asked, table, context, _, *_ = words = list((ctypes.c_uint64 * 15).from_address(frame))
        if asked:
            return None  # for which version it was compiled
        # XLA_FFI_Api: struct_size, extension, version (of three words), internal, then functions.
        get = ctypes.c_void_p.from_address(table + context_get(table)).value or 0
        number = ctypes.c_int64(kind)
        args = ContextGet(ctypes.sizeof(ContextGet), None, context, ctypes.addressof(number), None)
        error = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(get)(ctypes.addressof(args))
        if error:
            return int(error)
        values = words[14]
        buffer = ctypes.c_uint64.from_address(values).value
        data = ctypes.c_uint64.from_address(buffer + 3 * word).value  # XLA_FFI_Buffer: size, extension, dtype, data
        ctypes.c_float.from_address(data).value = ctypes.c_float.from_address(args.data or 0).value
        return None

    def context_get(table: int) -> int:
        """The offset of XLA_FFI_ExecutionContext_Get: the seventh function."""
        version_size = ctypes.c_size_t.from_address(table + 2 * word).value
        return 2 * word + version_size + word + 6 * word

    target = ctypes.create_string_buffer(b"capi.user_data")
    platform = ctypes.create_string_buffer(b"metal")
    api.call(
        "PJRT_FFI_Register_Handler",
        functions.register_handler,
        target_name=bare.address(target),
        target_name_size=14,
        platform_name=bare.address(platform),
        platform_name_size=5,
        handler=ctypes.cast(handler, ctypes.c_void_p).value,
    )
    loaded = client.load(programs.host_call(client.target, "capi.user_data"))
    for number in (2.5, 7.0):
        content = ctypes.c_float(number)
        context = api.call("PJRT_ExecuteContext_Create").context
        data = bare.new("PJRT_FFI_UserData_Add_Args", context=context)
        data.user_data.type_id, data.user_data.data = kind, ctypes.addressof(content)
        api.invoke("PJRT_FFI_UserData_Add", data, functions.user_data_add)
        options = bare.new("PJRT_ExecuteOptions", context=context)
        (result,) = client.execute(loaded, options=bare.address(options))
        assert client.floats(result) == [number]
        client.destroy(result)
        api.call("PJRT_ExecuteContext_Destroy", context=context)
    with pytest.raises(bare.PjrtError, match=f"NOT_FOUND.*no user data of type {kind}"):
        client.execute(loaded)
    api.call("PJRT_LoadedExecutable_Destroy", executable=loaded)
