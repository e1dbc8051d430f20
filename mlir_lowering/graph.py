"""The compiler's own program representation: typed SSA values, ops with attributes, and regions.

A Graph is a Region with a name. Ops keep StableHLO's names ("stablehlo.add") and attribute names; attributes
are plain Python data (int, float, bool, str, tuples of them, numpy arrays, or a dataclass of this module for
dimension numbers). mlir_lowering/text.py prints and parses the textual form that tests and dumps use.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mlir_lowering.dtypes import DType


@dataclass(frozen=True)
class TensorType:
    """A static shape and an element type."""

    shape: tuple[int, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.bytes

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype.name])


class _Made(threading.local):
    """What this thread made inside `released`: how to take it apart."""

    parts: list[Callable[[], None]] | None = None


_made = _Made()


@contextmanager
def released() -> Iterator[None]:
    """Takes apart, at its end, all ops and whatever else was made inside that refers to itself.

    An op and its results know each other. Left to themselves, a compiled program's ops would wait for Python's cycle
    collector, which may be off or late; JAX's own tests ask for no garbage.
    """
    outer, _made.parts = _made.parts, []
    try:
        yield
    finally:
        for take_apart in _made.parts:
            take_apart()
        _made.parts = outer


def release_later(take_apart: Callable[[], None]) -> None:
    """Has `take_apart` called at the end of `released`, if this is inside."""
    if _made.parts is not None:
        _made.parts.append(take_apart)


class Value:
    """One SSA value: the `index`-th result of `op`, or a region's argument if `op` is None."""

    __slots__ = ("index", "op", "type")

    def __init__(self, type: TensorType, op: Op | None = None, index: int = 0) -> None:
        self.type = type
        self.op = op
        self.index = index

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        producer = "arg" if self.op is None else self.op.name
        return f"<{producer}#{self.index}: {self.type}>"


class Op:
    """One operation. `str(loc)` is the user's source line, "" if unknown."""

    __slots__ = ("attrs", "loc", "name", "operands", "regions", "results")

    def __init__(
        self,
        name: str,
        operands: list[Value],
        result_types: list[TensorType],
        attrs: dict[str, Any] | None = None,
        regions: list[Region] | None = None,
        loc: object = "",
    ) -> None:
        self.name = name
        self.operands = operands
        self.attrs = attrs or {}
        self.regions = regions or []
        self.loc = loc
        self.results = [Value(type, self, i) for i, type in enumerate(result_types)]
        release_later(self._take_apart)

    def _take_apart(self) -> None:
        self.operands, self.results, self.regions = [], [], []

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def signature(self) -> str:
        """Name and types, for messages: `stablehlo.add(f32[2], f32[2]) -> f32[2]`-like text."""
        operands = ", ".join(str(v.type) for v in self.operands)
        results = ", ".join(str(v.type) for v in self.results)
        return f"{self.name}({operands}) -> {results}"

    def __repr__(self) -> str:
        return f"<{self.signature()}>"


@dataclass
class Region:
    """Straight-line ops in topological order between arguments and outputs; may use outer values."""

    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)

    def walk(self) -> Iterator[Op]:
        """Every op of this region and of the regions inside it, outer before inner."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass
class ArgumentInfo:
    """What jax says of a program argument."""

    alias: int = -1  # the output that may take its memory (tf.aliasing_output)
    donated: bool = False  # jax.buffer_donor, or aliased
    memory_kind: str = "device"
    layout: tuple[int, ...] | None = None  # minor-to-major if asked for


@dataclass
class Graph(Region):
    """A whole program."""

    name: str = "main"
    arguments: list[ArgumentInfo] = field(default_factory=list)
    output_layouts: list[tuple[int, ...] | None] = field(default_factory=list)
    output_memory_kinds: list[str] = field(default_factory=list)
    num_replicas: int = 1
    num_partitions: int = 1


CONTROL_FLOW = ("stablehlo.while", "stablehlo.case", "stablehlo.if")


def sequences(graph: Graph) -> Iterator[Region]:
    """The graph and every region of control flow: those whose ops become steps. Each may be rewritten when it comes."""
    yield graph
    for op in graph.walk():
        if op.name in CONTROL_FLOW:
            yield from op.regions


def has_effects(op: Op) -> bool:
    """Whether running `op` does more than compute its results: such ops stay, in the program's order."""
    if op.attrs.get("has_side_effect", False):
        return True
    return any(has_effects(inner) for region in op.regions for inner in region.ops)


def free_values(region: Region) -> list[Value]:
    """Values from outside that `region` (or a region inside it) reads, in order of first use."""
    found: dict[Value, None] = {}
    _find_free(region, set(), found)
    return list(found)


# A function beside, not a closure: one that calls itself is a reference cycle.
def _find_free(region: Region, inside: set[Value], found: dict[Value, None]) -> None:
    inside.update(region.args)
    for op in region.ops:
        found.update((v, None) for v in op.operands if v not in inside)
        for inner in op.regions:
            _find_free(inner, inside, found)
        inside.update(op.results)
    found.update((v, None) for v in region.outputs if v not in inside)


def values_read(op: Op) -> list[Value]:
    """The operands, and what the regions read from outside: a reduction's body too may use an outer constant."""
    return list(dict.fromkeys([*op.operands, *(v for region in op.regions for v in free_values(region))]))


def replace_uses(region: Region, mapping: dict[Value, Value]) -> None:
    """Replaces values by others in every operand and output, in nested regions too, following chains."""
    if not mapping:
        return

    def final(v: Value) -> Value:
        while v in mapping:
            v = mapping[v]
        return v

    for op in region.walk():
        op.operands = [final(v) for v in op.operands]
        for inner in op.regions:
            inner.outputs = [final(v) for v in inner.outputs]
    region.outputs = [final(v) for v in region.outputs]


def clone_region(region: Region) -> Region:
    """A copy with values and ops of its own; values from outside stay shared. Of regions without regions inside."""
    values = {v: Value(v.type) for v in region.args}
    clone = Region(list(values.values()))
    for op in region.ops:
        types = [v.type for v in op.results]
        copied = Op(op.name, [values.get(v, v) for v in op.operands], types, op.attrs, loc=op.loc)
        values.update(zip(op.results, copied.results, strict=True))
        clone.ops.append(copied)
    clone.outputs = [values.get(v, v) for v in region.outputs]
    return clone


# Attributes with structure, named as StableHLO names them.


@dataclass(frozen=True)
class DotDimensionNumbers:
    lhs_batching_dimensions: tuple[int, ...]
    rhs_batching_dimensions: tuple[int, ...]
    lhs_contracting_dimensions: tuple[int, ...]
    rhs_contracting_dimensions: tuple[int, ...]


@dataclass(frozen=True)
class ConvDimensionNumbers:
    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


@dataclass(frozen=True)
class GatherDimensionNumbers:
    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    start_indices_batching_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int


@dataclass(frozen=True)
class ScatterDimensionNumbers:
    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    input_batching_dims: tuple[int, ...]
    scatter_indices_batching_dims: tuple[int, ...]
    scattered_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
