"""Every op's record; importing this package fills mlir_lowering.registry.OPS."""

from __future__ import annotations

from mlir_lowering.ops import (
    comparison,
    complex,
    contraction,
    control,
    conversion,
    elementwise,
    gather,
    indexing,
    reduction,
    update,
    window,
)

__all__ = [
    "comparison",
    "complex",
    "contraction",
    "control",
    "conversion",
    "elementwise",
    "gather",
    "indexing",
    "reduction",
    "update",
    "window",
]
