"""The MSL text in front of the kernels of every compilation unit."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parent
_FILES = ("preamble.metal", "math.metal", "element.metal", "complex.metal")

PREAMBLE = "\n".join((_FOLDER / name).read_text() for name in _FILES)
