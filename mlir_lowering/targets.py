"""What the schedules need to know of a device. Parsed from the text the runtime gives (DeviceInfo.target)."""

from __future__ import annotations

from dataclasses import dataclass

from mlir_lowering.errors import CompileError


@dataclass(frozen=True)
class Target:
    """A device as the schedules see it.

    `simd_width` 1 means that a thread is a strip of a loop (the software device); `threads` is how many run
    at once; `vector_bytes` the width of a vector register of one thread; `cache_bytes` the fast memory a
    thread may count on; `max_buffers` how many buffers one kernel can bind (Metal: 31, argument bytes included);
    `language` the version of MSL, 10 * major + minor.
    """

    text: str
    name: str
    simd_width: int
    threads: int
    vector_bytes: int
    cache_bytes: int
    max_buffers: int = 31
    language: int = 31

    @property
    def is_software(self) -> bool:
        return self.simd_width == 1


_OPTIONS = ("threads", "vector_bytes", "simd_width", "threadgroup_bytes", "language")


def parse_target(text: str) -> Target:
    """`software:threads=2,vector_bytes=64` or `apple7`... as a Target.

    Raises CompileError for a name or option nobody knows.
    """
    name, _, rest = text.partition(":")
    options: dict[str, int] = {}
    for item in filter(None, rest.split(",")):
        key, _, value = item.partition("=")
        if key not in _OPTIONS or not value.isdigit():
            raise CompileError(f"target {text!r}: option {item!r} is not one of {', '.join(_OPTIONS)} with a number")
        options[key] = int(value)
    if name == "software":
        return Target(
            text,
            name,
            simd_width=1,
            threads=options.get("threads", 1),
            vector_bytes=options.get("vector_bytes", 32),
            cache_bytes=1 << 20,
        )
    if name.startswith("apple") and name[5:].isdigit():
        return Target(
            text,
            name,
            simd_width=32,
            threads=options.get("threads", 1024),
            vector_bytes=16,
            cache_bytes=options.get("threadgroup_bytes", 32 << 10),
            language=options.get("language", 31),
        )
    raise CompileError(f"unknown target {text!r}: expected software[:...] or apple<family>")


def host_target(target: Target) -> Target:
    """What kernels that run as host steps of `target` are written for: strips, with vectors that every CPU has."""
    return target if target.is_software else parse_target("software:threads=1,vector_bytes=16")
