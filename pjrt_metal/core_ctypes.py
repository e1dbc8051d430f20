"""What `pjrt_metal._core` does, in Python: connects the plugin library with the compiler.

The wheel for macOS has no `_core`, which would be one file for every version of Python. Compiling a program takes
milliseconds at least; ctypes adds microseconds.
"""

from __future__ import annotations

import ctypes
import functools
import traceback
from collections.abc import Callable
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_size_t, c_void_p
from typing import Any

import pjrt_metal
from mlir_lowering.errors import INTERNAL

Compiler = Callable[[bytes, str, bytes, str, bool], bytes]

# csrc/runtime/compiler_hook.h: four texts as address and size, `trusted`, where the result goes.
EmitText = CFUNCTYPE(None, c_void_p, c_char_p, c_size_t)
_CompileCallback = CFUNCTYPE(c_int, *[c_void_p, c_size_t] * 4, c_int, c_void_p, c_void_p)


class _ExtensionBase(Structure):
    """PJRT_Extension_Base."""


_ExtensionBase._fields_ = [("struct_size", c_size_t), ("type", c_int), ("next", POINTER(_ExtensionBase))]


class _ApiStart(Structure):
    """The first fields of PJRT_Api."""

    _fields_ = (("struct_size", c_size_t), ("extension_start", POINTER(_ExtensionBase)))


class _PrivateExtension(Structure):
    """csrc/pjrt/private_extension.h."""

    _fields_ = (
        ("base", _ExtensionBase),
        ("version", c_int),
        ("set_compiler", CFUNCTYPE(None, c_void_p)),
        ("log_phase", CFUNCTYPE(None, c_char_p, c_double, c_char_p)),
        ("set_python_callback", CFUNCTYPE(None, c_void_p)),
        ("register_ffi_handlers", CFUNCTYPE(c_char_p, c_char_p, POINTER(c_void_p))),
        ("register_ffi_type", CFUNCTYPE(c_char_p, c_char_p, c_void_p, c_void_p)),
        ("guard_host_reads", CFUNCTYPE(None, c_int, c_int)),
        ("run_trials", CFUNCTYPE(c_int, c_char_p)),
    )


_EXTENSION_TYPE = 0x4D544C
_EXTENSION_VERSION = 3

_extension: Any = None
# What the library may call lives as long as the process: a thread can be inside when the compiler is taken away.
_callbacks: list[Any] = []


def find_extension(path: str) -> Any:
    """Our own extension of the plugin library's function table."""
    get_api = ctypes.CDLL(path).GetPjrtApi
    get_api.restype = POINTER(_ApiStart)
    entry = get_api().contents.extension_start
    while entry:
        if entry.contents.type == _EXTENSION_TYPE:
            found = ctypes.cast(entry, POINTER(_PrivateExtension)).contents
            if found.version != _EXTENSION_VERSION:
                raise RuntimeError(f"{path} is of another version than pjrt_metal: install pjrt-metal again")
            return found
        entry = entry.contents.next
    raise RuntimeError(f"{path} is not pjrt-metal's plugin library")


@functools.cache
def extension() -> Any:
    """That of the library that is installed with this package."""
    return find_extension(str(pjrt_metal.library_path()))


def _callback(compiler: Compiler) -> Any:
    def compile(
        code: int,
        code_size: int,
        format: int,
        format_size: int,
        options: int,
        options_size: int,
        target: int,
        target_size: int,
        trusted: int,
        emit: int,
        sink: int,
    ) -> int:
        status = 0
        try:
            result = compiler(
                _text(code, code_size),
                _text(format, format_size).decode(),
                _text(options, options_size),
                _text(target, target_size).decode(),
                trusted != 0,
            )
        except Exception as error:
            # A CompileError says what is wrong in words for the user; anything else is our fault and shows where.
            code_of_error = getattr(error, "code", None)
            if isinstance(code_of_error, int):
                status, message = code_of_error, str(error)
            else:
                status, message = INTERNAL, "the compiler failed: " + traceback.format_exc()
            result = message.encode(errors="replace")
        EmitText(emit)(sink, result, len(result))
        return status

    return _CompileCallback(compile)


def _text(address: int | None, size: int) -> bytes:
    return ctypes.string_at(address, size) if address else b""


def register_compiler(library_path: str, callable: Compiler) -> None:
    """Makes the plugin library compile with `callable`; see _core's."""
    global _extension
    _extension = find_extension(library_path)
    callback = _callback(callable)
    _callbacks.append(callback)
    _extension.set_compiler(ctypes.cast(callback, c_void_p))


def unregister_compiler() -> None:
    """Undoes register_compiler; call it before Python shuts down."""
    if _extension is not None:
        _extension.set_compiler(None)


def log_phase(phase: str, milliseconds: float, detail: str) -> None:
    """One line of the plugin's log, if PJRT_METAL_LOG is set."""
    if _extension is not None:
        _extension.log_phase(phase.encode(), milliseconds, detail.encode())
