"""Registers the metal platform with JAX.

On a Mac with a GPU metal is the default platform. Elsewhere, where the software Metal device stands in, its
priority is below the CPU's: it must be asked for.
"""

from __future__ import annotations

import logging
import platform

import pjrt_metal
from pjrt_metal import jax_patches

logger = logging.getLogger(__name__)

# JAX's CPU has priority 0; JAX's default for plugins is 400.
_PRIORITY_GPU = 400
_PRIORITY_SOFTWARE = -100


def _priority() -> int:
    apple_silicon = platform.system() == "Darwin" and platform.machine() == "arm64"
    return _PRIORITY_GPU if apple_silicon else _PRIORITY_SOFTWARE


def register() -> None:
    """Makes "metal" known to JAX. A library that cannot be loaded leaves JAX as it was, with a reason for whoever
    asks for metal."""
    from jax._src import xla_bridge

    jax_patches.mark_stable()
    path = pjrt_metal.library_path()
    try:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; install pjrt-metal again")
        xla_bridge.register_plugin("metal", priority=_priority(), library_path=str(path))
    except Exception as error:
        reason = f"pjrt-metal's plugin library cannot be used: {error}"
        logger.info("%s", reason)

        def fail() -> None:
            raise RuntimeError(reason)

        xla_bridge.register_backend_factory(
            "metal", fail, priority=_PRIORITY_SOFTWARE, fail_quietly=True
        )
        return
    jax_patches.apply()
