"""StableHLO's reference interpreter as the oracle, and how results are compared."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from mlir_lowering import importer
from mlir_lowering.constants import constant_array
from mlir_lowering.dtypes import BY_NAME
from mlir_lowering.graph import TensorType
from mlir_lowering.samples import types_of

Array = np.ndarray[Any, Any]


def reference(text: str, inputs: list[Array]) -> list[Array]:
    """What StableHLO's interpreter computes."""
    module = importer.normalize(importer.decode(text.encode()))
    arguments, results = types_of(text)
    with module.context:
        attributes = [_attribute(x, type) for x, type in zip(inputs, arguments, strict=True)]
        found = stablehlo.eval_module(module, attributes)
        return [_array(a, type, module.context) for a, type in zip(found, results, strict=True)]


def _attribute(array: Array, type: TensorType) -> ir.Attribute:
    shape = "".join(f"{n}x" for n in type.shape)
    if type.size == 0:
        return ir.Attribute.parse(f"dense<> : tensor<{shape}{type.dtype}>")
    if type.dtype.kind == "pred" or type.dtype.bits < 8:
        # Packed in MLIR's bytes: written out instead.
        words = [str(v).lower() for v in array.astype(object if type.dtype.bits == 1 else int).flat]
        text = words[0]
        if array.ndim:
            text = np.array2string(
                np.array(words).reshape(type.shape),
                separator=",",
                threshold=1 << 30,
                formatter={"str_kind": str},
            )
        return ir.Attribute.parse(f"dense<{text}> : tensor<{shape}{type.dtype}>")
    data = np.ascontiguousarray(array).tobytes().hex().upper()
    return ir.Attribute.parse(f'dense<"0x{data}"> : tensor<{shape}{type.dtype}>')


def _array(attribute: ir.Attribute, type: TensorType, context: ir.Context) -> Array:
    text = f"module {{ %0 = stablehlo.constant {attribute} }}"
    module = ir.Module.parse(text, context)
    return np.array(constant_array(module.body.operations[0], type))


def assert_close(got: Array, want: Array, rtol: float, atol: float, what: str) -> None:
    """Equal shapes and dtypes; NaNs and infinities at the same places; the rest within the bounds."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.dtype, want.dtype, what)
    if want.dtype == np.bool_ or BY_NAME_BY_NUMPY[want.dtype].is_integer:
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol, err_msg=what)


BY_NAME_BY_NUMPY = {dtype.numpy: dtype for dtype in BY_NAME.values() if dtype.kind != "token"}
