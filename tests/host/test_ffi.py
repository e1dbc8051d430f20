"""XLA FFI handlers: what they are given on metal is what XLA:CPU gives them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from pjrt_metal.run_text import run_text
from tests.host import library
from tests.host.effects import forgotten_effects

_BYTES = 2048


@pytest.fixture(autouse=True, scope="module")
def _handlers() -> None:
    library.load()


def _call(platform: str, target: str, result: Any, *args: Any, **options: Any) -> Any:
    """The handler's results on a platform; keywords other than `attributes` go to ffi_call."""
    attributes = options.pop("attributes", {})
    device = jax.devices(platform)[0]
    function = jax.ffi.ffi_call(f"host_test_{target}", result, **options)
    with jax.default_device(device):
        return jax.jit(lambda *a: function(*a, **attributes))(*(jax.device_put(a, device) for a in args))


def _describe(platform: str, *args: Any, **options: Any) -> str:
    text = jax.ShapeDtypeStruct((_BYTES,), np.uint8)
    return bytes(np.asarray(_call(platform, "describe", text, *args, **options))).rstrip(b"\0").decode()


_ATTRIBUTES = {
    "pred": True,
    "python_int": 3,
    "python_float": 1.5,
    "text": "héllo",
    "empty_text": "",
    "i8": np.int8(-3),
    "u8": np.uint8(200),
    "i16": np.int16(-3),
    "u16": np.uint16(60000),
    "i32": np.int32(-3),
    "u32": np.uint32(4_000_000_000),
    "i64": np.int64(-3),
    "u64": np.uint64(3),
    "f32": np.float32(1.5),
    "f64": np.float64(0.1),
    "i8s": np.array([1, -1], np.int8),
    "u8s": np.array([1, 255], np.uint8),
    "i32s": np.arange(3, dtype=np.int32),
    "i64_splat": np.ones(3, np.int64),
    "f64s": np.arange(3) / 7,
    "matrix": np.ones((2, 2), np.float32),
    "empty": np.zeros(0, np.float32),
    "no_dictionary": {},
}


@pytest.mark.parametrize("name", _ATTRIBUTES)
def test_attributes(name: str) -> None:
    attributes = {name: _ATTRIBUTES[name], "other": np.int32(1)}
    described = _describe("metal", np.float32(1), attributes=attributes)
    assert described == _describe("cpu", np.float32(1), attributes=attributes)
    assert f"{name}: " in described


def test_attributes_that_only_metal_passes_on() -> None:
    attributes = {"half": np.float16(2), "brain": ml_dtypes.bfloat16(2), "preds": np.array([True, False])}
    described = _describe("metal", np.float32(1), attributes=attributes)
    for expected in ("half: scalar F16 0040", "brain: scalar BF16 0040", "preds: array PRED x2 0100"):
        assert expected in described


_NESTED = """func.func @main(%x: tensor<2xf32>) -> tensor<512xui8> {
  %r = stablehlo.custom_call @host_test_describe(%x) {
    api_version = API : i32,
    CONFIG = {b = {z = "text", a = {n = 1 : i16}}, a = 2 : i64, aa = array<i32: 4, 5>}
  } : (tensor<2xf32>) -> tensor<512xui8>
  return %r : tensor<512xui8>
}"""


@pytest.mark.parametrize(("version", "config"), [(1, "mhlo.backend_config"), (4, "backend_config")])
def test_dictionaries_in_dictionaries(version: int, config: str) -> None:
    text = _NESTED.replace("API", str(version)).replace("CONFIG", config)
    inputs = [np.ones(2, np.float32)]
    described, expected = (
        bytes(np.asarray(run_text(text, inputs, jax.devices(p)[0])[0])).rstrip(b"\0").decode() for p in ("metal", "cpu")
    )
    assert described == expected
    assert "b: {a: {n: scalar S16 0100; }; z: string 'text'; }" in described


@pytest.mark.parametrize("dtype", library.WHOLE_BYTES)
def test_operands_of_every_type(dtype: Any) -> None:
    with jax.enable_x64(True):
        array = np.arange(6).reshape(2, 3).astype(dtype)
        assert _describe("metal", array) == _describe("cpu", array)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1), (2, 3, 4)])
def test_operands_of_every_rank(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(np.float32)
    assert _describe("metal", array, array) == _describe("cpu", array, array)


@pytest.mark.parametrize("layout", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_layouts(layout: tuple[int, ...]) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    options: dict[str, Any] = {"input_layouts": [layout], "output_layouts": (0,)}
    assert _describe("metal", array, **options) == _describe("cpu", array, **options)
    same: dict[str, Any] = {"attributes": {"code": np.int32(0), "message": ""}}
    result = jax.ShapeDtypeStruct(array.shape, array.dtype)
    out = _call("metal", "check", result, array, input_layouts=[layout], output_layouts=layout, **same)
    np.testing.assert_array_equal(out, array)
    out = _call("metal", "check", result, array, input_layouts=[layout], output_layouts=None, **same)
    want = _call("cpu", "check", result, array, input_layouts=[layout], output_layouts=None, **same)
    np.testing.assert_array_equal(out, want)


def test_a_call_between_kernels() -> None:
    def function(x: Any) -> Any:
        call = jax.ffi.ffi_call("host_test_check", jax.ShapeDtypeStruct(x.shape, x.dtype))
        return jnp.sum(call(x * 2, code=np.int32(0), message="") + 1)

    with jax.default_device(jax.devices("metal")[0]):
        assert jax.jit(function)(jnp.arange(1000.0)) == 1000 * 1000


def test_one_memory_for_operand_and_result() -> None:
    x = np.arange(5, dtype=np.float32)
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    out = _call("metal", "in_place", result, x, input_output_aliases={0: 0})
    np.testing.assert_array_equal(out, x + 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="differ in memory"):
        _call("metal", "in_place", result, x).block_until_ready()


def test_the_operand_stays_where_it_is_needed() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        call = jax.ffi.ffi_call(
            "host_test_in_place", jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={0: 0}
        )
        return call(y), y, call(x)

    with jax.default_device(jax.devices("metal")[0]):
        x = jnp.arange(5.0)
        a, b, c = jax.jit(function)(x)
        np.testing.assert_array_equal(a, 2 * np.arange(5) + 1)
        np.testing.assert_array_equal(b, 2 * np.arange(5))
        np.testing.assert_array_equal(c, np.arange(5) + 1)
        np.testing.assert_array_equal(x, np.arange(5))


@pytest.mark.parametrize(
    ("code", "name"), [(3, "INVALID_ARGUMENT"), (8, "RESOURCE_EXHAUSTED"), (12, "UNIMPLEMENTED"), (15, "DATA_LOSS")]
)
def test_errors(code: int, name: str) -> None:
    x = np.ones(3, np.float32)
    attributes = {"code": np.int32(code), "message": "no, thank you"}
    out = _call("metal", "check", jax.ShapeDtypeStruct(x.shape, x.dtype), x, attributes=attributes)
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"{name}: .*host_test_check.*no, thank you"):
        out.block_until_ready()
    attributes = {"code": np.int32(0), "message": ""}
    out = _call("metal", "check", jax.ShapeDtypeStruct(x.shape, x.dtype), x, attributes=attributes)
    np.testing.assert_array_equal(out, x)


def test_exceptions_of_a_handler() -> None:
    out = _call("metal", "throws", jax.ShapeDtypeStruct((), np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"host_test_throws.*thrown by the handler"):
        out.block_until_ready()


def test_wrong_attributes_are_the_handlers_error() -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="host_test_check"):
        _call("metal", "check", jax.ShapeDtypeStruct(x.shape, x.dtype), x).block_until_ready()


def test_asynchronous_handlers() -> None:
    x = np.arange(4, dtype=np.float32)
    result = jax.ShapeDtypeStruct(x.shape, x.dtype)
    np.testing.assert_array_equal(_call("metal", "later", result, x, attributes={"fail": False}), 2 * x)
    out = _call("metal", "later", result, x, attributes={"fail": True})
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"DATA_LOSS.*the future failed"):
        out.block_until_ready()


def test_context() -> None:
    ran, ordinal = np.asarray(_call("metal", "context", jax.ShapeDtypeStruct((2,), np.int32)))
    assert (ran, ordinal) == (1, 0)


def test_state_lives_as_long_as_the_executable() -> None:
    handlers = library.load()
    before = handlers.LiveStates()
    call = jax.ffi.ffi_call("host_test_count", jax.ShapeDtypeStruct((), np.int32), has_side_effect=True)
    with jax.default_device(jax.devices("metal")[0]):
        compiled = jax.jit(lambda: (call(start=np.int64(7)), call(start=np.int64(20)))).lower().compile()
        assert [tuple(map(int, compiled())) for _ in range(3)] == [(7, 20), (8, 21), (9, 22)]
    assert handlers.LiveStates() == before + 2
    del compiled
    jax.clear_caches()
    assert handlers.LiveStates() == before


def test_handlers_of_a_later_version() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"version 0\.99 of XLA's FFI"):
        _call("metal", "from_the_future", jax.ShapeDtypeStruct((), np.float32))


def test_unknown_targets() -> None:
    with pytest.raises(jax.errors.JaxRuntimeError, match=r'"host_test_nobody".*jax\.ffi\.register_ffi_target'):
        _call("metal", "nobody", jax.ShapeDtypeStruct((), np.float32))


@pytest.mark.parametrize("version", [2, 3])
def test_untyped_calls_are_refused(version: int) -> None:
    text = (
        "func.func @main(%x: tensor<f32>) -> tensor<f32> { %0 = stablehlo.custom_call @old(%x)"
        f" {{api_version = {version} : i32}} : (tensor<f32>) -> tensor<f32> return %0 : tensor<f32> }}"
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf'UNIMPLEMENTED.*"old" of API version {version}'):
        run_text(text, [np.float32(1)], jax.devices("metal")[0])


def test_untyped_handlers_are_refused() -> None:
    symbol = jax.ffi.pycapsule(library.load().DescribeCall)
    with pytest.raises(ValueError, match="typed FFI"):
        jax.ffi.register_ffi_target("host_test_old", symbol, platform="metal", api_version=0)
    with pytest.raises(ValueError, match="no stage destroy"):
        jax.ffi.register_ffi_target("host_test_old", {"destroy": symbol}, platform="metal")
    with pytest.raises(ValueError, match="no handler for its execution"):
        jax.ffi.register_ffi_target("host_test_old", {"prepare": symbol}, platform="metal")
    with pytest.raises(ValueError, match="already has another handler"):
        jax.ffi.register_ffi_target("host_test_check", symbol, platform="metal")


def test_calls_without_effects_go_when_nobody_reads_them() -> None:
    def function(effect: bool) -> Any:
        call = jax.ffi.ffi_call("host_test_check", jax.ShapeDtypeStruct((), np.float32), has_side_effect=effect)

        def run(x: Any) -> Any:
            call(x, code=np.int32(13), message="ran")
            return x

        return run

    with jax.default_device(jax.devices("metal")[0]):
        assert jax.jit(function(False))(1.0) == 1
        with forgotten_effects(), pytest.raises(jax.errors.JaxRuntimeError, match="ran"):
            jax.jit(function(True))(1.0).block_until_ready()


_LAZY = """
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
from pjrt_metal import host_calls
a = jnp.eye(3) * 4
assert host_calls.register_lapack.cache_info().currsize == 0
jnp.linalg.cholesky(a)
assert host_calls.register_lapack.cache_info().currsize == 1
"""


def test_lapack_is_registered_when_it_is_first_called() -> None:
    done = subprocess.run([sys.executable, "-c", _LAZY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
