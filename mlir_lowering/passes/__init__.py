"""The passes in the order they run; each rewrites a Graph in place."""

from __future__ import annotations

from collections.abc import Callable

from mlir_lowering.graph import Graph
from mlir_lowering.passes import complex_contraction, cse, dce, layouts, loops, simplify, split_reduce, windows
from mlir_lowering.targets import Target

Pass = Callable[[Graph, Target], None]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("layouts", layouts.run),
    ("loops", loops.run),
    ("simplify", simplify.run),
    ("complex_contraction", complex_contraction.run),
    ("windows", windows.run),
    ("split_reduce", split_reduce.run),
    ("cse", cse.run),
    ("dce", dce.run),
)
