"""Registers the metal platform with JAX.

On a Mac with a GPU metal is the default platform. Elsewhere, where the software Metal device stands in, its
priority is below the CPU's: it must be asked for.
"""

from __future__ import annotations

import logging
import platform
import struct
from pathlib import Path
from typing import Any

import pjrt_metal
from mlir_lowering.version import compiler_version
from pjrt_metal import jax_patches, library_trial

logger = logging.getLogger(__name__)

# JAX's CPU has priority 0; JAX's default for plugins is 400.
_PRIORITY_GPU = 400
_PRIORITY_SOFTWARE = -100


def _priority() -> int:
    apple_silicon = platform.system() == "Darwin" and platform.machine() == "arm64"
    return _PRIORITY_GPU if apple_silicon else _PRIORITY_SOFTWARE


def _remedy(path: Path) -> str:
    if (path.parents[1] / "CMakeLists.txt").exists():
        return "this is the source checkout: run from another folder, or with python -P, to use the installed package"
    return "install pjrt-metal again"


def _check_whole(path: Path) -> None:
    """Raises for an ELF file that was cut short: loading it would end the process (SIGBUS)."""
    with path.open("rb") as file:
        header = file.read(64)
    if header[:5] != b"\x7fELF\x02" or len(header) < 64:
        return  # not a 64-bit ELF file: the dynamic linker itself says what it is
    # e_shoff, e_shentsize, e_shnum: the section header table is the last thing in the file.
    (table,) = struct.unpack_from("<Q", header, 40)
    entry_size, entries = struct.unpack_from("<HH", header, 58)
    if path.stat().st_size < table + entry_size * entries:
        raise OSError(f"{path} was cut short; install pjrt-metal again")


def _client_options() -> dict[str, Any]:
    """JAX asks when it opens the device: reading the compiler's source is not for programs that never do."""
    # jaxlib serializes every program that it hands to the plugin, and has read it before.
    # It asks for copies to the host in a layout that it has freed before, and means the array's own.
    return {
        "trusted_programs": True,
        "ignore_host_layout": True,
        "compiler_version": compiler_version(),
        "trial_command": library_trial.command(pjrt_metal.library_path()),
    }


def register() -> None:
    """Makes "metal" known to JAX. A library that cannot be loaded leaves JAX as it was, with a reason for whoever
    asks for metal."""
    from jax._src import xla_bridge

    jax_patches.mark_stable()
    path = pjrt_metal.library_path()
    try:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing; {_remedy(path)}")
        _check_whole(path)
        xla_bridge.register_plugin(
            "metal",
            priority=_priority(),
            library_path=str(path),
            options=_client_options,
        )
    except Exception as error:
        reason = f"pjrt-metal's plugin library cannot be used: {error}"
        logger.info("%s", reason)

        def fail() -> None:
            raise RuntimeError(reason)

        xla_bridge.register_backend_factory("metal", fail, priority=_PRIORITY_SOFTWARE, fail_quietly=True)
        return
    jax_patches.apply()
