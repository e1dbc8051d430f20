"""The Programs that attack_programs.cc changes, with where each of their fields is.

python -m tests.robustness.attack_corpus TARGET FILE
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any
from unittest import mock

from mlir_lowering import program as p
from mlir_lowering.pipeline import compile_artifact
from tests.capi import programs

SOFTWARE = "software:threads=2,vector_bytes=64"  # kPlainTarget of plain_device.h
HEADER = programs.HEADER.size

# Contractions, reductions, loops and branches, as the compiler writes them.
MODULES = [
    """func.func @main(%x: tensor<8x16xf32>, %w: tensor<16x4xf32>) -> (tensor<8x4xf32>, tensor<4xf32>) {
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0]
        : (tensor<8x4xf32>, tensor<f32>) -> tensor<4xf32>
      %t = stablehlo.tanh %y : tensor<8x4xf32>
      return %t, %s : tensor<8x4xf32>, tensor<4xf32>
    }""",
    """func.func @main(%n: tensor<i32>, %x: tensor<7xf32>) -> (tensor<i32>, tensor<7xf32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<7xf32>
        cond { %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %p : tensor<i1> }
        do { %j = stablehlo.add %i, %one : tensor<i32>
             %d = "stablehlo.case"(%i) ({ %a = stablehlo.sine %c : tensor<7xf32>
                                          stablehlo.return %a : tensor<7xf32> },
                                        { %b = stablehlo.add %c, %c : tensor<7xf32>
                                          stablehlo.return %b : tensor<7xf32> })
               : (tensor<i32>) -> tensor<7xf32>
             stablehlo.return %j, %d : tensor<i32>, tensor<7xf32> }
      return %r#0, %r#1 : tensor<i32>, tensor<7xf32>
    }""",
    """func.func @main(%x: tensor<2x9x8x3xf32> {tf.aliasing_output = 0 : i32}, %w: tensor<3x3x3x4xf32>)
        -> (tensor<2x9x8x3xf32>, tensor<2x4x3x4xf32>) {
      %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
        window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<2x9x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<2x4x3x4xf32>
      %n = stablehlo.negate %x : tensor<2x9x8x3xf32>
      return %n, %y : tensor<2x9x8x3xf32>, tensor<2x4x3x4xf32>
    }""",
]


def attributes() -> bytes:
    """A dictionary of each kind of attribute."""

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    inner = struct.pack("<I", 1) + text(b"x") + b"\4" + text(b"y")
    entries = [
        (b"a", b"\1" + bytes([programs.F32]) + text(bytes(8))),
        (b"d", b"\2" + inner),
        (b"id", b"\3\x09" + text(bytes(8))),
        (b"s", b"\4" + text(b"text")),
    ]
    return struct.pack("<I", len(entries)) + b"".join(text(name) + value for name, value in entries)


def control_flow(target: str) -> bytes:
    """Loops, branches, library and host calls inside one another, over slots of every kind."""
    size = 16
    tensor = p.TensorInfo(programs.F32, (2, 2), (1, 0))
    flag = p.TensorInfo(1, (), ())
    slots = [
        p.Slot(p.SlotKind.PARAMETER, 0, 0, size),
        p.Slot(p.SlotKind.OUTPUT, 0, 0, size),
        p.Slot(p.SlotKind.ARENA, 0, 0, size),
        p.Slot(p.SlotKind.ARENA, 0, 256, 1),
        p.Slot(p.SlotKind.ARENA, 0, 260, 4),
        p.Slot(p.SlotKind.CONSTANT, 0, 4, 1),
        p.Slot(p.SlotKind.CONSTANT, 1, 0, size),
        p.Slot(p.SlotKind.PARAMETER, 1, 0, 1),
        p.Slot(p.SlotKind.OUTPUT, 1, 0, 1),
        p.Slot(p.SlotKind.ARENA, 0, 300, 0),
    ]
    launch = p.Launch(0, (0, 2), struct.pack("<I", 4), (4, 1, 1), (32, 1, 1))
    array = p.HostArray(2, programs.F32, (2, 2))
    token = p.HostArray(9, 23, ())
    call = p.HostCall("touch", (token, p.HostArray(0, programs.F32, (4,))), (array,), attributes())
    view = p.LibraryView((1, 2, 2), (0, 2, 1), (1, 2, 2))
    library = p.Library(p.LibraryOp(p.LibraryKind.MATMUL, programs.F32, view, view, view), (0, 6, 1), (launch,))
    counted = p.While(3, (), (p.Copy(2, 1), launch, call), 3)
    branch = p.Case(4, ((p.Copy(0, 2),), (counted, library), ()))
    unknown = p.While(3, (p.Copy(5, 3),), (branch, p.Copy(7, 8), p.While(5, (p.Copy(5, 8),), (launch,))))
    return p.serialize(
        p.Program(
            name="control",
            target=target,
            fingerprint="control",
            parameters=[tensor, flag],
            outputs=[tensor, p.TensorInfo(1, (), (), "unpinned_host")],
            preamble="// nothing",
            kernels=[p.Kernel("k_any", "any", (p.ParamKind.INPUT, p.ParamKind.OUTPUT, p.ParamKind.ARGS))],
            constants=[bytes(8), bytes(range(16)), b""],
            slots=slots,
            arena_bytes=512,
            body=(launch, call, counted, branch, unknown, library, p.Case(7, ((call,), (launch,)))),
        )
    )


def fields(make: Any) -> tuple[bytes, list[tuple[int, int]]]:
    """The Program's bytes, and the offset and width of each number in them."""
    writers: list[p._Writer] = []
    found: list[tuple[int, int, int]] = []  # part, offset in it, width

    class Writer(p._Writer):
        def __init__(self) -> None:
            super().__init__()
            writers.append(self)

        def pack(self, layout: str, *values: float) -> None:
            offset = 0
            for repeat, kind in _items(layout):
                for _ in range(repeat):
                    width = struct.calcsize("<" + kind)
                    found.append((len(self.parts), offset, width))
                    offset += width
            super().pack(layout, *values)

    with mock.patch.object(p, "_Writer", Writer):
        blob = make()
    starts = [HEADER]
    for part in writers[-1].parts:
        starts.append(starts[-1] + len(part))
    return blob, [(starts[part] + offset, width) for part, offset, width in found]


def _items(layout: str) -> list[tuple[int, str]]:
    items, digits = [], ""
    for c in layout:
        if c.isdigit():
            digits += c
        else:
            items.append((int(digits) if digits else 1, c))
            digits = ""
    return items


def corpus(target: str) -> bytes:
    makers = [
        lambda: programs.copies(target),
        lambda: programs.add(target, donate=True),
        lambda: programs.library_call(target),
        lambda: control_flow(target),
        *(lambda text=text: compile_artifact(text.encode(), "mlir", b"", target) for text in MODULES),
    ]
    parts = [struct.pack("<I", len(makers))]
    for make in makers:
        blob, places = fields(make)
        parts.append(struct.pack("<Q", len(blob)) + blob + struct.pack("<I", len(places)))
        parts += [struct.pack("<IB", offset, width) for offset, width in places]
    return b"".join(parts)


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(corpus(sys.argv[1]))
