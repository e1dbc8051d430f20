"""A Graph as text, for tests and dumps, and back.

    graph main(%0: 2x3xf32, %1: 3xf32) {
      %2 = stablehlo.broadcast_in_dim(%1) {'broadcast_dimensions': (1,)} : 2x3xf32
      %3 = stablehlo.add(%0, %2) : 2x3xf32
      %4 = stablehlo.constant() {'value': splat(0.0, 'f32', ())} : f32
      %5 = stablehlo.reduce(%3, %4) {'dimensions': (1,)} : 2xf32
        region (%6: f32, %7: f32) {
          %8 = stablehlo.add(%6, %7) : f32
          return %8
        }
      return %5
    }

Attributes are a Python dictionary of literals, dataclasses of graph.py by name, `array([...], 'f32', shape)` and
`splat(value, dtype, shape)`. Arguments' and outputs' layouts and aliases are not part of the text.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np

from mlir_lowering import graph as graph_module
from mlir_lowering.arrays import is_splat
from mlir_lowering.dtypes import BY_NAME
from mlir_lowering.graph import ArgumentInfo, Graph, Op, Region, TensorType, Value

# Longer constants are printed by their size: such text cannot be parsed back.
MAX_PRINTED = 64


def print_graph(graph: Graph) -> str:
    printer = _Printer()
    printer.lines.append(f"graph {graph.name}({printer.arguments(graph)}) {{")
    printer.body(graph, "  ")
    printer.lines.append("}")
    return "\n".join(printer.lines) + "\n"


class _Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"%{len(self.names)}")

    def arguments(self, region: Region) -> str:
        return ", ".join(f"{self.name(v)}: {v.type}" for v in region.args)

    def body(self, region: Region, indent: str) -> None:
        for op in region.ops:
            operands = ", ".join(self.name(v) for v in op.operands)
            results = ", ".join(self.name(v) for v in op.results)
            types = ", ".join(str(v.type) for v in op.results)
            items = ", ".join(f"{k!r}: {_attribute(v)}" for k, v in sorted(op.attrs.items()))
            attrs = f" {{{items}}}" if items else ""
            self.lines.append(f"{indent}{results} = {op.name}({operands}){attrs} : {types}")
            for inner in op.regions:
                self.lines.append(f"{indent}  region ({self.arguments(inner)}) {{")
                self.body(inner, indent + "    ")
                self.lines.append(f"{indent}  }}")
        self.lines.append(f"{indent}return {', '.join(self.name(v) for v in region.outputs)}")


def _attribute(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    dtype = next((d.name for d in BY_NAME.values() if d.numpy == value.dtype), str(value.dtype))
    if is_splat(value):
        return f"splat({_scalar(value.flat[0])}, {dtype!r}, {value.shape})"
    if value.size > MAX_PRINTED:
        return f"<{value.size} elements>"
    items = ", ".join(_scalar(v) for v in value.flat)
    return f"array([{items}], {dtype!r}, {value.shape})"


def _scalar(value: Any) -> str:
    return repr(value.item() if hasattr(value, "item") else value).replace("inf", "1e999")


_HEAD = re.compile(r"graph (\S+?)\((.*)\) \{$")
_OP = re.compile(r"(%.*) = ([\w.]+)\(([^)]*)\)(?: (\{.*\}))? : (.*)$")
_REGION = re.compile(r"region \((.*)\) \{$")


def parse_graph(text: str) -> Graph:
    """The Graph that `text` describes. Raises ValueError naming the line that is not understood."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    head = _HEAD.match(lines[0])
    if head is None:
        raise ValueError(f"expected 'graph name(arguments) {{': {lines[0]}")
    parser = _Parser(lines)
    graph = Graph(name=head[1])
    parser.arguments(head[2], graph)
    parser.body(graph)
    graph.arguments = [ArgumentInfo() for _ in graph.args]
    graph.output_layouts = [None] * len(graph.outputs)
    graph.output_memory_kinds = ["device"] * len(graph.outputs)
    return graph


class _Parser:
    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.at = 1
        self.values: dict[str, Value] = {}

    def arguments(self, text: str, region: Region) -> None:
        for item in filter(None, text.split(", ")):
            name, _, type = item.partition(": ")
            self.values[name] = Value(_type(type))
            region.args.append(self.values[name])

    def value(self, name: str) -> Value:
        if name not in self.values:
            raise ValueError(f"{name} is not defined: {self.lines[self.at]}")
        return self.values[name]

    def body(self, region: Region) -> None:
        while True:
            line = self.lines[self.at]
            if line.startswith("return"):
                names = filter(None, line.removeprefix("return").strip().split(", "))
                region.outputs = [self.value(n) for n in names]
                self.at += 2  # the closing brace too
                return
            match = _OP.match(line)
            if match is None:
                raise ValueError(f"not an op: {line}")
            results, name, operands, attrs, types = match.groups()
            op = Op(
                name,
                [self.value(v) for v in filter(None, operands.split(", "))],
                [_type(t) for t in types.split(", ")],
                _evaluate(ast.parse(attrs, mode="eval").body) if attrs else {},
            )
            self.at += 1
            while self.at < len(self.lines) and (inner := _REGION.match(self.lines[self.at])):
                op.regions.append(Region())
                self.at += 1
                self.arguments(inner[1], op.regions[-1])
                self.body(op.regions[-1])
            for result, value in zip(results.split(", "), op.results, strict=True):
                self.values[result] = value
            region.ops.append(op)


def _type(text: str) -> TensorType:
    *dims, dtype = re.split(r"x(?=\d|i\d|ui\d|f\d|bf|complex|token)", text)
    return TensorType(tuple(int(d) for d in dims), BY_NAME[dtype])


def _array(items: list[Any], dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.array(items, _numpy(dtype)).reshape(shape)


def _splat(value: Any, dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.array(value, _numpy(dtype)), shape)


def _numpy(name: str) -> np.dtype[Any]:
    return BY_NAME[name].numpy if name in BY_NAME else np.dtype(name)


_CALLS: dict[str, Any] = {
    "array": _array,
    "splat": _splat,
    **{
        name: getattr(graph_module, name)
        for name in (
            "ConvDimensionNumbers",
            "DotDimensionNumbers",
            "GatherDimensionNumbers",
            "ScatterDimensionNumbers",
        )
    },
}


def _evaluate(node: ast.expr) -> Any:
    """A literal that may call the constructors in _CALLS."""
    match node:
        case ast.Call(func=ast.Name(id=name)):
            keywords = {k.arg: _evaluate(k.value) for k in node.keywords if k.arg}
            return _CALLS[name](*map(_evaluate, node.args), **keywords)
        case ast.Dict():
            keys = [_evaluate(k) for k in node.keys if k is not None]
            return dict(zip(keys, map(_evaluate, node.values), strict=True))
        case ast.Tuple() | ast.List():
            items = [_evaluate(item) for item in node.elts]
            return tuple(items) if isinstance(node, ast.Tuple) else items
        case ast.Name(id="nan"):
            return float("nan")
        case _:
            return ast.literal_eval(node)
