"""Groups (what fusion puts into one kernel) and kernel calls (what a schedule makes of a group)."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from mlir_lowering.emit import Emitter
from mlir_lowering.graph import Op, Value
from mlir_lowering.msl import USE_FAR_FUNCTIONS, with_functions
from mlir_lowering.program import Kernel, Label, ParamKind
from mlir_lowering.targets import Target
from mlir_lowering.work import Cut, Threads, cut


@dataclass
class Group:
    """Ops that become one schedule's loop nest.

    `outputs`: the values it must write to memory, all of one shape unless the head says otherwise. `inlined`: ops
    evaluated inside. `head`: the op whose schedule is the loop nest (its operands may be inlined producers, its
    results may be consumed by inlined pointwise ops, the epilogue); None for a plain pointwise nest. `siblings`: more
    heads that share the loop nest.
    """

    outputs: list[Value]
    inlined: set[Op]
    head: Op | None = None
    siblings: list[Op] = field(default_factory=list)

    @property
    def on_host(self) -> bool:
        """Whether the group touches types that Metal has no arithmetic for."""
        ops = [*self.inlined, *self.siblings, *([self.head] if self.head else [])]
        return any(v.dtype.on_host for op in ops for v in (*op.operands, *op.results))

    def emitter(self, target: Target) -> Emitter:
        return Emitter(target, self.inlined)


@dataclass
class KernelCall:
    """One kernel and one launch of it, with values where the Program will have slots.

    `buffers` are in the order of the kernel's buffer parameters. `updates` maps an output that the kernel changes
    only in part to the value its memory must hold before (scatter, dynamic_update_slice): the buffer plan gives
    both the same memory or inserts a copy. `same_index`: inputs read only at the very offset that is written, so an
    output may take their memory. Values that occur in no graph are temporaries of the schedule.
    """

    kernel: Kernel
    buffers: list[Value]
    args: bytes
    threads: tuple[int, int, int]
    per_threadgroup: tuple[int, int, int] = (0, 0, 0)
    updates: dict[Value, Value] = field(default_factory=dict)
    same_index: frozenset[Value] = frozenset()
    # What the launch does at most, in innermost iterations (work.py), and its loops that have no bound.
    work: int = 0
    unbounded: tuple[str, ...] = ()
    label: Label = field(default_factory=Label)
    # The launches that it is made in, if one would take a GPU too long: argument bytes and threads of each.
    parts: tuple[tuple[bytes, Threads], ...] = ()

    def launches(self) -> list[KernelCall]:
        """The call, or those of its parts. All write the same values; the first finds what was there before."""
        calls = []
        for number, (args, threads) in enumerate(self.parts):
            work = self.work * math.prod(threads) // math.prod(self.threads)
            updates = {} if number else self.updates
            calls.append(replace(self, args=args, threads=threads, updates=updates, work=work, parts=()))
        return calls or [self]


Schedule = Callable[[Group, Target], list[KernelCall]]


@dataclass(frozen=True)
class ScheduleDef:
    """A loop nest that an op can head.

    `reads(op, i)`: how often, on average, the nest evaluates an element of operand i if its producer is inlined;
    None if the operand must be in memory. `epilogue`: pointwise consumers may be evaluated where a result is stored.
    """

    emit: Schedule
    reads: Callable[[Op, int], float | None]
    epilogue: bool = False


_BUILTINS = {
    ParamKind.THREAD_POSITION_IN_GRID: "uint3 {} [[thread_position_in_grid]]",
    ParamKind.THREADGROUP_POSITION_IN_GRID: "uint3 {} [[threadgroup_position_in_grid]]",
    ParamKind.THREAD_POSITION_IN_THREADGROUP: "uint3 {} [[thread_position_in_threadgroup]]",
    ParamKind.THREAD_INDEX_IN_SIMDGROUP: "uint {} [[thread_index_in_simdgroup]]",
    ParamKind.SIMDGROUP_INDEX_IN_THREADGROUP: "uint {} [[simdgroup_index_in_threadgroup]]",
    ParamKind.THREADS_PER_THREADGROUP: "uint3 {} [[threads_per_threadgroup]]",
    ParamKind.THREADGROUPS_PER_GRID: "uint3 {} [[threadgroups_per_grid]]",
}

# The cost of functions that a kernel of the software device inlines: some eight tanh. The host's compiler takes about a
# millisecond a unit of it.
MAX_INLINED = 100

THREAD_POSITION = ((ParamKind.THREAD_POSITION_IN_GRID, "tid"),)


def kernel_call(
    emitter: Emitter,
    outputs: Sequence[Value],
    detail: str,
    threads: tuple[int, int, int],
    *,
    per_threadgroup: tuple[int, int, int] = (0, 0, 0),
    builtins: Sequence[tuple[ParamKind, str]] = THREAD_POSITION,
    restrict: bool = True,
    args: tuple[str, bytes] | None = None,
    updates: dict[Value, Value] | None = None,
    same_index: frozenset[Value] = frozenset(),
    work: int | None = None,
) -> KernelCall:
    """The kernel whose body `emitter` holds, writing `outputs` as out0, out1, ..., and its launch.

    `detail`: what the launch computes and how threads map to elements, for its label. `restrict`: no output shares
    memory with an input. `args`: the declaration of the launch's argument bytes, such as "constant uint& n", and these.
    `work`: what the launch does (work.py), if the schedule knows better than its loops' bounds.
    The kernel's name is a hash of its text, so equal kernels are one, whatever they are launched for.
    """
    pointer = "* __restrict" if restrict else "*"
    params: list[ParamKind] = []
    texts: list[str] = []

    def buffer(text: str, kind: ParamKind) -> None:
        texts.append(f"{text} [[buffer({len(params)})]]")
        params.append(kind)

    for value, name in emitter.inputs.items():
        buffer(f"device const {value.dtype.msl}{pointer} {name}", ParamKind.INPUT)
    for number, value in enumerate(outputs):
        emitter.use(value.dtype)
        buffer(f"device {value.dtype.msl}{pointer} out{number}", ParamKind.OUTPUT)
    total = emitter.work.launch(threads) if work is None else work
    parts = None if emitter.target.is_software else cut(total, threads, per_threadgroup)
    declaration, arg_bytes = args or ("", b"")
    first: list[str] = []
    if parts is not None:
        declaration, first, builtins = _from_origin(parts, declaration, builtins)
    if declaration:
        buffer(declaration, ParamKind.ARGS)
    for kind, name in builtins:
        texts.append(_BUILTINS[kind].format(name))
        params.append(kind)

    signature = ",\n    ".join(texts)
    far = [f"  {USE_FAR_FUNCTIONS}"] if emitter.target.is_software and emitter.function_cost > MAX_INLINED else []
    body = "\n".join([*far, *first, *emitter.lines])
    text = f"kernel void NAME(\n    {signature}) {{\n{body}\n}}\n"
    name = "k_" + hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    source = with_functions(text.replace("NAME", name), emitter.on_host)
    kernel = Kernel(name, source, tuple(params), emitter.on_host)
    buffers = [*emitter.inputs, *outputs]
    call = KernelCall(kernel, buffers, arg_bytes, threads, per_threadgroup, updates or {}, same_index)
    call.label = Label(detail=detail)
    call.work = total
    call.unbounded = () if work is not None else tuple(emitter.work.unbounded)
    if parts is not None:
        call.parts = tuple(_parts(parts, builtins, arg_bytes, threads))
    return call


# Where a thread or threadgroup stands in the launch.
_PLACES = (ParamKind.THREAD_POSITION_IN_GRID, ParamKind.THREADGROUP_POSITION_IN_GRID)


def _from_origin(
    cut: Cut, declaration: str, builtins: Sequence[tuple[ParamKind, str]]
) -> tuple[str, list[str], list[tuple[ParamKind, str]]]:
    """The declaration of arguments, the first lines and the builtins of a kernel that is launched in parts: the first
    argument says where a part begins."""
    lines = []
    if declaration:
        type, _, argument = declaration.partition("& ")
        assert type == "constant int", declaration
        lines.append(f"  const int {argument} = part[1];")
    origin = ", ".join("uint(part[0])" if axis == cut.axis else "0u" for axis in range(3))
    named: list[tuple[ParamKind, str]] = []
    for kind, name in builtins:
        moved = kind in _PLACES
        if moved:
            lines.append(f"  const uint3 {name} = {name}_in_part + uint3({origin});")
        named.append((kind, f"{name}_in_part" if moved else name))
    return "constant int* part", lines, named


def _parts(
    cut: Cut, builtins: Sequence[tuple[ParamKind, str]], args: bytes, threads: Threads
) -> Iterator[tuple[bytes, Threads]]:
    """The arguments and threads of each part."""
    groups = any(kind is ParamKind.THREADGROUP_POSITION_IN_GRID for kind, _ in builtins)
    for begin in range(0, threads[cut.axis], cut.length):
        count = min(cut.length, threads[cut.axis] - begin)
        x, y, z = (count if axis == cut.axis else n for axis, n in enumerate(threads))
        yield struct.pack("<i", begin // cut.unit if groups else begin) + args, (x, y, z)
