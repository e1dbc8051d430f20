"""The map of the compiler: its stages in order, each from one representation to the next.

    artifact --decode--> Module --normalize--> Module --build--> Graph --passes--> Graph
        --sequence (fusion, schedules)--> Sequence of kernel calls --plan--> slots and steps --> Program --> bytes

PJRT_METAL_DUMP=dir writes what each stage made into dir/<name>-<fingerprint>/.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import mlir_lowering.ops
from mlir_lowering import compile_process, dump, importer, msl
from mlir_lowering.compile_process import Log
from mlir_lowering.cost import analyze
from mlir_lowering.errors import CompileError
from mlir_lowering.graph import Graph, released
from mlir_lowering.options import CompileOptions, read_options
from mlir_lowering.passes import PASSES
from mlir_lowering.passes.layouts import logical_shape
from mlir_lowering.plan import BufferPlan, plan
from mlir_lowering.program import Program, TensorInfo, serialize
from mlir_lowering.sequence import Sequence, build_sequence
from mlir_lowering.targets import Target, parse_target
from mlir_lowering.verify import enabled as verifies
from mlir_lowering.verify.graph import verify_graph
from mlir_lowering.verify.plan import verify_plan
from mlir_lowering.version import compiler_version

assert mlir_lowering.ops  # imported for the registry it fills


def _no_log(phase: str, milliseconds: float, detail: str) -> None:
    pass


def compile_artifact(
    code: bytes, format: str, options: bytes, target: str, trusted: bool = True, log: Log = _no_log
) -> bytes:
    """A Program's bytes for a StableHLO portable artifact (or MLIR text) and a CompileOptionsProto.

    `format` must be "mlir". An artifact that is not `trusted` is compiled in another process. Raises
    CompileError for a program or option that is wrong or not supported.
    """
    if format != "mlir":
        raise CompileError(f"the program's format is {format!r}: this compiler reads mlir")
    if not trusted:
        return compile_process.compile(code, options, target, log)
    try:
        return serialize(compile_program(code, read_options(options), parse_target(target), log))
    except RecursionError as error:
        raise CompileError("the program's regions or attributes are nested too deep for the compiler") from error


def compile_program(code: bytes, options: CompileOptions, target: Target, log: Log = _no_log) -> Program:
    """The stages, in order. Leaves no reference cycles behind."""
    with released():
        return _compile(code, options, target, log)


def _compile(code: bytes, options: CompileOptions, target: Target, log: Log) -> Program:
    clock = _Clock(log)
    fingerprint = _fingerprint(code, options, target)

    with importer.lock:
        module = clock.time("decode", importer.decode, code)
        module = clock.time("normalize", importer.normalize, module)
        graph = clock.time("import", importer.build, module)
        dumper = dump.open_dump(graph.name, fingerprint)
        dumper.text("stablehlo.mlir", lambda: str(module))
    dumper.graph("00-import", graph)
    if verifies():
        verify_graph(graph, "import")

    for number, (name, run) in enumerate(PASSES, 1):
        clock.time(name, run, graph, target)
        dumper.graph(f"{number:02}-{name}", graph)
        if verifies():
            verify_graph(graph, f"pass {name}")

    sequence = clock.time("fuse and schedule", build_sequence, graph, target)
    buffers = clock.time("plan", plan, graph, sequence)
    if verifies():
        clock.time("verify plan", verify_plan, graph, sequence, buffers)
    program = _assemble(graph, buffers, sequence, target, fingerprint)
    dumper.program(program)
    return program


def _fingerprint(code: bytes, options: CompileOptions, target: Target) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in (compiler_version(), target.text, repr(options), code):
        data = part if isinstance(part, bytes) else part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _assemble(graph: Graph, buffers: BufferPlan, sequence: Sequence, target: Target, fingerprint: str) -> Program:
    def layout(rank: int, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
        return tuple(reversed(range(rank))) if wanted is None else wanted

    parameters = [
        TensorInfo(
            arg.dtype.code,
            logical_shape(arg.shape, info.layout),
            layout(len(arg.shape), info.layout),
            info.memory_kind,
            buffers.aliases.get(number, -1),
            info.donated,
        )
        for number, (arg, info) in enumerate(zip(graph.args, graph.arguments, strict=True))
    ]
    outputs = [
        TensorInfo(
            value.dtype.code,
            logical_shape(value.shape, wanted),
            layout(len(value.shape), wanted),
            kind,
        )
        for value, wanted, kind in zip(graph.outputs, graph.output_layouts, graph.output_memory_kinds, strict=True)
    ]
    cost = analyze(graph)
    program = Program(
        name=graph.name,
        target=target.text,
        fingerprint=fingerprint,
        parameters=parameters,
        outputs=outputs,
        preamble=msl.PREAMBLE,
        kernels=buffers.kernels,
        labels=list(buffers.labels),
        constants=buffers.constants,
        slots=buffers.slots,
        arena_bytes=buffers.arena_bytes,
        body=buffers.body,
        flops=cost.flops,
        transcendentals=cost.transcendentals,
        bytes_accessed=cost.bytes_accessed,
        num_replicas=graph.num_replicas,
        num_partitions=graph.num_partitions,
    )
    program.text = dump.program_text(program)
    return program


class _Clock:
    def __init__(self, log: Log) -> None:
        self.log = log

    def time(self, phase: str, stage: Callable[..., Any], *args: Any) -> Any:
        start = time.perf_counter()
        result = stage(*args)
        self.log(f"compile: {phase}", (time.perf_counter() - start) * 1e3, "")
        return result
