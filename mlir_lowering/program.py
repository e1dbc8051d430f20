"""The Program: what the compiler makes and the runtime executes, as plain data and as bytes.

Format (all little-endian; csrc/runtime/program.cc reads it and verifies every bound):

    header   magic b"PJMP", u32 version (=4), u64 size of the payload, u64 CRC-32 (zlib's) of the payload
    payload  str name, str target, str fingerprint,
             u32 num_replicas, u32 num_partitions,
             vec<tensor> parameters, vec<tensor> outputs,
             str preamble, vec<kernel> kernels, vec<label> labels, vec<bytes> constants, vec<slot> slots,
             u64 arena_bytes, sequence body, f64 flops, f64 transcendentals, f64 bytes_accessed, str text
    str, bytes  u64 length, then that many bytes
    vec<T>      u32 count, then T's
    tensor      u8 dtype, vec<i64> dims, vec<i64> minor_to_major, str memory_kind, i32 alias, u8 donated
    kernel      str name, str source, vec<u8> params, u8 on_host
    label       str op, str location, str schedule, str detail
    slot        u8 kind, u32 index, u64 offset, u64 bytes
    sequence    vec<step>
    step        u8 kind, then
      launch    u32 kernel, u32 label, vec<u32> slots, bytes args, u32 threads[3], u32 per_threadgroup[3],
                u64 work (innermost iterations of all threads at most: work.py; at least one a thread)
      copy      u32 source, u32 destination                          (slots of equal size)
      while     u32 predicate slot, sequence condition, sequence body, i64 trip_count (-1: unknown)
      case      u32 index slot, vec<sequence> branches
      hostcall  str target, vec<array> operands, vec<array> results, dictionary attributes
      library   u8 op kind, u8 dtype, view lhs, view rhs, view result,
                u32 stride[2], u32 dilation[2], u32 padding[4], u32 groups, u8 data layout, u8 weights layout,
                u32 slots[3] (lhs, rhs, result), sequence kernels (launches that do the same)
    view        vec<i64> dims, vec<u32> permutation, vec<i64> shape: row-major memory of `dims`, whose
                dimensions in the order of `permutation` are regrouped as `shape`, which the op takes or gives
    array       u32 slot, u8 dtype, vec<i64> dims                       (logical: in the layout that the call asked for)
    dictionary  u32 count, then by ascending name: str name, u8 kind, then
      array       (1) u8 dtype, bytes elements
      dictionary  (2) dictionary
      scalar      (3) u8 dtype, bytes element
      string      (4) str

A library call may be made, or its kernels launched: the runtime chooses, and both give the same result. Its op, on
arrays of one dtype (f32, f16 or bf16), is

    matmul            result[b,m,n] = sum over k of lhs[b,m,k] * rhs[b,k,n]
    convolution       result = convolution of the source lhs with the weights rhs, which are not reversed
    data gradient     result = gradient of the source, from that of a convolution's result, lhs, and its weights rhs
    weights gradient  result = gradient of the weights, from the source lhs and the gradient of the result rhs

The gradients' parameters are those of the convolution they belong to. Strides and dilations are given for height and
width, padding for top, bottom, left, right. Sources and results are NHWC or NCHW (data layout), weights HWIO or OIHW
(weights layout), where I is the input features of one group and the output features O are grouped.
"""

from __future__ import annotations

import enum
import math
import struct
import zlib
from dataclasses import dataclass, field

MAGIC = b"PJMP"
VERSION = 4
_MAX_WORK = 2**64 - 1


class ParamKind(enum.IntEnum):
    """Where a kernel parameter comes from (csrc/runtime/device.h has the same list)."""

    INPUT = 0
    OUTPUT = 1
    ARGS = 2
    THREAD_POSITION_IN_GRID = 3
    THREADGROUP_POSITION_IN_GRID = 4
    THREAD_POSITION_IN_THREADGROUP = 5
    THREAD_INDEX_IN_SIMDGROUP = 6
    SIMDGROUP_INDEX_IN_THREADGROUP = 7
    THREADS_PER_THREADGROUP = 8
    THREADGROUPS_PER_GRID = 9


class SlotKind(enum.IntEnum):
    PARAMETER = 0
    OUTPUT = 1
    CONSTANT = 2
    ARENA = 3


@dataclass(frozen=True)
class TensorInfo:
    dtype: int  # PJRT_Buffer_Type
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...]
    memory_kind: str = "device"
    alias: int = -1
    donated: bool = False


@dataclass(frozen=True)
class Kernel:
    name: str
    source: str
    params: tuple[ParamKind, ...]
    on_host: bool = False


@dataclass(frozen=True)
class Slot:
    kind: SlotKind
    index: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class Label:
    """What a launch is for, for people: logs, errors, captures, profilers. No part of its kernel, which other programs
    and other shapes share.

    `op`: the StableHLO op that heads its group; `location`: the user's source line, "" if unknown; `schedule`: the loop
    nest; `detail`: what it computes over which shapes, and how threads map to elements.
    """

    op: str = ""
    location: str = ""
    schedule: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return "; ".join(filter(None, (self.op, self.location, self.schedule, self.detail)))


@dataclass(frozen=True)
class Launch:
    kernel: int
    slots: tuple[int, ...]
    args: bytes
    threads: tuple[int, int, int]
    per_threadgroup: tuple[int, int, int] = (0, 0, 0)
    work: int = 0  # innermost iterations of all threads at most; fewer than threads: one each
    label: int = 0


@dataclass(frozen=True)
class Copy:
    source: int
    destination: int


@dataclass(frozen=True)
class While:
    predicate: int
    condition: tuple[Step, ...]
    body: tuple[Step, ...]
    trip_count: int = -1


@dataclass(frozen=True)
class Case:
    index: int
    branches: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class HostArray:
    slot: int
    dtype: int
    dims: tuple[int, ...]


@dataclass(frozen=True)
class HostCall:
    target: str
    operands: tuple[HostArray, ...]
    results: tuple[HostArray, ...]
    attributes: bytes  # a dictionary, as above


class LibraryKind(enum.IntEnum):
    MATMUL = 0
    CONVOLUTION = 1
    DATA_GRADIENT = 2
    WEIGHTS_GRADIENT = 3


class DataLayout(enum.IntEnum):
    NCHW = 0
    NHWC = 1


class WeightsLayout(enum.IntEnum):
    OIHW = 0
    HWIO = 1


@dataclass(frozen=True)
class LibraryView:
    dims: tuple[int, ...]
    permutation: tuple[int, ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LibraryOp:
    kind: LibraryKind
    dtype: int  # PJRT_Buffer_Type
    lhs: LibraryView
    rhs: LibraryView
    result: LibraryView
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1
    data_layout: DataLayout = DataLayout.NCHW
    weights_layout: WeightsLayout = WeightsLayout.OIHW


@dataclass(frozen=True)
class Library:
    op: LibraryOp
    slots: tuple[int, int, int]
    kernels: tuple[Launch, ...]


Step = Launch | Copy | While | Case | HostCall | Library


@dataclass
class Program:
    name: str
    target: str
    fingerprint: str
    parameters: list[TensorInfo]
    outputs: list[TensorInfo]
    preamble: str = ""  # MSL in front of the kernels in every compilation unit
    kernels: list[Kernel] = field(default_factory=list)
    labels: list[Label] = field(default_factory=lambda: [Label()])
    constants: list[bytes] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)
    arena_bytes: int = 0
    body: tuple[Step, ...] = ()
    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_accessed: float = 0.0
    num_replicas: int = 1
    num_partitions: int = 1
    text: str = ""


class _Writer:
    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def pack(self, layout: str, *values: float) -> None:
        self.parts.append(struct.pack("<" + layout, *values))

    def blob(self, data: bytes) -> None:
        self.pack("Q", len(data))
        self.parts.append(data)

    def text(self, text: str) -> None:
        self.blob(text.encode())

    def vector(self, layout: str, values: tuple[int, ...]) -> None:
        self.pack(f"I{len(values)}{layout}", len(values), *values)

    def tensor(self, tensor: TensorInfo) -> None:
        self.pack("B", tensor.dtype)
        self.vector("q", tensor.dims)
        self.vector("q", tensor.minor_to_major)
        self.text(tensor.memory_kind)
        self.pack("iB", tensor.alias, tensor.donated)

    def sequence(self, steps: tuple[Step, ...]) -> None:
        self.pack("I", len(steps))
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        match step:
            case Launch():
                self.pack("BII", 0, step.kernel, step.label)
                self.vector("I", step.slots)
                self.blob(step.args)
                self.pack("6I", *step.threads, *step.per_threadgroup)
                self.pack("Q", min(max(step.work, math.prod(step.threads)), _MAX_WORK))
            case Copy():
                self.pack("BII", 1, step.source, step.destination)
            case While():
                self.pack("BI", 2, step.predicate)
                self.sequence(step.condition)
                self.sequence(step.body)
                self.pack("q", step.trip_count)
            case Case():
                self.pack("BII", 3, step.index, len(step.branches))
                for branch in step.branches:
                    self.sequence(branch)
            case HostCall():
                self.pack("B", 4)
                self.text(step.target)
                for arrays in (step.operands, step.results):
                    self.pack("I", len(arrays))
                    for array in arrays:
                        self.pack("IB", array.slot, array.dtype)
                        self.vector("q", array.dims)
                self.parts.append(step.attributes)
            case Library():
                self.pack("B", 5)
                self.library_op(step.op)
                self.pack("3I", *step.slots)
                self.sequence(step.kernels)

    def library_op(self, op: LibraryOp) -> None:
        self.pack("BB", op.kind, op.dtype)
        for view in (op.lhs, op.rhs, op.result):
            self.vector("q", view.dims)
            self.vector("I", view.permutation)
            self.vector("q", view.shape)
        self.pack("9I", *op.stride, *op.dilation, *op.padding, op.groups)
        self.pack("BB", op.data_layout, op.weights_layout)


def serialize(program: Program) -> bytes:
    """The Program's bytes, in the format described at the top of this module."""
    writer = _Writer()
    writer.text(program.name)
    writer.text(program.target)
    writer.text(program.fingerprint)
    writer.pack("II", program.num_replicas, program.num_partitions)
    for tensors in (program.parameters, program.outputs):
        writer.pack("I", len(tensors))
        for tensor in tensors:
            writer.tensor(tensor)
    writer.text(program.preamble)
    writer.pack("I", len(program.kernels))
    for kernel in program.kernels:
        writer.text(kernel.name)
        writer.text(kernel.source)
        writer.vector("B", kernel.params)
        writer.pack("B", kernel.on_host)
    writer.pack("I", len(program.labels))
    for label in program.labels:
        for text in (label.op, label.location, label.schedule, label.detail):
            writer.text(text)
    writer.pack("I", len(program.constants))
    for constant in program.constants:
        writer.blob(constant)
    writer.pack("I", len(program.slots))
    for slot in program.slots:
        writer.pack("BIQQ", slot.kind, slot.index, slot.offset, slot.bytes)
    writer.pack("Q", program.arena_bytes)
    writer.sequence(program.body)
    writer.pack("ddd", program.flops, program.transcendentals, program.bytes_accessed)
    writer.text(program.text)
    payload = b"".join(writer.parts)
    return MAGIC + struct.pack("<IQQ", VERSION, len(payload), zlib.crc32(payload)) + payload
