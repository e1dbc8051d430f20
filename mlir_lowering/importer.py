"""From a StableHLO artifact to a Graph: decode, normalize, and one walk.

The walk inlines calls and the decompositions of composites that have no record in the op registry, drops what only
directs XLA's partitioner (sdy), and refuses what the compiler does not know, naming the op, its types and the
user's source line.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir import passmanager
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

from mlir_lowering import attributes, host_calls
from mlir_lowering.constants import constant_array
from mlir_lowering.dtypes import BY_NAME, PRED, U32
from mlir_lowering.errors import RESOURCE_EXHAUSTED, CompileError, unsupported
from mlir_lowering.graph import ArgumentInfo, Graph, Op, Region, TensorType, Value
from mlir_lowering.registry import OPS

# First bytes of MLIR bytecode, which portable artifacts are.
_BYTECODE = b"ML\xefR"
# Index arithmetic in kernels is 32 bits wide, and goes past the end by up to a thread's strip.
MAX_ELEMENTS = 2**31 - 2**16
# What one MLIR context reads before it makes place for another.
CONTEXT_BYTES = 1 << 20
# Calls inside calls: deeper is a program that calls itself.
MAX_CALLS = 200

# Ops and custom calls that return their operands: they direct XLA's partitioner or its layouts.
_IDENTITY = frozenset({"sdy.sharding_constraint"})
_IDENTITY_CALLS = frozenset({"Sharding", "LayoutConstraint", "annotate_device_placement"})
_TOKEN = "!stablehlo.token"
_SKIPPED = frozenset({"sdy.mesh"})
# Replicas or partitions, as a Program can say.
_MOST_PARTS = 2**31 - 1

_T = TypeVar("_T")


class SourceLine:
    """Where an op comes from; its text is made only when somebody reads it.

    jax leaves functions of its own without lines: there the line of the innermost call that has one is the op's.
    """

    __slots__ = ("_caller", "_location")

    def __init__(self, location: ir.Location, caller: SourceLine | None) -> None:
        self._location = location
        self._caller = caller

    def __str__(self) -> str:
        text = str(self._location)
        found = re.search(r'"([^"]*)":(\d+):(\d+)', text)
        if found is None and self._caller is not None:
            return str(self._caller)
        name = re.match(r'loc\("([^"]*)"', text)
        line = f"{found[1]}:{found[2]}" if found else ""
        return " ".join(filter(None, [line, f"({name[1]})" if name and "/" in name[1] else ""]))

    def __bool__(self) -> bool:
        return bool(str(self))


class _SharedContext:
    """One MLIR context for all programs: making one takes longer than reading a small program.

    A context keeps every attribute it has seen, constants too: it is replaced when it has read CONTEXT_BYTES.
    """

    def __init__(self) -> None:
        self.context: ir.Context | None = None
        self.bytes_read = 0

    def get(self, size: int) -> ir.Context:
        if self.context is None or self.bytes_read > CONTEXT_BYTES:
            self.context = _new_context()
            self.bytes_read = 0
        self.bytes_read += size
        return self.context


_shared = _SharedContext()
# Held while a module is decoded and walked: a context tells all its diagnostics to whoever listens.
lock = threading.RLock()


def _new_context() -> ir.Context:
    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    sdy.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    return context


def decode(code: bytes) -> ir.Module:
    """The MLIR module of a portable artifact or of MLIR text, verified; the caller holds `lock`.

    Raises CompileError with MLIR's words.
    """
    context = _shared.get(len(code))
    said: list[str] = []

    def note(diagnostic: ir.Diagnostic) -> bool:
        try:
            said.append(f"{diagnostic.location}: {diagnostic.message}")
        except RuntimeError:  # not UTF-8, in a corrupt program
            said.append("(a message that is not text)")
        return True

    handler = context.attach_diagnostic_handler(note)
    try:
        if code.startswith(_BYTECODE):
            module = stablehlo.deserialize_portable_artifact(context, code)
        else:
            module = ir.Module.parse(code, context)
        if module is not None and not module.operation.verify():
            module = None
    except Exception as error:
        reason = "\n".join([str(error), *said])
        raise CompileError(f"the program is not a valid StableHLO module: {reason}") from error
    finally:
        handler.detach()
    if module is None:
        raise CompileError("the program is not a valid StableHLO module: " + "\n".join(said))
    return module


def normalize(module: ir.Module) -> ir.Module:
    """Replaces chlo ops, which only hand-written text has (artifacts carry composites), by StableHLO."""
    if not any(_mentions_chlo(op) for op in module.body.operations):
        return module
    stablehlo.register_stablehlo_passes()
    mhlo.register_mhlo_passes()
    try:
        passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))", module.context).run(
            module.operation
        )
    except ir.MLIRError as error:
        raise CompileError(f"chlo ops cannot be legalized: {error}") from error
    return module


def _mentions_chlo(op: ir.OpView) -> bool:
    if op.operation.name.startswith("chlo."):
        return True
    blocks = (block for region in op.operation.regions for block in region.blocks)
    return any(_mentions_chlo(inner) for block in blocks for inner in block.operations)


def build(module: ir.Module) -> Graph:
    """The Graph of the module's entry function, `main` or its only public one."""
    importer = _Importer(module)
    try:
        return importer.graph()
    except (RuntimeError, UnicodeDecodeError) as error:
        if isinstance(error, RecursionError):
            raise
        # jaxlib's bindings, which read names: nothing here raises it.
        raise CompileError(f"{importer.reading} has a name that is no text (UTF-8): {error}") from error


class _Importer:
    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self.reading = "the module"  # what is read just now
        self.functions: dict[str, Any] = {}
        self.types: dict[Any, TensorType] = {}
        self.attrs: dict[Any, Any] = {}
        self.calls = 0
        self.inside_kernels = 0  # regions around that are evaluated in kernels, such as a reduction's body
        self.caller: SourceLine | None = None  # of the function that is being inlined

    def graph(self) -> Graph:
        for op in self.module.body.operations:
            name = op.operation.name
            if name == "func.func":
                self.functions[op.name.value] = op
            elif name not in _SKIPPED:
                raise unsupported(f"{name} in a module", str(self.source(op)))
        main = self.functions.get("main")
        if main is None:
            public = [f for f in self.functions.values() if f.visibility.value == "public"]
            if len(public) != 1:
                raise CompileError("the program has no function called main")
            (main,) = public
        attributes_of_module = self.module.operation.attributes
        name = "main"
        if "sym_name" in attributes_of_module:
            name = attributes_of_module["sym_name"].value
        graph = Graph(name=name)
        for label, field in (
            ("mhlo.num_replicas", "num_replicas"),
            ("mhlo.num_partitions", "num_partitions"),
        ):
            if label in attributes_of_module:
                number = self.attribute(attributes_of_module, label, self.module.operation)
                if not isinstance(number, int) or not 1 <= number <= _MOST_PARTS:
                    raise CompileError(f"the program's {label} is {number!r}: expected a number of at least 1")
                setattr(graph, field, number)
        block = _only_block(main)
        values: dict[Any, Value] = {}
        for argument in block.arguments:
            value = Value(self.type(argument.type, main))
            values[argument] = value
            graph.args.append(value)
        arguments = self.dictionaries(main, "arg_attrs", len(graph.args))
        graph.arguments = [_argument_info(info) for info in arguments]
        self.block(block, graph, values)
        results = self.dictionaries(main, "res_attrs", len(graph.outputs))
        graph.output_memory_kinds = [_entry(info, "mhlo.memory_kind", "device") for info in results]
        graph.output_layouts = [_layout(_entry(info, "mhlo.layout_mode", "default")) for info in results]
        _check_layouts(graph)
        return graph

    def source(self, op: Any) -> SourceLine:
        return SourceLine(op.location, self.caller)

    def type(self, type: ir.Type, op: Any) -> TensorType:
        known = self.types.get(type)
        if known is not None:
            return known
        loc = str(self.source(op))
        if str(type) == _TOKEN:
            # Tokens order what has effects, which keeps its order anyway; jax passes them as empty arrays.
            known = self.types[type] = TensorType((0,), PRED)
            return known
        if not isinstance(type, ir.RankedTensorType):
            raise unsupported(f"values of type {type} (in {op.operation.name})", loc)
        dtype = BY_NAME.get(str(type.element_type))
        if dtype is None:
            raise unsupported(f"elements of type {type.element_type}", loc)
        if not type.has_static_shape:
            raise unsupported(
                f"the dynamic shape {type} (in {op.operation.name})",
                loc,
                "jit with shapes that are known when the program is compiled",
            )
        known = TensorType(tuple(type.shape), dtype)
        if min(known.shape, default=0) < 0:
            raise CompileError(f"{op.operation.name} has a value of type {type}: no dimension is negative\n  at {loc}")
        # Empty arrays too: an index of one dimension has to be a number.
        if math.prod(d or 1 for d in known.shape) > MAX_ELEMENTS:
            raise CompileError(
                f"{op.operation.name} has a value of type {known} ({known.size} elements, {known.bytes} bytes):"
                f" arrays have at most {MAX_ELEMENTS} elements\n  at {loc}",
                RESOURCE_EXHAUSTED,
            )
        self.types[type] = known
        return known

    def attribute(self, found: Any, name: str, op: Any) -> Any:
        """The attribute of an op that is called `name` in `found`, as Python data."""
        try:
            # By name: NamedAttribute.attr ends the process where Python has no class for a value.
            attr = found[name]
            known = self.attrs.get(attr)
            if known is None:
                known = self.attrs[attr] = attributes.convert(attr)
            return known
        except attributes.UNREADABLE as error:
            what = f"the attribute {name} of {op.operation.name}, which cannot be read: {attributes.reason(error)}"
            raise unsupported(what, str(self.source(op))) from error

    def dictionaries(self, function: Any, name: str, count: int) -> list[dict[str, Any]]:
        """One dictionary of attributes an argument or result."""
        if name not in function.attributes:
            return [{}] * count
        found: list[dict[str, Any]] = list(self.attribute(function.attributes, name, function))
        return found

    def op_attributes(self, op: Any) -> dict[str, Any]:
        found = op.operation.attributes
        return {name: self.attribute(found, name, op) for name in found if name not in attributes.IGNORED}

    def block(self, block: Any, region: Region, values: dict[Any, Value]) -> None:
        """Appends a block's ops to `region` and sets its outputs to what the block returns."""
        for op in block.operations:
            operation = op.operation
            self.reading = name = operation.name
            operands = [values[v] for v in operation.operands]
            if name in ("stablehlo.return", "func.return"):
                region.outputs = operands
                return
            results = self.op(op, name, operands, region, values)
            values.update(zip(operation.results, results, strict=True))
        raise CompileError("a block does not end with a return")

    def op(self, op: Any, name: str, operands: list[Value], region: Region, values: dict[Any, Value]) -> list[Value]:
        """The values of an op's results."""
        handler = _SPECIAL.get(name)
        if handler is not None:
            return handler(self, op, operands, region)
        if name in _IDENTITY:
            return operands
        loc = self.source(op)
        operation = op.operation
        types = [self.type(result.type, op) for result in operation.results]
        if name not in OPS:
            raise unsupported(Op(name, operands, types).signature(), str(loc))
        for type in (*types, *(v.type for v in operands)):
            if not type.dtype.msl:
                what = f"{Op(name, operands, types).signature()}: arithmetic on {type.dtype}"
                raise unsupported(what, str(loc), "use f16, bf16 or f32")
        self.inside_kernels += OPS[name].control is None
        regions = [self.region(inner, op, values) for inner in operation.regions]
        self.inside_kernels -= OPS[name].control is None
        made = Op(name, operands, types, self.op_attributes(op), regions, loc)
        region.ops.append(made)
        return made.results

    def region(self, inner: Any, op: Any, values: dict[Any, Value]) -> Region:
        if len(inner.blocks) != 1:
            raise unsupported(f"{op.operation.name} with branches", str(self.source(op)))
        block = inner.blocks[0]
        region = Region()
        for argument in block.arguments:
            value = Value(self.type(argument.type, op))
            values[argument] = value
            region.args.append(value)
        self.block(block, region, values)
        return region

    def call(self, function: str, op: Any, operands: list[Value], region: Region) -> list[Value]:
        """Inlines a function of the module."""
        callee = self.functions.get(function)
        if callee is None:
            raise CompileError(f"the program calls {function}, which it does not define")
        outer, self.caller = self.caller, self.source(op)
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise CompileError(f"{function} calls itself, or calls are nested too deep")
        block = _only_block(callee)
        inlined = Region()
        self.block(block, inlined, dict(zip(block.arguments, operands, strict=True)))
        self.calls -= 1
        self.caller = outer
        region.ops += inlined.ops
        return inlined.outputs

    def composite(self, op: Any, operands: list[Value], region: Region) -> list[Value]:
        """A composite that has a record is one op; another is its decomposition."""
        attrs = self.op_attributes(op)
        name = attrs["name"]
        types = [self.type(result.type, op) for result in op.operation.results]
        # MLIR knows nothing of a composite's types: the records' functions are of one real number.
        fits = len(operands) == 1 and types == [operands[0].type] and operands[0].dtype.is_float
        if name not in OPS or not name.startswith("chlo.") or not fits or not operands[0].dtype.msl:
            return self.call(attrs["decomposition"], op, operands, region)
        made = Op(name, operands, types, loc=self.source(op))
        region.ops.append(made)
        return made.results

    def custom_call(self, op: Any, operands: list[Value], region: Region) -> list[Value]:
        operation = op.operation
        attrs = self.op_attributes(op)
        target = attrs["call_target_name"]
        if target in _IDENTITY_CALLS:
            return operands
        loc = self.source(op)
        dictionary = host_calls.ffi_dictionary(operation, target, str(loc))
        if attrs.get("called_computations"):
            raise unsupported(f'the custom call "{target}" with computations', str(loc))
        types = [self.type(result.type, op) for result in operation.results]
        tokens = (
            tuple(str(v.type) == _TOKEN for v in operation.operands),
            tuple(str(v.type) == _TOKEN for v in operation.results),
        )
        return host_calls.host_call(target, operands, types, tokens, attrs, dictionary, region, loc)

    def barrier(self, op: Any, operands: list[Value], region: Region) -> list[Value]:
        """Opaque, of any types; a barrier among the scalars of one kernel separates nothing."""
        if self.inside_kernels:
            return operands
        made = Op(op.operation.name, operands, [v.type for v in operands], loc=self.source(op))
        region.ops.append(made)
        return made.results

    def token(self, op: Any, operands: list[Value], region: Region) -> list[Value]:
        type = self.type(op.operation.results[0].type, op)
        made = Op("stablehlo.constant", [], [type], {"value": np.zeros((0,), np.bool_)}, loc=self.source(op))
        region.ops.append(made)
        return made.results

    def constant(self, op: Any, operands: list[Value], region: Region) -> list[Value]:
        type = self.type(op.operation.results[0].type, op)
        made = Op("stablehlo.constant", [], [type], {"value": constant_array(op, type)}, loc=self.source(op))
        region.ops.append(made)
        return made.results

    def device_number(self, op: Any, operands: list[Value], region: Region) -> list[Value]:
        """A program runs on one device, whose number among its replicas and partitions is 0."""
        type = TensorType((), U32)
        made = Op("stablehlo.constant", [], [type], {"value": np.zeros((), np.uint32)}, loc=self.source(op))
        region.ops.append(made)
        return made.results


_Handler = Callable[[_Importer, Any, list[Value], Region], list[Value]]

_SPECIAL: dict[str, _Handler] = {
    "func.call": lambda self, op, operands, region: self.call(op.callee.value, op, operands, region),
    "stablehlo.after_all": _Importer.token,
    "stablehlo.composite": _Importer.composite,
    "stablehlo.constant": _Importer.constant,
    "stablehlo.create_token": _Importer.token,
    "stablehlo.custom_call": _Importer.custom_call,
    "stablehlo.optimization_barrier": _Importer.barrier,
    "stablehlo.partition_id": _Importer.device_number,
    "stablehlo.replica_id": _Importer.device_number,
}


def _only_block(function: Any) -> Any:
    blocks = function.operation.regions[0].blocks
    if len(blocks) != 1:
        raise unsupported(
            f"a function of {len(blocks)} blocks ({function.name.value})",
            str(SourceLine(function.location, None)),
        )
    return blocks[0]


def _entry(info: dict[str, Any], name: str, default: _T) -> _T:
    """What an argument's or result's dictionary says under `name`, of the kind of `default`."""
    value = info.get(name, default)
    if not isinstance(value, type(default)):
        raise CompileError(f"{name} of an argument or result is {value!r}: expected such as {default!r}")
    return value


def _argument_info(info: dict[str, Any]) -> ArgumentInfo:
    alias = _entry(info, "tf.aliasing_output", -1)
    return ArgumentInfo(
        alias=alias,
        donated=alias >= 0 or _entry(info, "jax.buffer_donor", False),
        memory_kind=_entry(info, "mhlo.memory_kind", "device"),
        layout=_layout(_entry(info, "mhlo.layout_mode", "default")),
    )


def _layout(mode: str) -> tuple[int, ...] | None:
    """Minor-to-major order from text such as "{0,1}"; None where the compiler may choose."""
    if mode in ("default", "auto"):
        return None
    match = re.fullmatch(r"\{([0-9]{0,4}(?:,[0-9]{1,4})*)(?::[^}]*)?\}", mode)
    if match is None:
        raise CompileError(f"layout {mode!r} is not understood: expected a form such as {{1,0}}")
    return tuple(int(d) for d in match[1].split(",") if d)


def _check_layouts(graph: Graph) -> None:
    layouts = [info.layout for info in graph.arguments] + graph.output_layouts
    for value, layout in zip([*graph.args, *graph.outputs], layouts, strict=True):
        if layout is not None and sorted(layout) != list(range(len(value.shape))):
            raise CompileError(f"layout {layout} does not fit an array of type {value.type}")
