"""Handles that were destroyed, or are of another kind, are errors; so is what is not the client's to end or set."""

from __future__ import annotations

import pytest

from . import bare, programs
from .bare import Api
from .harness import Client


def refused(api: Api, name: str, **fields: object) -> str:
    with pytest.raises(bare.PjrtError) as caught:
        api.call(name, **fields)
    assert caught.value.code in {"INVALID_ARGUMENT", "FAILED_PRECONDITION"}
    return caught.value.message


def test_destroyed(api: Api, client: Client) -> None:
    buffer = client.put(1.0, 2.0)
    event = api.call("PJRT_Buffer_ReadyEvent", buffer=buffer).event
    loaded = client.load(programs.copies(client.target))
    executable = api.call("PJRT_LoadedExecutable_GetExecutable", loaded_executable=loaded).executable
    ends = [
        ("PJRT_Buffer", "buffer", buffer, "PJRT_Buffer_Dimensions"),
        ("PJRT_Event", "event", event, "PJRT_Event_IsReady"),
        ("PJRT_LoadedExecutable", "executable", loaded, "PJRT_LoadedExecutable_IsDeleted"),
        ("PJRT_Executable", "executable", executable, "PJRT_Executable_Name"),
    ]
    for kind, field, handle, use in ends:
        api.call(use, **{field: handle})
        api.call(f"{kind}_Destroy", **{field: handle})
        assert "was destroyed before" in refused(api, use, **{field: handle})
        assert "was destroyed before" in refused(api, f"{kind}_Destroy", **{field: handle})
    client.destroy(client.put(3.0))  # the next handle is another one
    assert "was destroyed before" in refused(api, "PJRT_Buffer_Dimensions", buffer=buffer)


def test_other_kind(api: Api, client: Client) -> None:
    buffer = client.put(1.0)
    for handle in (client.handle, client.device, client.memories[0], buffer + 4):
        assert "another kind" in refused(api, "PJRT_Buffer_Dimensions", buffer=handle)
        assert "another kind" in refused(api, "PJRT_Buffer_Destroy", buffer=handle)
    assert "another kind" in refused(api, "PJRT_Buffer_CopyToMemory", buffer=buffer, dst_memory=client.device)
    loaded = client.load(programs.copies(client.target))
    with pytest.raises(bare.PjrtError, match="an argument was destroyed before, or is a handle of another kind"):
        client.execute(loaded, client.device, outputs=2)
    api.call("PJRT_LoadedExecutable_Destroy", executable=loaded)
    client.destroy(buffer)


def test_what_is_not_the_clients(api: Api, client: Client) -> None:
    topology = api.call("PJRT_Client_TopologyDescription", client=client.handle).topology
    assert "its client's" in refused(api, "PJRT_TopologyDescription_Destroy", topology=topology)
    buffer = client.put(1.0)
    event = api.call("PJRT_Buffer_ReadyEvent", buffer=buffer).event
    assert "PJRT_Event_Create" in refused(api, "PJRT_Event_Set", event=event)
    api.call("PJRT_Event_Destroy", event=event)
    client.destroy(buffer)
