"""A client with the helpers that most tests need. Arrays are lists of f32."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

from . import bare


def _flag(name: str, value: bool) -> Any:
    text = ctypes.create_string_buffer(name.encode())
    return bare.new(
        "PJRT_NamedValue",
        name=bare.address(text),
        name_size=len(name),
        type=bare.ENUMS["PJRT_NamedValue_Type"]["PJRT_NamedValue_kBool"],
        value_size=1,
        bool_value=value,
    )


class Client:
    def __init__(self, api: bare.Api, **flags: bool) -> None:
        """`flags`: create options."""
        self.api = api
        values = [_flag(*item) for item in flags.items()]  # keeps the names alive
        options = (bare.STRUCTS["PJRT_NamedValue"] * len(flags))(*values)
        args = api.call("PJRT_Client_Create", create_options=bare.address(options), num_options=len(flags))
        self.handle = args.client
        devices = api.call("PJRT_Client_Devices", client=self.handle)
        self.devices = bare.pointers(devices.devices, devices.num_devices)
        self.device = self.devices[0]
        memories = api.call("PJRT_Device_AddressableMemories", device=self.device)
        self.memories = bare.pointers(memories.memories, memories.num_memories)
        attributes = api.call("PJRT_Device_GetAttributes", device=self.device)
        self.target = bare.named_values(attributes.attributes, attributes.num_attributes)["target"]

    def from_host(self, content: bytes, shape: tuple[int, ...], kind: int = bare.F32, **fields: Any) -> int:
        """A buffer made during the call; returns its handle."""
        defaults = {
            "client": self.handle,
            "data": ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value,
            "type": kind,
            "dims": bare.address(bare.int64s(*shape)),
            "num_dims": len(shape),
            "host_buffer_semantics": 0,
            "memory": self.memories[0],
        }
        args = self.api.call("PJRT_Client_BufferFromHostBuffer", **{**defaults, **fields})
        self.await_event(args.done_with_host_buffer)
        return int(args.buffer)

    def put(self, *values: float) -> int:
        return self.from_host(struct.pack(f"<{len(values)}f", *values), (len(values),))

    def get(self, buffer: int, layout: Any = None) -> bytes:
        size = self.api.call("PJRT_Buffer_ToHostBuffer", src=buffer).dst_size
        target = ctypes.create_string_buffer(max(size, 1))
        args = self.api.call(
            "PJRT_Buffer_ToHostBuffer",
            src=buffer,
            dst=bare.address(target),
            dst_size=size,
            host_layout=bare.address(layout) if layout else None,
        )
        self.await_event(args.event)
        return target.raw[:size]

    def floats(self, buffer: int) -> list[float]:
        content = self.get(buffer)
        return list(struct.unpack(f"<{len(content) // 4}f", content))

    def await_event(self, event: int) -> None:
        """Waits for an event and destroys it; raises its error."""
        try:
            self.api.call("PJRT_Event_Await", event=event)
        finally:
            self.api.call("PJRT_Event_Destroy", event=event)

    def load(self, program: bytes, **fields: Any) -> int:
        args = self.api.call(
            "PJRT_Executable_DeserializeAndLoad",
            client=self.handle,
            serialized_executable=ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p).value,
            serialized_executable_size=len(program),
            **fields,
        )
        return int(args.loaded_executable)

    def execute(self, loaded: int, *arguments: int | None, outputs: int = 1, **fields: Any) -> list[int]:
        """One execution on one device; waits for its completion. Returns the outputs."""
        arguments_list = (ctypes.c_void_p * max(1, len(arguments)))(*arguments)
        outputs_list = (ctypes.c_void_p * outputs)()
        lists = (ctypes.c_void_p * 2)(bare.address(arguments_list), bare.address(outputs_list))
        complete = ctypes.c_void_p()
        options = bare.new("PJRT_ExecuteOptions")
        self.api.call(
            "PJRT_LoadedExecutable_Execute",
            **{
                "executable": loaded,
                "options": bare.address(options),
                "argument_lists": bare.address(lists),
                "num_devices": 1,
                "num_args": len(arguments),
                "output_lists": bare.address(lists) + 8,
                "device_complete_events": bare.address(complete),
                **fields,
            },
        )
        assert complete.value is not None
        self.await_event(complete.value)
        return [int(handle) for handle in outputs_list if handle]

    def destroy(self, *buffers: int) -> None:
        for buffer in buffers:
            self.api.call("PJRT_Buffer_Destroy", buffer=buffer)
