"""Connects the plugin library with the compiler.

The library imports this module and calls `connect` when it must compile a program and has no compiler, on whichever
thread JAX compiles; nothing of the compiler is loaded before.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import importlib.util
from typing import Any

import pjrt_metal
from mlir_lowering.pipeline import compile_artifact


def _core() -> Any:
    """`_core` wherever the package was compiled for this Python; the macOS wheel made on Linux has none."""
    compiled = importlib.util.find_spec("pjrt_metal._core") is not None
    return importlib.import_module("pjrt_metal._core" if compiled else "pjrt_metal.core_ctypes")


core = _core()


def connect() -> None:
    """Registers the compiler with the library, until the interpreter ends."""
    core.register_compiler(str(pjrt_metal.library_path()), functools.partial(compile_artifact, log=core.log_phase))


atexit.register(core.unregister_compiler)
