"""Executables: compile, load, describe, execute, donate, serialize."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import pytest

from . import bare, programs
from .bare import Api
from .harness import Client

COMPILE = ctypes.CFUNCTYPE(
    ctypes.c_int, *(ctypes.c_void_p, ctypes.c_size_t) * 4, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
)
EMIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


@pytest.fixture
def compiler(api: Api) -> Iterator[list[Any]]:
    """A compiler in mlir_lowering's place: the code is a Program, or b"error". Yields its calls."""
    extension = api.extension(0x4D544C, "PJRT_Extension_Base")
    # After the base: int version; then the function set_compiler, aligned.
    start = ctypes.addressof(extension)
    assert ctypes.c_int.from_address(start + 24).value == 3
    set_compiler = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_void_p.from_address(start + 32).value or 0)
    calls: list[Any] = []

    def compile_program(code: int, size: int, *rest: int) -> int:
        format_, format_size, options, options_size, target, target_size, trusted, emit, sink = rest
        assert not trusted
        content = bare.data(code, size)
        calls.append(
            (
                bare.text(format_, format_size),
                bare.data(options, options_size),
                bare.text(target, target_size),
            )
        )
        if content == b"error":
            EMIT(emit)(sink, b"stablehlo.oops", 14)
            return 12
        EMIT(emit)(sink, content, size)
        return 0

    registered = COMPILE(compile_program)
    set_compiler(bare.function_address(registered))
    yield calls
    set_compiler(None)


def program_struct(code: bytes, format_: bytes = b"mlir") -> Any:
    code_buffer, format_buffer = (
        ctypes.create_string_buffer(code, len(code)),
        ctypes.create_string_buffer(format_),
    )
    return bare.address(
        bare.new(
            "PJRT_Program",
            code=bare.address(code_buffer),
            code_size=len(code),
            format=bare.address(format_buffer),
            format_size=len(format_),
        )
    )


def options_fields(options: bytes) -> dict[str, Any]:
    return {
        "compile_options": bare.address(ctypes.create_string_buffer(options, max(1, len(options)))),
        "compile_options_size": len(options),
    }


def device_options(*ids: int) -> bytes:
    """CompileOptionsProto with a device assignment of replicas."""
    computation = bytes([0x0A, len(ids), *ids])
    assignment = bytes([0x08, len(ids), 0x10, 1, 0x1A, len(computation)]) + computation
    build = bytes([0x20, len(ids), 0x28, 1, 0x4A, len(assignment)]) + assignment
    return bytes([0x1A, len(build)]) + build


def run_add(client: Client, executable: int) -> None:
    a, b = client.put(*range(8)), client.put(*[10.0] * 8)
    (out,) = client.execute(executable, a, b)
    assert client.floats(out) == [10.0 + i for i in range(8)]
    client.destroy(a, b, out)


@pytest.mark.drives("Client_Compile", "LoadedExecutable_Destroy")
def test_compile(api: Api, client: Client, compiler: list[Any]) -> None:
    code = programs.add(client.target)
    args = api.call(
        "PJRT_Client_Compile",
        client=client.handle,
        program=program_struct(code),
        **options_fields(device_options(0)),
    )
    assert compiler == [("mlir", device_options(0), client.target)]
    run_add(client, args.executable)
    api.call("PJRT_LoadedExecutable_Destroy", executable=args.executable)
    with pytest.raises(bare.PjrtError, match=r"stablehlo.oops") as caught:
        api.call("PJRT_Client_Compile", client=client.handle, program=program_struct(b"error"))
    assert caught.value.code == "UNIMPLEMENTED"
    with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
        api.call("PJRT_Client_Compile", client=client.handle, program=program_struct(b"not a Program"))


@pytest.mark.parametrize(
    "options",
    [
        b"\xff",
        device_options(7),
        device_options(0, 1),
        device_options(0)[:-1],
        b"\x1a\x03\x20\xff\x7f",
        b"\x1a\x02\x08\x63",
    ],
)
def test_bad_compile_options(api: Api, client: Client, compiler: list[Any], options: bytes) -> None:
    with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
        api.call(
            "PJRT_Client_Compile",
            client=client.handle,
            program=program_struct(programs.add(client.target)),
            **options_fields(options),
        )
    with pytest.raises(bare.PjrtError, match="null"):
        api.call("PJRT_Client_Compile", client=client.handle)


@pytest.mark.drives("Compile", "Client_Load", "Executable_Destroy", "Executable_GetCompileOptions")
def test_ahead_of_time(api: Api, client: Client, compiler: list[Any]) -> None:
    topology = api.call("PJRT_Client_TopologyDescription", client=client.handle).topology
    executable = api.call(
        "PJRT_Compile",
        topology=topology,
        program=program_struct(programs.add(client.target)),
        **options_fields(device_options(0)),
    ).executable
    args = api.call("PJRT_Executable_GetCompileOptions", executable=executable)
    assert bare.data(args.serialized_bytes, args.serialized_bytes_size) == device_options(0)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.serialized_compile_options_deleter)(args.serialized_compile_options)
    for options in (b"", device_options(0)):
        loaded = api.call(
            "PJRT_Client_Load",
            client=client.handle,
            executable=executable,
            **options_fields(options),
        ).loaded_executable
        run_add(client, loaded)
        api.call("PJRT_LoadedExecutable_Destroy", executable=loaded)
    with pytest.raises(bare.PjrtError, match="device 9"):
        api.call(
            "PJRT_Client_Load",
            client=client.handle,
            executable=executable,
            **options_fields(device_options(9)),
        )
    api.call("PJRT_Executable_Destroy", executable=executable)


def test_target_mismatch(client: Client) -> None:
    with pytest.raises(bare.PjrtError, match="apple9000"):
        client.load(programs.add("apple9000"))


def kinds(address: int, sizes: int, count: int) -> list[str]:
    lengths = (ctypes.c_size_t * count).from_address(sizes)
    return [bare.text(p, n) for p, n in zip(bare.pointers(address, count), lengths, strict=True)]


@pytest.mark.drives("LoadedExecutable_GetExecutable", "Executable_Name", "Executable_NumReplicas")
@pytest.mark.drives("Executable_NumPartitions", "Executable_NumOutputs", "Executable_Fingerprint")
@pytest.mark.drives("Executable_SizeOfGeneratedCodeInBytes", "Executable_OutputElementTypes")
@pytest.mark.drives("Executable_OutputDimensions", "Executable_OutputMemoryKinds")
@pytest.mark.drives("Executable_ParameterMemoryKinds", "Executable_GetCostAnalysis")
@pytest.mark.drives("LoadedExecutable_Fingerprint", "Executable_Destroy")
def test_metadata(api: Api, client: Client, add: int) -> None:
    executable = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=add).executable
    fields = {"executable": executable}
    name = api.call("PJRT_Executable_Name", **fields)
    assert bare.text(name.executable_name, name.executable_name_size) == "add"
    assert api.call("PJRT_Executable_NumReplicas", **fields).num_replicas == 1
    assert api.call("PJRT_Executable_NumPartitions", **fields).num_partitions == 1
    assert api.call("PJRT_Executable_NumOutputs", **fields).num_outputs == 1
    assert api.call("PJRT_Executable_SizeOfGeneratedCodeInBytes", **fields).size_in_bytes > 0
    for function, handle in (("Executable", executable), ("LoadedExecutable", add)):
        args = api.call(f"PJRT_{function}_Fingerprint", executable=handle)
        assert bare.text(args.executable_fingerprint, args.executable_fingerprint_size) == "add0123"
    types = api.call("PJRT_Executable_OutputElementTypes", **fields)
    assert (ctypes.c_int * types.num_output_types).from_address(types.output_types)[:] == [bare.F32]
    cost = api.call("PJRT_Executable_GetCostAnalysis", **fields)
    assert bare.named_values(cost.properties, cost.num_properties) == {
        "flops": 8.0,
        "transcendentals": 0.0,
        "bytes accessed": 96.0,
    }
    api.call("PJRT_Executable_Destroy", **fields)

    two = client.load(programs.copies(client.target))
    fields = {"executable": api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=two).executable}
    args = api.call("PJRT_Executable_OutputMemoryKinds", **fields)
    assert kinds(args.memory_kinds, args.memory_kind_sizes, args.num_outputs) == [
        "device",
        "pinned_host",
    ]
    args = api.call("PJRT_Executable_ParameterMemoryKinds", **fields)
    assert kinds(args.memory_kinds, args.memory_kind_sizes, args.num_parameters) == ["device"]
    dims = api.call("PJRT_Executable_OutputDimensions", **fields)
    assert (ctypes.c_size_t * dims.num_outputs).from_address(dims.dim_sizes)[:] == [1, 1]
    assert (ctypes.c_int64 * 2).from_address(dims.dims)[:] == [4, 4]
    api.call("PJRT_Executable_Destroy", **fields)
    api.call("PJRT_LoadedExecutable_Destroy", executable=two)


@pytest.mark.drives("Executable_GetCompiledMemoryStats")
@pytest.mark.parametrize("size", [104, 112, 144])
def test_memory_stats(api: Api, client: Client, size: int) -> None:
    loaded = client.load(programs.copies(client.target))
    executable = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=loaded).executable
    args = bare.new(
        "PJRT_Executable_GetCompiledMemoryStats_Args",
        executable=executable,
        struct_size=size,
        peak_memory_in_bytes=-5,
        peak_unpadded_heap_bytes=-5,
    )
    api.invoke("PJRT_Executable_GetCompiledMemoryStats", args)
    assert (args.argument_size_in_bytes, args.output_size_in_bytes) == (16, 32)
    assert (args.alias_size_in_bytes, args.temp_size_in_bytes) == (0, 512)
    assert args.peak_memory_in_bytes == (-5 if size < 112 else 16 + 32 + 512 + 16)
    assert args.peak_unpadded_heap_bytes == (-5 if size < 144 else 512)
    api.call("PJRT_Executable_Destroy", executable=executable)
    api.call("PJRT_LoadedExecutable_Destroy", executable=loaded)


@pytest.mark.drives("Executable_OptimizedProgram")
def test_optimized_program(api: Api, client: Client, add: int) -> None:
    executable = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=add).executable
    program = bare.new("PJRT_Program")
    fields = {"executable": executable, "program": bare.address(program)}
    api.call("PJRT_Executable_OptimizedProgram", **fields)
    assert bare.text(program.format, program.format_size) == "hlo_with_config"
    code = ctypes.create_string_buffer(program.code_size)
    program.code = bare.address(code)
    api.call("PJRT_Executable_OptimizedProgram", **fields)
    assert b"metal.program" in code.raw
    assert b"module @add {}" in code.raw  # the compiler's text
    program.code_size = 3
    for bad in ({}, {"program": None}):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            api.call("PJRT_Executable_OptimizedProgram", **{**fields, **bad})
    api.call("PJRT_Executable_Destroy", executable=executable)


@pytest.mark.drives("LoadedExecutable_AddressableDevices", "LoadedExecutable_GetDeviceAssignment")
@pytest.mark.drives("LoadedExecutable_AddressableDeviceLogicalIds")
def test_assignment(api: Api, client: Client, add: int) -> None:
    devices = api.call("PJRT_LoadedExecutable_AddressableDevices", executable=add)
    assert bare.pointers(devices.addressable_devices, devices.num_addressable_devices) == [client.device]
    args = api.call("PJRT_LoadedExecutable_GetDeviceAssignment", executable=add)
    # DeviceAssignmentProto as jaxlib serializes it: 1 replica, 1 computation, device 0.
    assert bare.data(args.serialized_bytes, args.serialized_bytes_size) == b"\x08\x01\x10\x01\x1a\x03\n\x01\x00"
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.serialized_device_assignment_deleter)(
        args.serialized_device_assignment
    )
    args = api.call("PJRT_LoadedExecutable_AddressableDeviceLogicalIds", executable=add)
    ids = (bare.STRUCTS["PJRT_LogicalDeviceIds"] * args.num_addressable_device_logical_ids).from_address(
        args.addressable_device_logical_ids
    )
    assert [(i.replica, i.partition) for i in ids] == [(0, 0)]


@pytest.mark.drives("LoadedExecutable_Execute")
def test_execute(api: Api, client: Client, add: int) -> None:
    run_add(client, add)
    a, b = client.put(*range(8)), client.put(*[1.0] * 8)
    (out,) = client.execute(add, a, b, execute_device=client.device)
    (again,) = client.execute(add, out, out, options=None)
    assert client.floats(again) == [2 * (1.0 + i) for i in range(8)]
    client.destroy(out, again)

    two = client.load(programs.copies(client.target))
    x = client.put(9, 8, 7, 6)
    first, second = client.execute(two, x, outputs=2)
    assert (client.floats(first), client.floats(second)) == ([9, 8, 7, 6], [1, 2, 3, 4])
    assert api.call("PJRT_Buffer_Memory", buffer=second).memory == client.memories[1]
    api.call("PJRT_LoadedExecutable_Destroy", executable=two)
    client.destroy(a, b, x, first, second)


@pytest.mark.parametrize("size", [72, 144, 160])
def test_execute_options_of_other_versions(client: Client, add: int, size: int) -> None:
    """jaxlib 0.12's options have 160 bytes; fields beyond struct_size are not read."""
    memory = ctypes.create_string_buffer(b"\xa5" * 160, 160)
    options = bare.STRUCTS["PJRT_ExecuteOptions"].from_buffer(memory)
    ctypes.memset(memory, 0, min(size, 144))
    options.struct_size = size
    a = client.put(*range(8))
    (out,) = client.execute(add, a, a, options=bare.address(options))
    assert client.floats(out) == [2.0 * i for i in range(8)]
    client.destroy(a, out)


def test_bad_executions(api: Api, client: Client, add: int) -> None:
    a, short = client.put(*range(8)), client.put(1.0)
    integers = client.from_host(bytes(32), (8,), bare.S32)
    deleted = client.put(*range(8))
    api.call("PJRT_Buffer_Delete", buffer=deleted)
    for arguments in ((), (a,), (a, a, a), (a, None), (a, short), (integers, a), (deleted, a)):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            client.execute(add, *arguments)
    for bad in (
        {"num_devices": 0},
        {"num_devices": 2},
        {"argument_lists": None},
        {"output_lists": None},
        {"executable": None},
        {"argument_lists": bare.address((ctypes.c_void_p * 1)())},
        {"output_lists": bare.address((ctypes.c_void_p * 1)())},
    ):
        with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
            client.execute(add, a, a, **bad)
    indices = bare.address(bare.int64s(2))
    for fields, code in (
        ({"num_send_ops": 1}, "UNIMPLEMENTED"),
        ({"num_recv_ops": 1}, "UNIMPLEMENTED"),
        ({"num_hlo_output_callbacks": 1}, "UNIMPLEMENTED"),
        ({"num_non_donatable_input_indices": 1}, "INVALID_ARGUMENT"),
        (
            {"num_non_donatable_input_indices": 1, "non_donatable_input_indices": indices},
            "INVALID_ARGUMENT",
        ),
        ({"struct_size": 8}, "INVALID_ARGUMENT"),
    ):
        options = bare.new("PJRT_ExecuteOptions", **fields)
        with pytest.raises(bare.PjrtError) as caught:
            client.execute(add, a, a, options=bare.address(options))
        assert caught.value.code == code
    broken = api.call(
        "PJRT_Client_CreateErrorBuffer",
        client=client.handle,
        error_code=15,
        memory=client.memories[0],
        shape_dims=bare.address(bare.int64s(8)),
        shape_num_dims=1,
        shape_element_type=bare.F32,
    ).buffer
    with pytest.raises(bare.PjrtError, match="DATA_LOSS"):
        client.execute(add, a, broken)  # in the completion event
    client.destroy(a, short, integers, deleted, broken)


def test_execute_waits_for_arguments(api: Api, client: Client, add: int) -> None:
    """An argument that is not defined yet delays the execution, not the caller."""
    a = client.put(*range(8))
    donated = api.call("PJRT_Buffer_DonateWithControlDependency", buffer=a)
    arguments = (ctypes.c_void_p * 2)(donated.out_buffer, donated.out_buffer)
    output = ctypes.c_void_p()
    lists = (ctypes.c_void_p * 2)(bare.address(arguments), bare.address(output))
    api.call(
        "PJRT_LoadedExecutable_Execute",
        executable=add,
        options=bare.address(bare.new("PJRT_ExecuteOptions")),
        argument_lists=bare.address(lists),
        num_devices=1,
        num_args=2,
        output_lists=bare.address(lists) + 8,
    )
    assert output.value
    event = api.call("PJRT_Buffer_ReadyEvent", buffer=output.value).event
    assert not api.call("PJRT_Event_IsReady", event=event).is_ready
    reply = bare.new("PJRT_Buffer_DonateWithControlDependency_Callback_Args", callback_data=donated.callback_data)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(donated.dependency_ready_callback)(bare.address(reply))
    client.await_event(event)
    assert client.floats(output.value) == [2.0 * i for i in range(8)]
    client.destroy(a, donated.out_buffer, output.value)


def test_donation(api: Api, client: Client) -> None:
    executable = client.load(programs.add(client.target, donate=True))
    b = client.put(*[1.0] * 8)

    def run(**fields: Any) -> bool:
        a = client.put(*range(8))
        options = bare.new("PJRT_ExecuteOptions", **fields)
        (out,) = client.execute(executable, a, b, options=bare.address(options))
        assert client.floats(out) == [1.0 + i for i in range(8)]
        deleted = api.call("PJRT_Buffer_IsDeleted", buffer=a).is_deleted
        client.destroy(a, out)
        return bool(deleted)

    assert run()
    keep = {
        "non_donatable_input_indices": bare.address(bare.int64s(0)),
        "num_non_donatable_input_indices": 1,
    }
    assert not run(**keep)
    a = client.put(*range(8))
    (out,) = client.execute(executable, a, b)
    with pytest.raises(bare.PjrtError, match="deleted or donated"):
        client.execute(executable, a, b)
    same = client.put(*range(8))
    with pytest.raises(bare.PjrtError, match="INVALID_ARGUMENT"):
        client.execute(executable, same, same)  # donated and used
    client.destroy(a, b, out, same)
    api.call("PJRT_LoadedExecutable_Destroy", executable=executable)


@pytest.mark.drives("LoadedExecutable_Delete", "LoadedExecutable_IsDeleted")
def test_delete(api: Api, client: Client) -> None:
    executable = client.load(programs.copies(client.target))
    assert not api.call("PJRT_LoadedExecutable_IsDeleted", executable=executable).is_deleted
    for _ in range(2):
        api.call("PJRT_LoadedExecutable_Delete", executable=executable)
    assert api.call("PJRT_LoadedExecutable_IsDeleted", executable=executable).is_deleted
    a = client.put(1, 2, 3, 4)
    with pytest.raises(bare.PjrtError, match="deleted"):
        client.execute(executable, a, outputs=2)
    client.destroy(a)
    api.call("PJRT_LoadedExecutable_Destroy", executable=executable)


@pytest.mark.drives("Executable_Serialize", "Executable_DeserializeAndLoad")
def test_serialize(api: Api, client: Client, add: int) -> None:
    executable = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=add).executable
    args = api.call("PJRT_Executable_Serialize", executable=executable)
    api.call("PJRT_Executable_Destroy", executable=executable)
    content = bare.data(args.serialized_bytes, args.serialized_bytes_size)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(args.serialized_executable_deleter)(args.serialized_executable)
    assert content == programs.add(client.target)
    options = ctypes.create_string_buffer(device_options(0))
    again = client.load(
        content,
        overridden_serialized_compile_options=bare.address(options),
        overridden_serialized_compile_options_size=len(device_options(0)),
    )
    run_add(client, again)
    api.call("PJRT_LoadedExecutable_Destroy", executable=again)
    # A client older than the overridden options.
    old = client.load(content, struct_size=48, overridden_serialized_compile_options_size=2**40)
    run_add(client, old)
    api.call("PJRT_LoadedExecutable_Destroy", executable=old)


@pytest.mark.drives("ExecuteContext_Create", "ExecuteContext_Destroy")
def test_context(api: Api) -> None:
    context = api.call("PJRT_ExecuteContext_Create").context
    assert context
    api.call("PJRT_ExecuteContext_Destroy", context=context)
