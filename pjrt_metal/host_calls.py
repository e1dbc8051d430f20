"""Host calls: jaxlib's LAPACK and users' XLA FFI handlers, which programs for metal call on the host.

JAX's linear algebra is lowered for metal as for its CPU, whose handlers it then calls. The library imports this module
when a program calls a target that nobody registered.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import Structure, c_char_p, c_size_t, c_void_p
from typing import Any

from jax.interpreters import mlir
from jaxlib import xla_client

from pjrt_metal.core_ctypes import extension

_PLATFORM = "metal"
# XLA_FFI_ExecutionStage's order.
_STAGES = ("instantiate", "prepare", "initialize", "execute")
_TYPED_FFI = 1  # jaxlib's number of it, in registrations


# Handlers.


def install_registration() -> None:
    """Takes over what jax.ffi.register_ffi_target and register_ffi_type are given for platform "metal"."""
    xla_client.register_custom_call_handler(_PLATFORM, _register_target)
    xla_client.register_custom_type_handler(_PLATFORM, _register_type)


def _pointer(capsule: Any) -> int | None:
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = c_char_p, (ctypes.py_object,)
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = c_void_p, (ctypes.py_object, c_char_p)
    address: int | None = get_pointer(capsule, get_name(capsule))
    return address


def _check(complaint: bytes | None) -> None:
    if complaint is not None:
        raise ValueError(complaint.decode())


def _register_target(name: str | bytes, handlers: Any, platform: str, api_version: int = 0, traits: Any = None) -> None:
    text = name if isinstance(name, str) else name.decode()
    if api_version != _TYPED_FFI:
        raise ValueError(
            f"{text}: metal calls handlers of the typed FFI only: register it with "
            f"jax.ffi.register_ffi_target(..., api_version=1)"
        )
    stages = handlers if isinstance(handlers, dict) else {"execute": handlers}
    unknown = stages.keys() - set(_STAGES)
    if unknown:
        raise ValueError(f"{text}: metal knows no stage {', '.join(sorted(unknown))}, only {', '.join(_STAGES)}")
    pointers = (c_void_p * len(_STAGES))(*[_pointer(stages[s]) if s in stages else None for s in _STAGES])
    _check(extension().register_ffi_handlers(text.encode(), pointers))


class _TypeInfo(Structure):
    """XLA_FFI_TypeInfo."""

    _fields_ = (("struct_size", c_size_t), ("extension", c_void_p), ("deleter", c_void_p))


def _register_type(name: str | bytes, registration: Any) -> None:
    text = name if isinstance(name, bytes) else name.encode()
    parts = registration if isinstance(registration, dict) else {"type_id": registration}
    deleter = None
    if parts.get("type_info") is not None:
        deleter = _TypeInfo.from_address(_pointer(parts["type_info"]) or 0).deleter
    _check(extension().register_ffi_type(text, _pointer(parts["type_id"]), deleter))


@functools.cache
def register_lapack() -> None:
    """Registers jaxlib's LAPACK handlers for metal; the library calls it when a program needs one."""
    from jaxlib import lapack

    lapack._lapack.initialize()
    for name, handler, api_version in lapack.registrations()["cpu"]:
        if api_version == _TYPED_FFI:
            _register_target(name, handler, _PLATFORM, api_version)


# Lowering rules.

# What JAX's CPU lowers to LAPACK or to callbacks. Of other primitives the common rules are as good for metal.
_AS_ON_CPU = frozenset(
    {
        "check",
        "cholesky",
        "debug_callback",
        "debug_print",
        "eig",
        "eigh",
        "geqp3",
        "geqrf",
        "hessenberg",
        "householder_product",
        "lu",
        "ormqr",
        "schur",
        "svd",
        "triangular_solve",
        "tridiagonal",
        "tridiagonal_solve",
    }
)


def install_lowerings() -> None:
    """Makes JAX's rules for its CPU metal's too, where they call LAPACK or Python; after platform "metal" is known."""
    from jax._src.interpreters import mlir as internal

    cpu = internal._platform_specific_lowerings["cpu"]
    for primitive, entry in list(cpu.items()):
        if primitive.name in _AS_ON_CPU:
            mlir.register_lowering(primitive, entry.rule, platform=_PLATFORM)
