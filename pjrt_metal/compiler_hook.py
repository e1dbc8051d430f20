"""Importing this module connects the plugin library with the compiler.

The library imports it when it must first compile a program, on whichever thread JAX compiles; nothing of the
compiler is loaded before.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
from typing import Any

import pjrt_metal
from mlir_lowering.pipeline import compile_artifact


def _core() -> Any:
    """`_core` wherever the package was compiled for this Python; the macOS wheel made on Linux has none."""
    compiled = importlib.util.find_spec("pjrt_metal._core") is not None
    return importlib.import_module("pjrt_metal._core" if compiled else "pjrt_metal.core_ctypes")


core = _core()
core.register_compiler(str(pjrt_metal.library_path()), functools.partial(compile_artifact, log=core.log_phase))
atexit.register(core.unregister_compiler)
