"""Hand-made Programs, as the compiler would make them."""

from __future__ import annotations

import struct
import zlib

from mlir_lowering import program as p

F32 = 11

ADD_SOURCE = """
kernel void k_add(device const float* in0 [[buffer(0)]], device const float* in1 [[buffer(1)]],
                  device float* out0 [[buffer(2)]], constant uint& n [[buffer(3)]],
                  uint3 tid [[thread_position_in_grid]]) {
  if (tid.x < n) out0[tid.x] = in0[tid.x] + in1[tid.x];
}
"""
ADD_PARAMS = (
    p.ParamKind.INPUT,
    p.ParamKind.INPUT,
    p.ParamKind.OUTPUT,
    p.ParamKind.ARGS,
    p.ParamKind.THREAD_POSITION_IN_GRID,
)


def tensor(count: int, **fields: object) -> p.TensorInfo:
    return p.TensorInfo(F32, (count,), (0,), **fields)  # type: ignore[arg-type]


def add(target: str, count: int = 8, donate: bool = False, **fields: object) -> bytes:
    """f32[count] + f32[count]; `donate`: the first parameter may give its memory."""
    first = tensor(count, alias=0, donated=True) if donate else tensor(count)
    slots = [
        p.Slot(p.SlotKind.PARAMETER, 0, 0, 4 * count),
        p.Slot(p.SlotKind.PARAMETER, 1, 0, 4 * count),
        p.Slot(p.SlotKind.OUTPUT, 0, 0, 4 * count),
    ]
    launch = p.Launch(0, (0, 1, 2), struct.pack("<I", count), (count, 1, 1))
    return p.serialize(
        p.Program(
            name="add",
            target=target,
            fingerprint="add0123",
            parameters=[first, tensor(count)],
            outputs=[tensor(count)],
            preamble="#include <metal_stdlib>\nusing namespace metal;\n",
            kernels=[p.Kernel("k_add", ADD_SOURCE, ADD_PARAMS)],
            slots=slots,
            body=(launch,),
            flops=float(count),
            bytes_accessed=12.0 * count,
            text="module @add {}",
            **fields,  # type: ignore[arg-type]
        )
    )


def many_buffers(target: str, buffers: int, arguments: int) -> bytes:
    """A kernel with so many buffers and arguments, launched on one array of one element."""
    kinds = (p.ParamKind.INPUT,) * (buffers - 1) + (p.ParamKind.OUTPUT,) + (p.ParamKind.ARGS,) * arguments
    names = [f"device {'const ' if i < buffers - 1 else ''}float* b{i} [[buffer({i})]]" for i in range(buffers)]
    names += [f"constant uint& n{i} [[buffer({buffers + i})]]" for i in range(arguments)]
    total = " + ".join(f"*b{i}" for i in range(buffers - 1))
    source = f"kernel void k_many({', '.join(names)}) {{ *b{buffers - 1} = {total}; }}\n"
    return p.serialize(
        p.Program(
            name="many",
            target=target,
            fingerprint="many",
            parameters=[tensor(1)],
            outputs=[tensor(1)],
            preamble="#include <metal_stdlib>\nusing namespace metal;\n",
            kernels=[p.Kernel("k_many", source, kinds)],
            slots=[p.Slot(p.SlotKind.PARAMETER, 0, 0, 4), p.Slot(p.SlotKind.OUTPUT, 0, 0, 4)],
            body=(p.Launch(0, (0,) * (buffers - 1) + (1,), bytes(4 * arguments), (1, 1, 1)),),
            text="module @many {}",
        )
    )


def host_call(target: str, handler: str) -> bytes:
    """f32[1], computed by an FFI handler that has no operands."""
    return p.serialize(
        p.Program(
            name="host_call",
            target=target,
            fingerprint="host",
            parameters=[],
            outputs=[tensor(1)],
            preamble="",
            kernels=[],
            slots=[p.Slot(p.SlotKind.OUTPUT, 0, 0, 4)],
            body=(p.HostCall(handler, (), (p.HostArray(0, F32, (1,)),), struct.pack("<I", 0)),),
            text="module @host {}",
        )
    )


def copies(target: str, count: int = 4) -> bytes:
    """x -> (x, [1, 2, ...]): copies only, through the arena, with a constant. No kernel."""
    size = 4 * count
    slots = [
        p.Slot(p.SlotKind.PARAMETER, 0, 0, size),
        p.Slot(p.SlotKind.ARENA, 0, 256, size),
        p.Slot(p.SlotKind.OUTPUT, 0, 0, size),
        p.Slot(p.SlotKind.CONSTANT, 0, 0, size),
        p.Slot(p.SlotKind.OUTPUT, 1, 0, size),
    ]
    return p.serialize(
        p.Program(
            name="copies",
            target=target,
            fingerprint="copies",
            parameters=[tensor(count)],
            outputs=[tensor(count), tensor(count, memory_kind="pinned_host")],
            constants=[struct.pack(f"<{count}f", *range(1, count + 1))],
            slots=slots,
            arena_bytes=512,
            body=(p.Copy(0, 1), p.Copy(1, 2), p.Copy(3, 4)),
        )
    )


def library_call(target: str, op: p.LibraryOp | None = None, **fields: object) -> bytes:
    """f32[2,3] x f32[3,4] -> f32[2,4] as a library call, whose kernel does nothing; `fields`: other than these."""

    def view(*shape: int) -> p.LibraryView:
        return p.LibraryView(shape, tuple(range(len(shape))), shape)

    op = op or p.LibraryOp(p.LibraryKind.MATMUL, F32, view(1, 2, 3), view(1, 3, 4), view(1, 2, 4))
    source = "kernel void k_nothing(device float* out0 [[buffer(0)]], uint3 tid [[thread_position_in_grid]]) {}"
    params = (p.ParamKind.OUTPUT, p.ParamKind.THREAD_POSITION_IN_GRID)
    slots = [
        p.Slot(p.SlotKind.PARAMETER, 0, 0, 24),
        p.Slot(p.SlotKind.PARAMETER, 1, 0, 48),
        p.Slot(p.SlotKind.OUTPUT, 0, 0, 32),
    ]
    step = p.Library(**{"op": op, "slots": (0, 1, 2), "kernels": (p.Launch(0, (2,), b"", (1, 1, 1)),), **fields})  # type: ignore[arg-type]
    return p.serialize(
        p.Program(
            name="library_call",
            target=target,
            fingerprint="library",
            parameters=[tensor(6), tensor(12)],
            outputs=[tensor(8)],
            preamble="#include <metal_stdlib>\nusing namespace metal;\n",
            kernels=[p.Kernel("k_nothing", source, params)],
            slots=slots,
            body=(step,),
        )
    )


HEADER = struct.Struct("<4sIQQ")


def with_checksum(blob: bytes) -> bytes:
    """The blob with a header that fits its payload: what is corrupt gets past the checksum."""
    payload = blob[HEADER.size :]
    return HEADER.pack(p.MAGIC, p.VERSION, len(payload), zlib.crc32(payload)) + payload
