"""The one exception the compiler raises for a program it cannot compile, with PJRT's error codes."""

from __future__ import annotations

INVALID_ARGUMENT = 3
RESOURCE_EXHAUSTED = 8
UNIMPLEMENTED = 12
INTERNAL = 13


class CompileError(Exception):
    """A program that cannot be compiled; `code` is a PJRT_Error_Code and reaches JAX with the message."""

    def __init__(self, message: str, code: int = INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code


# Always true, where an error has nothing better to advise.
_ON_CPU = 'run this part on the CPU: JAX_PLATFORMS=metal,cpu and jax.device_put(x, jax.devices("cpu")[0])'


def unsupported(what: str, loc: str, advice: str = _ON_CPU) -> CompileError:
    """An UNIMPLEMENTED error: `what` names the op and its types, `loc` is the user's source line."""
    where = f"\n  at {loc}" if loc else ""
    return CompileError(f"pjrt-metal does not support {what}{where}\n  {advice}", UNIMPLEMENTED)
