"""Connects the plugin library with the compiler.

The library imports this module and calls `connect` when it must compile a program and has no compiler, on whichever
thread JAX compiles; nothing of the compiler is loaded before.
"""

from __future__ import annotations

import atexit
import functools

import pjrt_metal
from mlir_lowering.pipeline import compile_artifact
from pjrt_metal import _core


def connect() -> None:
    """Registers the compiler with the library, until the interpreter ends."""
    _core.register_compiler(str(pjrt_metal.library_path()), functools.partial(compile_artifact, log=_core.log_phase))


atexit.register(_core.unregister_compiler)
