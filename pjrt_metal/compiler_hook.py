"""Importing this module connects the plugin library with the compiler.

The library imports it when it must first compile a program, on whichever thread JAX compiles; nothing of the
compiler is loaded before.
"""

from __future__ import annotations

import atexit
import functools

import pjrt_metal
from mlir_lowering.pipeline import compile_artifact
from pjrt_metal import _core

_core.register_compiler(str(pjrt_metal.library_path()), functools.partial(compile_artifact, log=_core.log_phase))
atexit.register(_core.unregister_compiler)
