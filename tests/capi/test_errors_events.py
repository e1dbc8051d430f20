"""Errors (codes, messages, function table, payloads), events, the plugin's own attributes."""

from __future__ import annotations

import ctypes

import pytest

from . import bare
from .bare import Api


def an_error(api: Api) -> int:
    error = api.raw(api.table.PJRT_Event_IsReady, None)
    assert error
    return error


@pytest.mark.drives("Plugin_Initialize", "Plugin_Attributes")
def test_plugin(api: Api) -> None:
    api.call("PJRT_Plugin_Initialize")
    args = api.call("PJRT_Plugin_Attributes")
    attributes = bare.named_values(args.attributes, args.num_attributes)
    assert len(attributes["stablehlo_current_version"]) == 3
    assert len(attributes["stablehlo_minimum_version"]) == 3
    assert attributes["xla_version"] > 0


@pytest.mark.drives("Error_Message", "Error_GetCode", "Error_Destroy", "Error_ForEachPayload")
def test_error(api: Api) -> None:
    error = an_error(api)
    message = api.call("PJRT_Error_Message", error=error)
    assert bare.text(message.message, message.message_size) == "args is null"
    assert bare.CODES[api.call("PJRT_Error_GetCode", error=error).code] == "INVALID_ARGUMENT"
    visitor = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
    )(lambda *_: pytest.fail("our errors have no payload"))
    api.call("PJRT_Error_ForEachPayload", error=error, visitor=bare.function_address(visitor))
    with pytest.raises(bare.PjrtError, match="visitor"):
        api.call("PJRT_Error_ForEachPayload", error=error)
    api.call("PJRT_Error_Destroy", error=error)


def test_error_message_of_null(api: Api) -> None:
    assert api.call("PJRT_Error_Message", error=None, message_size=9).message_size == 0


def test_error_function_table(api: Api) -> None:
    error = an_error(api)
    table = bare.STRUCTS["PJRT_Error_FunctionTable"].from_address(bare.STRUCTS["PJRT_Error"].from_address(error).vtable)
    code = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(table.get_code)(error)
    assert bare.CODES[code] == "INVALID_ARGUMENT"
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(table.message)(
        error, bare.address(text), bare.address(size)
    )
    assert bare.text(text.value, size.value) == "args is null"
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(table.destroy)(error)


@pytest.mark.drives("Event_Create", "Event_Set", "Event_IsReady", "Event_Error", "Event_Await")
@pytest.mark.drives("Event_OnReady", "Event_Destroy")
def test_event(api: Api) -> None:
    event = api.call("PJRT_Event_Create").event
    assert not api.call("PJRT_Event_IsReady", event=event).is_ready
    with pytest.raises(bare.PjrtError, match="not ready"):
        api.call("PJRT_Event_Error", event=event)
    seen: list[int | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda e, _: seen.append(e))
    pointer = bare.function_address(callback)
    api.call("PJRT_Event_OnReady", event=event, callback=pointer)
    with pytest.raises(bare.PjrtError, match="callback"):
        api.call("PJRT_Event_OnReady", event=event)
    assert not seen
    api.call("PJRT_Event_Set", event=event)
    assert seen == [None]
    with pytest.raises(bare.PjrtError, match="already set") as caught:
        api.call("PJRT_Event_Set", event=event)
    assert caught.value.code == "FAILED_PRECONDITION"
    api.call("PJRT_Event_OnReady", event=event, callback=pointer)
    assert seen == [None, None]
    assert api.call("PJRT_Event_IsReady", event=event).is_ready
    api.call("PJRT_Event_Error", event=event)
    api.call("PJRT_Event_Await", event=event)
    api.call("PJRT_Event_Destroy", event=event)


@pytest.mark.parametrize(("code", "name"), [(8, "RESOURCE_EXHAUSTED"), (77, "UNKNOWN"), (-1, "UNKNOWN")])
def test_event_with_error(api: Api, code: int, name: str) -> None:
    event = api.call("PJRT_Event_Create").event
    errors: list[bare.PjrtError | None] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(lambda e, _: errors.append(api.take_error(e)))
    api.call("PJRT_Event_OnReady", event=event, callback=bare.function_address(callback))
    message = ctypes.create_string_buffer(b"no room")
    api.call(
        "PJRT_Event_Set",
        event=event,
        error_code=code,
        error_message=bare.address(message),
        error_message_size=7,
    )
    assert errors[0] is not None and (errors[0].code, errors[0].message) == (name, "no room")
    for function in ("PJRT_Event_Error", "PJRT_Event_Await"):
        with pytest.raises(bare.PjrtError, match="no room") as caught:
            api.call(function, event=event)
        assert caught.value.code == name
    api.call("PJRT_Event_Destroy", event=event)


def test_event_set_with_null_message(api: Api) -> None:
    event = api.call("PJRT_Event_Create").event
    with pytest.raises(bare.PjrtError, match="error_message"):
        api.call("PJRT_Event_Set", event=event, error_code=3, error_message_size=4)
    api.call("PJRT_Event_Destroy", event=event)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (b"caf\xc3\xa9 \xf0\x9f\x8d\x8e", "café 🍎"),
        (b"a\xffb\xc3", "a?b?"),
        (b"\xc0\x80\xed\xa0\x80\xf5\x80\x80\x80", "?????????"),
    ],
)
def test_messages_are_utf8(api: Api, message: bytes, expected: str) -> None:
    """Python clients decode messages, which may quote anything."""
    event = api.call("PJRT_Event_Create").event
    api.call(
        "PJRT_Event_Set",
        event=event,
        error_code=3,
        error_message=bare.address(ctypes.create_string_buffer(message)),
        error_message_size=len(message),
    )
    with pytest.raises(bare.PjrtError) as caught:
        api.call("PJRT_Event_Await", event=event)
    assert caught.value.message == expected
    api.call("PJRT_Event_Destroy", event=event)
