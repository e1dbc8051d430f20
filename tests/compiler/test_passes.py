"""Passes on textual graphs: what each makes of its input."""

from __future__ import annotations

from collections.abc import Callable

from absl.testing import absltest, parameterized

import mlir_lowering.ops
from mlir_lowering.graph import Graph
from mlir_lowering.passes import complex_contraction, cse, dce, layouts, loops, simplify, split_reduce
from mlir_lowering.passes.trip_count import static_trip_count
from mlir_lowering.targets import Target, parse_target
from mlir_lowering.text import parse_graph, print_graph

assert mlir_lowering.ops

SOFTWARE = parse_target("software:threads=2,vector_bytes=64")
Pass = Callable[[Graph, Target], None]

_CONSTANT = "= stablehlo.constant() {{'value': splat({0}, '{1}', ())}} : {1}"


def _graph(arguments: str, *lines: str) -> str:
    return "\n".join([f"graph main({arguments}) {{", *lines, "}"])


def _constant(name: str, value: object, dtype: str = "f32") -> str:
    return f"{name} {_CONSTANT.format(value, dtype)}"


# name, pass, before, after (both printed in the parser's own form, so that names do not matter)
_CASES = (
    (
        # The outer loop hands %w to the inner one, which changes it as little; %a and %b change places.
        "carried_unchanged",
        loops.run,
        _graph(
            "%w: 4xf32, %x: 4xf32, %y: 4xf32, %p: i1",
            "%q, %v, %a, %b = stablehlo.while(%p, %w, %x, %y) : i1, 4xf32, 4xf32, 4xf32",
            "region (%c: i1, %d: 4xf32, %e: 4xf32, %f: 4xf32) {",
            "return %c",
            "}",
            "region (%g: i1, %h: 4xf32, %i: 4xf32, %j: 4xf32) {",
            "%k, %l, %m = stablehlo.while(%g, %h, %i) : i1, 4xf32, 4xf32",
            "region (%c2: i1, %d2: 4xf32, %e2: 4xf32) {",
            "return %c2",
            "}",
            "region (%g2: i1, %h2: 4xf32, %i2: 4xf32) {",
            "%n = stablehlo.add(%h2, %i2) : 4xf32",
            "%o = stablehlo.not(%g2) : i1",
            "return %o, %h2, %n",
            "}",
            "return %k, %l, %j, %m",
            "}",
            "%r = stablehlo.add(%v, %a) : 4xf32",
            "return %r, %b",
        ),
        _graph(
            "%w: 4xf32, %x: 4xf32, %y: 4xf32, %p: i1",
            "%q, %a, %b = stablehlo.while(%p, %x, %y) : i1, 4xf32, 4xf32",
            "region (%c: i1, %e: 4xf32, %f: 4xf32) {",
            "return %c",
            "}",
            "region (%g: i1, %i: 4xf32, %j: 4xf32) {",
            "%k, %m = stablehlo.while(%g, %i) : i1, 4xf32",
            "region (%c2: i1, %e2: 4xf32) {",
            "return %c2",
            "}",
            "region (%g2: i1, %i2: 4xf32) {",
            "%n = stablehlo.add(%w, %i2) : 4xf32",
            "%o = stablehlo.not(%g2) : i1",
            "return %o, %n",
            "}",
            "return %k, %j, %m",
            "}",
            "%r = stablehlo.add(%w, %a) : 4xf32",
            "return %r, %b",
        ),
    ),
    (
        # Only its own next value reads %h; %a has no reader outside, but %b's next value reads it.
        "carried_for_itself",
        dce.run,
        _graph(
            "%p: i1, %x: 4xf32, %y: 4xf32, %z: 4xf32",
            "%q, %s, %a, %b = stablehlo.while(%p, %x, %y, %z) : i1, 4xf32, 4xf32, 4xf32",
            "region (%c: i1, %d: 4xf32, %e: 4xf32, %f: 4xf32) {",
            "return %c",
            "}",
            "region (%g: i1, %h: 4xf32, %i: 4xf32, %j: 4xf32) {",
            "%k = stablehlo.not(%g) : i1",
            "%l = stablehlo.tanh(%h) : 4xf32",
            "%m = stablehlo.tanh(%i) : 4xf32",
            "%n = stablehlo.add(%i, %j) : 4xf32",
            "return %k, %l, %m, %n",
            "}",
            "return %b",
        ),
        _graph(
            "%p: i1, %x: 4xf32, %y: 4xf32, %z: 4xf32",
            "%q, %a, %b = stablehlo.while(%p, %y, %z) : i1, 4xf32, 4xf32",
            "region (%c: i1, %e: 4xf32, %f: 4xf32) {",
            "return %c",
            "}",
            "region (%g: i1, %i: 4xf32, %j: 4xf32) {",
            "%k = stablehlo.not(%g) : i1",
            "%m = stablehlo.tanh(%i) : 4xf32",
            "%n = stablehlo.add(%i, %j) : 4xf32",
            "return %k, %m, %n",
            "}",
            "return %b",
        ),
    ),
    (
        "complex_contraction",
        complex_contraction.run,
        _graph(
            "%x: 2x3xcomplex<f32>, %y: 3x4xcomplex<f32>",
            "%z = stablehlo.dot_general(%x, %y) {'k': 1} : 2x4xcomplex<f32>",
            "return %z",
        ),
        _graph(
            "%x: 2x3xcomplex<f32>, %y: 3x4xcomplex<f32>",
            "%a = stablehlo.real(%x) : 2x3xf32",
            "%b = stablehlo.imag(%x) : 2x3xf32",
            "%c = stablehlo.real(%y) : 3x4xf32",
            "%d = stablehlo.imag(%y) : 3x4xf32",
            "%ac = stablehlo.dot_general(%a, %c) {'k': 1} : 2x4xf32",
            "%bd = stablehlo.dot_general(%b, %d) {'k': 1} : 2x4xf32",
            "%ad = stablehlo.dot_general(%a, %d) {'k': 1} : 2x4xf32",
            "%bc = stablehlo.dot_general(%b, %c) {'k': 1} : 2x4xf32",
            "%p = stablehlo.subtract(%ac, %bd) : 2x4xf32",
            "%q = stablehlo.add(%ad, %bc) : 2x4xf32",
            "%z = stablehlo.complex(%p, %q) : 2x4xcomplex<f32>",
            "return %z",
        ),
    ),
    (
        "multiply_by_one",
        simplify.run,
        _graph(
            "%x: 3xf32",
            _constant("%c", 1.0),
            "%b = stablehlo.broadcast_in_dim(%c) {'broadcast_dimensions': ()} : 3xf32",
            "%y = stablehlo.multiply(%x, %b) : 3xf32",
            "return %y",
        ),
        _graph("%x: 3xf32", "return %x"),
    ),
    (
        # -0 + 0 is 0: not an identity.
        "adding_zero_is_kept",
        simplify.run,
        _graph("%x: f32", _constant("%c", 0.0), "%y = stablehlo.add(%x, %c) : f32", "return %y"),
        _graph("%x: f32", _constant("%c", 0.0), "%y = stablehlo.add(%x, %c) : f32", "return %y"),
    ),
    (
        "adding_negative_zero",
        simplify.run,
        _graph("%x: f32", _constant("%c", -0.0), "%y = stablehlo.add(%x, %c) : f32", "return %y"),
        _graph("%x: f32", "return %x"),
    ),
    (
        "constants_fold",
        simplify.run,
        _graph(
            "",
            _constant("%a", 2, "i32"),
            _constant("%b", 5, "i32"),
            "%c = stablehlo.multiply(%a, %b) : i32",
            "%d = stablehlo.convert(%c) : f32",
            "return %d",
        ),
        _graph("", _constant("%d", 10.0), "return %d"),
    ),
    (
        "reshapes_compose",
        simplify.run,
        _graph(
            "%x: 2x6xf32",
            "%a = stablehlo.reshape(%x) : 12xf32",
            "%b = stablehlo.reshape(%a) : 3x4xf32",
            "return %b",
        ),
        _graph("%x: 2x6xf32", "%b = stablehlo.reshape(%x) : 3x4xf32", "return %b"),
    ),
    (
        "transposes_cancel",
        simplify.run,
        _graph(
            "%x: 2x3xf32",
            "%a = stablehlo.transpose(%x) {'permutation': (1, 0)} : 3x2xf32",
            "%b = stablehlo.transpose(%a) {'permutation': (1, 0)} : 2x3xf32",
            "return %b",
        ),
        _graph("%x: 2x3xf32", "return %x"),
    ),
    (
        "transpose_of_ones_is_a_reshape",
        simplify.run,
        _graph(
            "%x: 2x1x3xf32",
            "%a = stablehlo.transpose(%x) {'permutation': (1, 0, 2)} : 1x2x3xf32",
            "return %a",
        ),
        _graph("%x: 2x1x3xf32", "%a = stablehlo.reshape(%x) : 1x2x3xf32", "return %a"),
    ),
    (
        "known_branch",
        simplify.run,
        _graph(
            "%x: f32",
            _constant("%p", True, "i1"),
            "%y = stablehlo.if(%p) : f32",
            "region () {",
            "%a = stablehlo.negate(%x) : f32",
            "return %a",
            "}",
            "region () {",
            "return %x",
            "}",
            "return %y",
        ),
        _graph("%x: f32", "%a = stablehlo.negate(%x) : f32", "return %a"),
    ),
    (
        "dynamic_slice_at_constants_is_clamped",
        simplify.run,
        _graph(
            "%x: 10xf32",
            _constant("%i", 9, "i32"),
            "%y = stablehlo.dynamic_slice(%x, %i) {'slice_sizes': (4,)} : 4xf32",
            "return %y",
        ),
        _graph(
            "%x: 10xf32",
            "%y = stablehlo.slice(%x) {'limit_indices': (10,), 'start_indices': (6,), 'strides': (1,)} : 4xf32",
            "return %y",
        ),
    ),
    (
        "equal_ops_merge",
        cse.run,
        _graph(
            "%x: f32, %y: f32",
            "%a = stablehlo.add(%x, %y) : f32",
            "%b = stablehlo.add(%x, %y) : f32",
            "%c = stablehlo.multiply(%a, %b) : f32",
            "return %c",
        ),
        _graph(
            "%x: f32, %y: f32",
            "%a = stablehlo.add(%x, %y) : f32",
            "%c = stablehlo.multiply(%a, %a) : f32",
            "return %c",
        ),
    ),
    (
        "equal_regions_merge",
        cse.run,
        _graph(
            "%x: 4xf32, %i: f32",
            *(
                line
                for name in ("%a", "%b")
                for line in (
                    f"{name} = stablehlo.reduce(%x, %i) {{'dimensions': (0,)}} : f32",
                    "region (%p: f32, %q: f32) {",
                    "%s = stablehlo.add(%p, %q) : f32",
                    "return %s",
                    "}",
                )
            ),
            "return %a, %b",
        ),
        _graph(
            "%x: 4xf32, %i: f32",
            "%a = stablehlo.reduce(%x, %i) {'dimensions': (0,)} : f32",
            "region (%p: f32, %q: f32) {",
            "%s = stablehlo.add(%p, %q) : f32",
            "return %s",
            "}",
            "return %a, %a",
        ),
    ),
    (
        "different_attributes_stay_apart",
        cse.run,
        _graph(
            "%x: 3x3xf32",
            "%a = stablehlo.transpose(%x) {'permutation': (1, 0)} : 3x3xf32",
            "%b = stablehlo.transpose(%x) {'permutation': (0, 1)} : 3x3xf32",
            "return %a, %b",
        ),
        _graph(
            "%x: 3x3xf32",
            "%a = stablehlo.transpose(%x) {'permutation': (1, 0)} : 3x3xf32",
            "%b = stablehlo.transpose(%x) {'permutation': (0, 1)} : 3x3xf32",
            "return %a, %b",
        ),
    ),
    (
        "unread_ops_go",
        dce.run,
        _graph(
            "%x: f32",
            "%a = stablehlo.negate(%x) : f32",
            "%b = stablehlo.abs(%a) : f32",
            "%c = stablehlo.abs(%x) : f32",
            "return %c",
        ),
        _graph("%x: f32", "%c = stablehlo.abs(%x) : f32", "return %c"),
    ),
    (
        "long_sum_is_split",
        split_reduce.run,
        _graph(
            "%x: 65536xf32",
            _constant("%i", 0.0),
            "%a = stablehlo.reduce(%x, %i) {'dimensions': (0,)} : f32",
            "region (%p: f32, %q: f32) {",
            "%s = stablehlo.add(%p, %q) : f32",
            "return %s",
            "}",
            "return %a",
        ),
        _graph(
            "%x: 65536xf32",
            _constant("%i", 0.0),
            "%r = stablehlo.reshape(%x) : 2x32768xf32",
            "%a = stablehlo.reduce(%r, %i) {'dimensions': (1,)} : 2xf32",
            "region (%p: f32, %q: f32) {",
            "%s = stablehlo.add(%p, %q) : f32",
            "return %s",
            "}",
            "%b = stablehlo.reduce(%a, %i) {'dimensions': (0,)} : f32",
            "region (%p: f32, %q: f32) {",
            "%s = stablehlo.add(%p, %q) : f32",
            "return %s",
            "}",
            "return %b",
        ),
    ),
)


def _body(graph: Graph) -> str:
    """Without ops that nobody reads: a pass need not clean up after itself."""
    dce.run(graph, SOFTWARE)
    return print_graph(graph)


class PassTest(parameterized.TestCase):
    @parameterized.named_parameters(*_CASES)
    def test_rewrites(self, run: Pass, before: str, after: str) -> None:
        graph = parse_graph(before)
        run(graph, SOFTWARE)
        self.assertEqual(_body(graph), print_graph(parse_graph(after)))

    @parameterized.named_parameters(
        ("up", 0, 7, 1, "LT", 7),
        ("by_three", 0, 7, 3, "LT", 3),
        ("inclusive", 0, 7, 1, "LE", 8),
        ("down", 5, 0, -1, "GT", 5),
        ("never", 9, 7, 1, "LT", 0),
        ("wrong_way", 0, 7, -1, "LT", -1),
        ("endless", 0, 7, 0, "LT", -1),
    )
    def test_trip_count(self, start: int, end: int, step: int, direction: str, trips: int) -> None:
        graph = parse_graph(
            _graph(
                "%x: f32",
                _constant("%s", start, "i32"),
                _constant("%e", end, "i32"),
                _constant("%d", step, "i32"),
                "%r, %q = stablehlo.while(%s, %x) : i32, f32",
                "region (%i: i32, %y: f32) {",
                f"%c = stablehlo.compare(%i, %e) {{'comparison_direction': '{direction}'}} : i1",
                "return %c",
                "}",
                "region (%j: i32, %z: f32) {",
                "%n = stablehlo.add(%j, %d) : i32",
                "return %n, %z",
                "}",
                "return %q",
            )
        )
        (loop,) = (op for op in graph.ops if op.name == "stablehlo.while")
        self.assertEqual(static_trip_count(loop), trips)

    def test_layout_becomes_a_transpose(self) -> None:
        graph = parse_graph(_graph("%x: 2x3xf32", "%y = stablehlo.negate(%x) : 2x3xf32", "return %y"))
        graph.arguments[0].layout = (0, 1)  # column-major
        layouts.run(graph, SOFTWARE)
        self.assertEqual(
            print_graph(graph),
            print_graph(
                parse_graph(
                    _graph(
                        "%x: 3x2xf32",
                        "%t = stablehlo.transpose(%x) {'permutation': (1, 0)} : 2x3xf32",
                        "%y = stablehlo.negate(%t) : 2x3xf32",
                        "return %y",
                    )
                )
            ),
        )

    def test_text_round_trip(self) -> None:
        for _, _, before, _ in _CASES:
            once = print_graph(parse_graph(before))
            self.assertEqual(print_graph(parse_graph(once)), once)


if __name__ == "__main__":
    absltest.main()
