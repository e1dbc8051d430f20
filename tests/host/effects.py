"""Effects that failed on purpose, which JAX would report once more when the process ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def forgotten_effects() -> Iterator[None]:
    from jax._src import dispatch

    try:
        yield
    finally:
        dispatch.runtime_tokens.clear()
