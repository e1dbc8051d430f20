"""PJRT_METAL_DUMP=dir: what each stage of the compiler made, one folder a program; and a Program as text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mlir_lowering.errors import CompileError
from mlir_lowering.graph import Graph
from mlir_lowering.program import (
    Case,
    Copy,
    HostCall,
    Label,
    Launch,
    Library,
    LibraryKind,
    LibraryOp,
    LibraryView,
    Program,
    Slot,
    SlotKind,
    Step,
    While,
)


class Dumper:
    """Writes into `folder`; does nothing if there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def text(self, name: str, make: Callable[[], str]) -> None:
        if self.folder is not None:
            (self.folder / name).write_text(make())

    def graph(self, name: str, graph: Graph) -> None:
        from mlir_lowering.text import print_graph

        self.text(f"{name}.txt", lambda: print_graph(graph))

    def program(self, program: Program) -> None:
        self.text("kernels.metal", lambda: kernels_text(program))
        self.text("plan.txt", lambda: program.text)


def open_dump(name: str, fingerprint: str) -> Dumper:
    """The folder for one program under $PJRT_METAL_DUMP; a Dumper that does nothing if that is not set."""
    root = os.environ.get("PJRT_METAL_DUMP")
    if not root:
        return Dumper(None)
    folder = Path(root) / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{fingerprint[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CompileError(f"PJRT_METAL_DUMP={root}: {error.strerror}: name a folder that can be written") from error
    return Dumper(folder)


def kernels_text(program: Program) -> str:
    """All kernels as one Metal source file, each under the label of its first launch."""
    labels: dict[int, Label] = {}
    for launch in _launches(program.body):
        labels.setdefault(launch.kernel, program.labels[launch.label])
    texts = [f"// {labels[number]}\n{kernel.source}" for number, kernel in enumerate(program.kernels)]
    return "\n".join([program.preamble, *texts])


def _launches(steps: tuple[Step, ...]) -> Iterator[Launch]:
    for step in steps:
        match step:
            case Launch():
                yield step
            case While():
                yield from _launches(step.condition)
                yield from _launches(step.body)
            case Case():
                for branch in step.branches:
                    yield from _launches(branch)
            case Library():
                yield from step.kernels


def program_text(program: Program) -> str:
    """The launch plan: parameters, memory, and every step with its kernel and slots."""
    lines = [f"program {program.name} for {program.target}"]
    for label, tensors in (("parameter", program.parameters), ("output", program.outputs)):
        for number, tensor in enumerate(tensors):
            alias = f" aliases output {tensor.alias}" if tensor.alias >= 0 else ""
            lines.append(f"  {label} {number}: {list(tensor.dims)} type {tensor.dtype}{alias}")
    lines.append(f"  arena: {program.arena_bytes} bytes")
    _steps(program, program.body, "  ", lines)
    return "\n".join(lines) + "\n"


def _slot(slot: Slot) -> str:
    match slot.kind:
        case SlotKind.ARENA:
            return f"arena+{slot.offset}[{slot.bytes}]"
        case kind:
            return f"{kind.name.lower()} {slot.index}[{slot.bytes}]"


def _steps(program: Program, steps: tuple[Step, ...], indent: str, lines: list[str]) -> None:
    def slots(numbers: tuple[int, ...]) -> str:
        return ", ".join(_slot(program.slots[n]) for n in numbers)

    for step in steps:
        match step:
            case Launch():
                kernel = program.kernels[step.kernel]
                grid = "x".join(map(str, step.threads))
                label = program.labels[step.label]
                lines.append(f"{indent}launch {kernel.name} [{grid}] {slots(step.slots)}  // {label}")
            case Copy():
                lines.append(f"{indent}copy {slots((step.source, step.destination))}")
            case While():
                trips = "" if step.trip_count < 0 else f" {step.trip_count} times"
                lines.append(f"{indent}while{trips} {slots((step.predicate,))}")
                _steps(program, step.condition, indent + "  ? ", lines)
                _steps(program, step.body, indent + "    ", lines)
            case Case():
                lines.append(f"{indent}case {slots((step.index,))}")
                for number, branch in enumerate(step.branches):
                    _steps(program, branch, f"{indent}  {number}: ", lines)
            case HostCall():
                arrays = tuple(array.slot for array in (*step.operands, *step.results))
                lines.append(f"{indent}host call {step.target} {slots(arrays)}")
            case Library():
                lines.append(f"{indent}library {_library_op(step.op)} {slots(step.slots)}")
                _steps(program, step.kernels, f"{indent}  or ", lines)


def _library_op(op: LibraryOp) -> str:
    def view(v: LibraryView) -> str:
        shape = "x".join(map(str, v.shape))
        if v.dims == v.shape and v.permutation == tuple(range(len(v.dims))):
            return shape
        return f"{shape} (of {'x'.join(map(str, v.dims))} by {','.join(map(str, v.permutation))})"

    text = f"{op.kind.name.lower()} {view(op.lhs)} * {view(op.rhs)} -> {view(op.result)}"
    if op.kind is LibraryKind.MATMUL:
        return text
    layouts = f"{op.data_layout.name} {op.weights_layout.name}"
    return f"{text} {layouts} stride {op.stride} dilation {op.dilation} padding {op.padding} groups {op.groups}"
