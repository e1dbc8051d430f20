"""Python callbacks: how JAX emits them for metal, and how the library calls them."""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import functools
import itertools
import math
import secrets
import traceback
import weakref
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import jax
import numpy as np
from jax.interpreters import mlir

from mlir_lowering.dtypes import BY_NAME, DType
from mlir_lowering.errors import INTERNAL
from pjrt_metal.core_ctypes import EmitText, extension

# csrc/runtime/python_callback.h.
_CALLBACK_TARGET = "pjrt_metal_python_callback"

_BY_CODE: dict[int, DType] = {row.code: row for row in BY_NAME.values()}
_TOKEN = BY_NAME["token"].code


def install() -> None:
    """JAX emits callbacks for a hard-coded list of platforms only."""
    from jax._src import callback

    original = callback.emit_python_callback

    @functools.wraps(original)
    def emit(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        if tuple(ctx.module_context.platforms) == ("metal",):
            return _emit_python_callback(ctx, *args, **kwargs)
        return original(ctx, *args, **kwargs)

    for module in (callback, mlir):
        if module.emit_python_callback is original:
            module.emit_python_callback = emit


# By the number in the program; each lives as long as the executables that call it. The numbers start anywhere, so that
# a program from another process names none of this one.
_callbacks: weakref.WeakValueDictionary[int, Callable[..., Any]] = weakref.WeakValueDictionary()
_numbers = itertools.count(secrets.randbits(48) << 15)


def _emit_python_callback(
    ctx: Any,
    callback: Callable[..., Sequence[Any]],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    returns_token: bool = True,
    partitioned: bool = False,
    sharding: Any = None,
) -> tuple[Sequence[Any], Any, Any]:
    """JAX's emit_python_callback for metal: a custom call that names `callback` by its number.

    A program runs on one device: `partitioned` and `sharding` change nothing.
    """
    from jax._src import core

    _connect()

    # A setting of the thread that compiles; the callback runs on one of the runtime's.
    x64 = bool(jax.config.jax_enable_x64)

    def checked(*values: Any) -> list[np.ndarray[Any, Any]]:
        with jax.enable_x64(x64):
            return _checked_results(callback(*values), result_avals)

    number = next(_numbers)
    _callbacks[number] = checked
    # jaxlib keeps it as long as the executable. JAX 0.10 keeps such programs out of its compilation cache; later ones
    # keep them under a key that no other process has, as the number is part of it.
    ctx.module_context.add_host_callback(checked)
    tokens = [core.abstract_token] if token else []
    inner = dataclasses.replace(ctx, avals_in=[*tokens, *operand_avals], avals_out=[*tokens, *result_avals])
    lowering = jax.ffi.ffi_lowering(_CALLBACK_TARGET, has_side_effect=has_side_effect)
    results = list(lowering(inner, *([token] if token else []), *operands, id=np.uint64(number)))
    if token:
        token, *results = results
    return results, token, checked


def _checked_results(values: Sequence[Any], avals: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    if len(values) != len(avals):
        raise RuntimeError(f"the callback returned {len(values)} arrays; {len(avals)} were announced")
    results = []
    for number, (value, aval) in enumerate(zip(values, avals, strict=True)):
        array = np.asarray(value)
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
        if (array.shape, array.dtype) != (aval.shape, aval.dtype):
            raise RuntimeError(
                f"the callback's result {number} is {array.dtype}{list(array.shape)}; "
                f"{aval.dtype}{list(aval.shape)} was announced"
            )
        results.append(array)
    return results


class _PythonArray(Structure):
    """csrc/runtime/python_callback.h."""

    _fields_ = (
        ("dtype", c_int),
        ("data", c_void_p),
        ("dims", POINTER(c_int64)),
        ("rank", c_size_t),
        ("bytes", c_size_t),
    )

    def view(self) -> np.ndarray[Any, Any]:
        """The runtime's memory."""
        dtype = _BY_CODE[self.dtype].numpy
        shape = tuple(self.dims[i] for i in range(self.rank))
        if math.prod(shape) == 0:
            return np.empty(shape, dtype)
        memory = (ctypes.c_char * self.bytes).from_address(self.data)
        return np.frombuffer(memory, dtype).reshape(shape)


_PythonCallback = CFUNCTYPE(
    c_int, c_uint64, POINTER(_PythonArray), c_size_t, POINTER(_PythonArray), c_size_t, c_void_p, c_void_p
)


def _run(number: int, operands: Any, num_operands: int, results: Any, num_results: int, emit: int, sink: int) -> int:
    try:
        callback = _callbacks.get(number)
        if callback is None:
            raise RuntimeError("the program calls a Python function of another process: compile it in this one")
        # The callback may keep its arguments, whose memory goes back to the runtime.
        values = [operands[i].view().copy() for i in range(num_operands) if operands[i].dtype != _TOKEN]
        views = [results[i] for i in range(num_results) if results[i].dtype != _TOKEN]
        for result, value in zip(views, callback(*values), strict=True):
            result.view()[...] = value
    except BaseException:  # of a thread of the runtime's: nobody else would report it
        message = ("a Python callback failed:\n" + traceback.format_exc()).encode(errors="replace")
        EmitText(emit)(sink, message, len(message))
        return INTERNAL
    return 0


_run_pointer = _PythonCallback(_run)


@functools.cache
def _connect() -> None:
    extension().set_python_callback(ctypes.cast(_run_pointer, c_void_p))
    atexit.register(_disconnect)


def _disconnect() -> None:
    """Before Python ends: what has effects is waited for, as JAX itself does later."""
    try:
        jax.effects_barrier()
    finally:
        extension().set_python_callback(None)
