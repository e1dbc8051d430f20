"""jax.transfer_guard_device_to_host is asked about metal's arrays, though the host could read them in place."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from .processes import output

guard = jax.transfer_guard_device_to_host
READS: dict[str, Callable[[Any], Any]] = {
    "asarray": np.asarray,
    "add": lambda array: np.add(array, 1),
    "float": lambda array: float(array[0]),
    "tolist": lambda array: array.tolist(),
    "str": str,
    "pickle": pickle.dumps,
    "async": lambda array: array.copy_to_host_async(),
}


def made() -> Any:
    return (jnp.arange(3) + 1).block_until_ready()


@pytest.mark.parametrize("read", READS)
def test_implicit(read: str) -> None:
    for level in ("disallow", "disallow_explicit"):
        with guard(level), pytest.raises(Exception, match="Disallowed device-to-host transfer"):
            READS[read](made())
    for level in ("allow", "log", "log_explicit"):
        with guard(level):
            READS[read](made())


def test_explicit() -> None:
    for level in ("allow", "log", "disallow", "log_explicit"):
        with guard(level):
            np.testing.assert_array_equal(jax.device_get(made()), [1, 2, 3])
    with guard("disallow_explicit"), pytest.raises(Exception, match="Disallowed device-to-host transfer"):
        jax.device_get(made())


@pytest.mark.parametrize("read", READS)
def test_what_was_read_is_no_transfer(read: str) -> None:
    array = made()
    with guard("allow"):
        READS["asarray"](array)
    element = array[0]
    element.block_until_ready()
    np.asarray(element)
    with guard("disallow"):
        np.testing.assert_array_equal(np.asarray(array), [1, 2, 3])
        if read != "float":  # array[0] makes a new array
            READS[read](array)


def test_nested_and_threads() -> None:
    """The guard is its thread's; the inner one counts."""
    failures: list[str] = []

    def other() -> None:
        try:
            np.asarray(made())
        except Exception as error:
            failures.append(str(error))

    with guard("disallow"):
        with guard("allow"):
            np.asarray(made())
        with pytest.raises(Exception, match="Disallowed"):
            np.asarray(made())
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    np.asarray(made())
    assert failures == []


def test_read_in_place_again() -> None:
    """Without a guard the host reads the memory itself."""
    array = made()
    assert np.asarray(array).ctypes.data == array.unsafe_buffer_pointer()


def test_of_the_process(tmp_path: Path) -> None:
    code = """
    import jax, jax.numpy as jnp, numpy as np, threading
    jax.config.update("jax_transfer_guard_device_to_host", "disallow")
    def tried():
        try: return int(np.asarray(jnp.arange(3) + 1)[2])
        except Exception as error: return "Disallowed" in str(error)
    results = [tried()]
    jax.config.update("jax_transfer_guard_device_to_host", "allow")
    results.append(tried())
    jax.config.update("jax_transfer_guard", "disallow")
    jax.config.update("jax_transfer_guard_host_to_device", "allow")
    thread = threading.Thread(target=lambda: results.append(tried()))
    thread.start(); thread.join()
    with jax.transfer_guard_device_to_host("allow"): results.append(tried())
    print(results)
    """
    assert output(code, tmp_path, "metal") == ["[True, 3, True, 3]"]


def test_set_before_the_platform(tmp_path: Path) -> None:
    code = """
    import jax, jax.numpy as jnp, numpy as np
    with jax.transfer_guard_device_to_host("disallow"):
        try: np.asarray(jnp.arange(3) + 1)
        except Exception as error: print("Disallowed" in str(error))
    """
    assert output(code, tmp_path, "metal") == ["True"]
