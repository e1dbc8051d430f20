"""Element types: one row each. Everything that depends on a dtype reads it here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class DType:
    """One element type.

    `name` is StableHLO's spelling; `code` PJRT_Buffer_Type's value; `numpy` the host array's type (sub-byte
    integers take a byte each on host and device); `msl` the type of an element in kernels
    ("" where no kernel can hold it yet). `kind` is one of
    "pred", "int", "uint", "float", "complex", "token".
    """

    name: str
    code: int
    numpy: np.dtype[Any]
    msl: str
    kind: str
    bits: int

    @property
    def bytes(self) -> int:
        """Bytes an element takes in memory."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_complex(self) -> bool:
        return self.kind == "complex"

    @property
    def part(self) -> DType:
        """The type of a complex number's parts; of a real number, its own."""
        return BY_NAME[self.name.removeprefix("complex<").removesuffix(">")]

    @property
    def on_host(self) -> bool:
        """Metal has no such arithmetic: kernels that touch it run as host steps."""
        return self.name in ("f64", "complex<f64>")

    def __repr__(self) -> str:
        return self.name


def _row(name: str, code: int, numpy: Any, msl: str, kind: str, bits: int) -> DType:
    return DType(name, code, np.dtype(numpy), msl, kind, bits)


_ROWS = (
    _row("i1", 1, np.bool_, "bool", "pred", 1),
    _row("i2", 24, ml_dtypes.int2, "char", "int", 2),
    _row("i4", 21, ml_dtypes.int4, "char", "int", 4),
    _row("i8", 2, np.int8, "char", "int", 8),
    _row("i16", 3, np.int16, "short", "int", 16),
    _row("i32", 4, np.int32, "int", "int", 32),
    _row("i64", 5, np.int64, "long", "int", 64),
    _row("ui2", 25, ml_dtypes.uint2, "uchar", "uint", 2),
    _row("ui4", 22, ml_dtypes.uint4, "uchar", "uint", 4),
    _row("ui8", 6, np.uint8, "uchar", "uint", 8),
    _row("ui16", 7, np.uint16, "ushort", "uint", 16),
    _row("ui32", 8, np.uint32, "uint", "uint", 32),
    _row("ui64", 9, np.uint64, "ulong", "uint", 64),
    _row("f8E5M2", 16, ml_dtypes.float8_e5m2, "", "float", 8),
    _row("f8E4M3FN", 17, ml_dtypes.float8_e4m3fn, "", "float", 8),
    _row("f8E4M3B11FNUZ", 18, ml_dtypes.float8_e4m3b11fnuz, "", "float", 8),
    _row("f8E5M2FNUZ", 19, ml_dtypes.float8_e5m2fnuz, "", "float", 8),
    _row("f8E4M3FNUZ", 20, ml_dtypes.float8_e4m3fnuz, "", "float", 8),
    _row("f8E4M3", 26, ml_dtypes.float8_e4m3, "", "float", 8),
    _row("f8E3M4", 27, ml_dtypes.float8_e3m4, "", "float", 8),
    _row("f8E8M0FNU", 28, ml_dtypes.float8_e8m0fnu, "", "float", 8),
    _row("f16", 10, np.float16, "half", "float", 16),
    _row("bf16", 13, ml_dtypes.bfloat16, "bfloat", "float", 16),
    _row("f32", 11, np.float32, "float", "float", 32),
    _row("f64", 12, np.float64, "double", "float", 64),
    _row("complex<f32>", 14, np.complex64, "float2", "complex", 64),
    _row("complex<f64>", 15, np.complex128, "double2", "complex", 128),
    _row("token", 23, np.uint8, "", "token", 0),
)

BY_NAME = {row.name: row for row in _ROWS}

PRED = BY_NAME["i1"]
I32 = BY_NAME["i32"]
U32 = BY_NAME["ui32"]
U64 = BY_NAME["ui64"]
F32 = BY_NAME["f32"]
F64 = BY_NAME["f64"]
