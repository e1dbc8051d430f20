"""Valid MLIR that no compiler wrote: attributes nobody can read, names that are no text, shapes that are no sizes.

Each is a CompileError that names what is wrong, or does not matter. Found by tests/robustness/attack_artifacts.py.
"""

from __future__ import annotations

import pytest
from jaxlib.mlir.dialects import stablehlo

from mlir_lowering import importer
from mlir_lowering.errors import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, CompileError
from mlir_lowering.pipeline import compile_artifact

T = "tensor<3xf32>"
TARGET = "software:threads=2,vector_bytes=64"
COMPLEX = "dense<(1.0, 2.0)> : tensor<1xcomplex<f32>>"
LOCATIONS = ('loc("here")', 'loc("f":1:2)', 'loc(callsite("f":1:2 at "g":1:2))', "loc(unknown)", 'loc(fused["f":1:2])')
NO_TEXT = r'"\FF"'


def compile(text: str) -> bytes:
    return compile_artifact(text.encode(), "mlir", b"", TARGET)


def program(module: str = "", argument: str = "", result: str = "", op: str = "", name: str = "main") -> str:
    return f"""module @m {module} {{
      func.func @{name}(%x: {T} {argument}) -> ({T} {result}) {{
        %y = stablehlo.sine %x {op} : {T}
        return %y : {T}
      }}
    }}"""


def refused(text: str, match: str, code: int) -> None:
    with pytest.raises(CompileError, match=match) as caught:
        compile(text)
    assert caught.value.code == code


def test_the_program_without_anything_odd_compiles() -> None:
    assert compile(program())


@pytest.mark.parametrize("value", [*LOCATIONS, COMPLEX, NO_TEXT, "dense<1> : tensor<2xi3>", f"[{COMPLEX}]"])
def test_attributes_that_cannot_be_read(value: str) -> None:
    refused(program(op=f"{{odd = {value}}}"), r"attribute odd of stablehlo\.sine", UNIMPLEMENTED)
    refused(program(argument=f"{{mhlo.odd = {value}}}"), r"attribute arg_attrs of func\.func", UNIMPLEMENTED)
    refused(program(result=f"{{mhlo.odd = {value}}}"), r"attribute res_attrs of func\.func", UNIMPLEMENTED)
    number = program(f"attributes {{mhlo.num_partitions = {value}}}")
    refused(number, r"attribute mhlo\.num_partitions of builtin\.module", UNIMPLEMENTED)


@pytest.mark.parametrize("config", [*LOCATIONS, f"{{a = {COMPLEX}}}", r'{"a\00b" = 1 : i32}', r'{"a\FF" = 1 : i32}'])
def test_configurations_of_custom_calls_that_cannot_be_read(config: str) -> None:
    call = f"stablehlo.custom_call @f(%x) {{api_version = 4 : i32, mhlo.backend_config = {config}}} : ({T}) -> {T}"
    refused(f"func.func @main(%x: {T}) -> {T} {{ %y = {call} return %y : {T} }}", 'custom call "f"', UNIMPLEMENTED)


def test_names_that_are_no_text() -> None:
    refused(program(name=NO_TEXT), "no text", INVALID_ARGUMENT)
    refused(program().replace("@m ", f"@{NO_TEXT} "), "no text", INVALID_ARGUMENT)
    refused(program(argument=r'{"mhlo.\FF" = 1 : i32}'), "arg_attrs", UNIMPLEMENTED)
    refused(program(op=r'{"\FF" = 1 : i32}'), r"stablehlo\.sine has a name that is no text", INVALID_ARGUMENT)


def test_names_with_a_zero_byte() -> None:
    refused(program(argument=r'{"mhlo.a\00b" = 1 : i32}'), "arg_attrs", UNIMPLEMENTED)
    assert compile(program(op=r'{"a\00b" = 1 : i32}'))


def test_source_lines_that_are_no_text() -> None:
    """A location says where an op comes from, and nothing more."""
    text = program().replace(f": {T}\n        return", f': {T} loc("\\FF/x"("\\FE":1:2))\n        return')
    assert "FE" in text and compile(text)


@pytest.mark.parametrize("number", ['"two"', "0 : i32", "-1 : i64", "5000000000 : i64", "1.0 : f32", "[1]"])
def test_numbers_of_partitions(number: str) -> None:
    refused(program(f"attributes {{mhlo.num_partitions = {number}}}"), "mhlo.num_partitions", INVALID_ARGUMENT)
    refused(program(f"attributes {{mhlo.num_replicas = {number}}}"), "mhlo.num_replicas", INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "entry",
    [
        'tf.aliasing_output = "a"',
        'jax.buffer_donor = "a"',
        "mhlo.memory_kind = 1 : i32",
        "mhlo.layout_mode = 1 : i32",
        'mhlo.layout_mode = "{0"',
        f'mhlo.layout_mode = "{{{"1" * 5000}}}"',
    ],
)
def test_what_is_said_of_arguments(entry: str) -> None:
    refused(program(argument=f"{{{entry}}}"), "layout" if '"{' in entry else entry.split()[0], INVALID_ARGUMENT)


@pytest.mark.parametrize("name", ["chlo.acos", "stablehlo.sine"])
@pytest.mark.parametrize("result", ["tensor<100xf32>", "tensor<3xi32>"])
def test_a_composite_is_not_taken_for_an_op_of_other_types(name: str, result: str) -> None:
    """MLIR does not compare a composite's types with its name's."""
    text = f"""func.func @main(%x: {T}) -> {result} {{
        %y = stablehlo.composite "{name}" %x {{decomposition = @d}} : ({T}) -> {result}
        return %y : {result}
      }}
      func.func private @d(%x: {T}) -> {result} {{
        %c = stablehlo.constant dense<7> : {result}
        return %c : {result}
      }}""".replace("<7>", "<7.0>" if "f32" in result else "<7>")
    compiled = compile(text)
    assert (
        b"acos(" not in compiled.partition(b"kernel void")[2] and b"sin(" not in compiled.partition(b"kernel void")[2]
    )


def test_attributes_of_a_composite_that_is_decomposed_do_not_matter() -> None:
    compile(f"""func.func @main(%x: {T}) -> {T} {{
        %y = stablehlo.composite "odd.op" %x {{decomposition = @d, composite_attributes = {{a = {COMPLEX}}}}}
          : ({T}) -> {T}
        return %y : {T}
      }}
      func.func private @d(%x: {T}) -> {T} {{ return %x : {T} }}""")


@pytest.mark.parametrize("shape", ["4611686018427387904x4x0", "0x4294967296"])
def test_empty_arrays_of_sizes_that_are_no_index(shape: str) -> None:
    kind = f"tensor<{shape}xf32>"
    text = f"func.func @main() -> {kind} {{ %c = stablehlo.constant dense<1.0> : {kind} return %c : {kind} }}"
    refused(text, "arrays have at most", RESOURCE_EXHAUSTED)


def test_regions_nested_deeper_than_the_compiler_goes() -> None:
    depth, flag = 400, "tensor<i1>"
    other = f"}}, {{ stablehlo.return %p : {flag} }}) : ({flag}) -> {flag}"
    text = f"""func.func @main(%p: {flag}) -> {flag} {{
      {'%r = "stablehlo.if"(%p) ({ ' * depth} stablehlo.return %p : {flag}
      {f"{other} stablehlo.return %r : {flag} " * (depth - 1)} {other} return %r : {flag} }}"""
    refused(text, "nested too deep", INVALID_ARGUMENT)


@pytest.mark.parametrize("element", ["f32", "i64", "f8E5M2", "i4"])
@pytest.mark.parametrize("size", [3, 60, 62])
def test_constants_of_fewer_or_more_elements_than_their_type_says(element: str, size: int) -> None:
    """MLIR's reader does not compare them, and reads what lies behind."""
    kind = f"tensor<61x{element}>"
    pair = {"i4": "1, -2", "i64": "1, -2"}.get(element, "1.0, -2.0")
    value = f"[{', '.join([pair] * 31).rpartition(',')[0]}]"
    text = f"func.func @main() -> {kind} {{ %c = stablehlo.constant dense<{value}> : {kind} return %c : {kind} }}"
    with importer.lock:
        module = importer.decode(text.encode())
        sound = stablehlo.serialize_portable_artifact(module, stablehlo.get_current_version())
    compile_artifact(sound, "mlir", b"", TARGET)
    # A dimension is a number with its sign in the lowest bit, and behind that a one: it takes a byte.
    dimension, other = bytes([4 * 61 + 1]), bytes([4 * size + 1])
    assert sound.count(dimension) == 1
    with pytest.raises(CompileError, match="not as many elements"):
        compile_artifact(sound.replace(dimension, other), "mlir", b"", TARGET)
