"""What tells this compiler's programs from those of another version."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path


@functools.cache
def compiler_version() -> str:
    """A hash of the compiler's own source: part of every fingerprint and of the platform's version."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parent
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.metal")]):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
