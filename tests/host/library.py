"""The handlers of handlers.cc, compiled with jaxlib's headers and registered for the CPU and for metal."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import pytest

from mlir_lowering.dtypes import BY_NAME

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLATFORMS = ("cpu", "metal")
# numpy's element types that take at least a byte.
WHOLE_BYTES = [row.numpy for row in BY_NAME.values() if row.bits >= 8 or row.kind == "pred"]

# Target: symbols by stage.
_TARGETS = {
    "describe": {"execute": "DescribeCall"},
    "check": {"execute": "CheckCall"},
    "in_place": {"execute": "InPlaceCall"},
    "later": {"execute": "LaterCall"},
    "context": {"execute": "ContextCall"},
    "throws": {"execute": "Throws"},
    "from_the_future": {"execute": "FromTheFuture"},
    "count": {"instantiate": "CounterInstantiate", "execute": "CounterCall"},
}
# What XLA:CPU refuses to register or survive.
_METAL_ONLY = {"throws", "from_the_future"}


def compiler() -> list[str]:
    """A command that compiles C++ with jaxlib's FFI headers; skips the test where there is none."""
    found = shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("needs a C++ compiler")
    return [found, "-std=c++20", f"-I{ROOT}", f"-I{jax.ffi.include_dir()}"]


@functools.cache
def load() -> ctypes.CDLL:
    """Compiled and registered once a process."""
    folder = Path(tempfile.mkdtemp(prefix="pjrt-metal-handlers-"))
    path = folder / "handlers.so"
    command = [*compiler(), "-shared", "-fPIC", "-O1", str(HERE / "handlers.cc"), "-o", str(path)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    library = ctypes.CDLL(str(path))
    shutil.rmtree(folder)
    for platform in PLATFORMS:
        register_counter_type(library, platform)
        for target, symbols in _TARGETS.items():
            if platform == "cpu" and target in _METAL_ONLY:
                continue
            stages = {stage: jax.ffi.pycapsule(getattr(library, symbol)) for stage, symbol in symbols.items()}
            handler = stages if len(stages) > 1 else stages["execute"]
            jax.ffi.register_ffi_target(f"host_test_{target}", handler, platform=platform)
    return library


def register_counter_type(library: ctypes.CDLL, platform: str) -> None:
    library.CounterTypeId.restype = library.CounterTypeInfo.restype = ctypes.c_void_p
    jax.ffi.register_ffi_type(
        "host_test_counter",
        {
            "type_id": _capsule(library.CounterTypeId()),
            "type_info": _capsule(library.CounterTypeInfo()),
        },
        platform=platform,
    )


def _capsule(address: int) -> object:
    return jax.ffi.pycapsule(ctypes.c_void_p(address))
