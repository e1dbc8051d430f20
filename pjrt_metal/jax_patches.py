"""What JAX hard-codes about platforms and a plugin can only change in place. Each patch says why it is needed.

JAX may move these private names; a patch that finds nothing to change says so in the log, and JAX works without it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import logging
import os
from collections.abc import Callable
from typing import Any

logger = logging.getLogger(__name__)


def mark_stable() -> None:
    """Before registration: otherwise JAX warns that the platform is experimental."""
    from jax._src import xla_bridge

    _try("the experimental warning", lambda: xla_bridge._nonexperimental_plugins.add("metal"))


def apply() -> None:
    """After registration."""
    from pjrt_metal import callbacks, host_calls

    _try("failing quietly", _fail_quietly)
    _try("donation", _allow_donation)
    _try("the persistent compilation cache", _allow_compilation_cache)
    _try("the device-to-host transfer guard", _forward_transfer_guard)
    _try("jax.ffi's targets", host_calls.install_registration)
    _try("linear algebra", host_calls.install_lowerings)
    _try("Python callbacks", callbacks.install)
    os.register_at_fork(after_in_child=lambda: _try("a fork", _keep_clients))


def _try(what: str, patch: Callable[[], Any]) -> None:
    try:
        patch()
    except (AttributeError, ImportError, KeyError, TypeError) as error:
        logger.warning("pjrt-metal could not set up %s in this version of jax: %s", what, error)


def _fail_quietly() -> None:
    """A device that cannot be opened must not break programs that did not ask for metal."""
    from jax._src import xla_bridge

    factories = xla_bridge._backend_factories
    factories["metal"] = dataclasses.replace(factories["metal"], fail_quietly=True)


def _keep_clients() -> None:
    """In a forked child: jaxlib's clients, the CPU's as well, wait for threads that are not there when they go, and so
    the child hangs or crashes when it ends. One more reference, and they never go."""
    from jax._src import xla_bridge

    for client in xla_bridge._backends.values():
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


def _allow_donation() -> None:
    """JAX drops donate_argnums on platforms that are not in this list."""
    from jax._src.interpreters import mlir

    if "metal" not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append("metal")


def _allow_compilation_cache() -> None:
    """JAX keeps compiled programs on disk for a hard-coded list of platforms only."""
    from jax._src import compilation_cache

    original = compilation_cache.is_cache_used

    def is_cache_used(backend: Any) -> bool:
        if backend.platform != "metal":
            return bool(original(backend))
        # The answer is remembered for the process, whichever backend asked first; ask under a listed name.
        return bool(original(_Listed(backend)))

    compilation_cache.is_cache_used = is_cache_used


def _forward_transfer_guard() -> None:
    """JAX asks this guard only about arrays that it cannot read in place, and metal's can be read in place: the
    library hides that on threads whose guard wants to be asked (csrc/pjrt/buffer.cc)."""
    from jax._src import config

    from pjrt_metal.core_ctypes import extension

    state = config.transfer_guard_device_to_host

    def forwarding(scope: int, hook: Callable[[str | None], None]) -> Callable[[str | None], None]:
        def forward(level: str | None) -> None:
            hook(level)
            extension().guard_host_reads(scope, {None: _UNSET, "allow": _ALLOW}.get(level, _GUARD))

        return forward

    state._update_global_hook = forwarding(_PROCESS, state._update_global_hook)
    state._update_thread_local_hook = forwarding(_THREAD, state._update_thread_local_hook)
    # Set before the platform was asked for; by this thread, if by any.
    if state.get_global() is not None:
        state._update_global_hook(state.get_global())
    if state.value != state.get_global():
        state._update_thread_local_hook(state.value)


# csrc/pjrt/private_extension.h: HostReadScope and HostReadGuard.
_PROCESS, _THREAD = 0, 1
_UNSET, _ALLOW, _GUARD = 0, 1, 2


class _Listed:
    """A backend under the name of a platform that JAX's list has."""

    platform = "gpu"

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)
