"""pjrt-metal: the Apple GPU as a JAX platform, and a software Metal device elsewhere.

JAX finds this package through the entry point group `jax_plugins` and calls `initialize`; there is nothing a user
must call. Ask for the platform with JAX_PLATFORMS=metal or jax.devices("metal").
"""

from __future__ import annotations

import platform
from pathlib import Path


def library_path() -> Path:
    """The plugin library (it exports GetPjrtApi)."""
    suffix = "dylib" if platform.system() == "Darwin" else "so"
    return Path(__file__).parent / f"libpjrt_metal.{suffix}"


def initialize() -> None:
    """Registers the platform with JAX; JAX calls it when it first looks for backends."""
    from pjrt_metal import registration

    registration.register()
