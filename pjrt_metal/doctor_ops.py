"""The op table as a self-test: samples of the compiler's records, on metal and on XLA's CPU backend."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import mlir_lowering.ops
from mlir_lowering.registry import OPS, OpDef, Sample
from mlir_lowering.samples import module_text, sample_inputs
from pjrt_metal.doctor import Check
from pjrt_metal.run_text import run_text

assert mlir_lowering.ops  # imported for the registry it fills

Array = np.ndarray[Any, Any]
# The records' bounds are for StableHLO's interpreter. XLA's own approximations add a few units in the last place of
# f32, and it sums 16-bit floats in 16 bits. By the bytes of a result's element; others have the records' bounds.
XLA_RTOL = {2: 1e-2, 4: 2e-5, 8: 2e-5}
XLA_ATOL = 1e-6
# Where XLA's CPU backend is no measure: an op, what its sample's text has, and why.
NOT_COMPARED = (
    ("stablehlo.power", r"tensor<\w*xu?i\d+>", "XLA:CPU's integer powers of large exponents are wrong"),
    ("stablehlo.popcnt", r"xi4>", "XLA:CPU counts the sign bits of the byte that holds an i4"),
    ("stablehlo.reduce", r"200000xi32.*dense<7>", "XLA:CPU adds an initial value that is not neutral several times"),
)


def checks(full: bool, only: list[str] | None) -> Iterator[Check]:
    """The first sample of each op; with `full` or for the ops in `only`, all."""
    for name, record in sorted(OPS.items()):
        if only is not None and name not in only:
            continue
        samples = record.samples if full or only else record.samples[:1]
        for number, sample in enumerate(samples):
            if any(name == op and re.search(pattern, sample.text) for op, pattern, _ in NOT_COMPARED):
                continue
            yield Check("ops", f"{name} sample {number}", functools.partial(_compare, record, sample))


def _compare(record: OpDef, sample: Sample) -> str:
    text = module_text(sample)
    inputs = sample_inputs(sample)
    want = run_text(text, inputs, jax.devices("cpu")[0])
    got = run_text(text, inputs, jax.devices("metal")[0])
    bound = record.rtol if sample.rtol is None else sample.rtol
    worst = 0.0
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        rtol = max(bound, XLA_RTOL.get(b.dtype.itemsize, 0.0))
        worst = max(worst, difference(a, b, rtol, max(record.atol, XLA_ATOL), f"result {number} of\n{text}"))
    return f"largest difference {worst:.3g}"


def difference(got: Array, want: Array, rtol: float, atol: float, what: str) -> float:
    """The largest absolute difference of finite numbers; raises if it is out of bounds or anything else differs."""
    if got.shape != want.shape or got.dtype != want.dtype:
        raise AssertionError(f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}: {what}")
    wide = np.complex128 if np.issubdtype(want.dtype, np.complexfloating) else np.float64
    if want.dtype.kind in "iub":  # exact, also beyond 2**53
        np.testing.assert_array_equal(got, want, err_msg=what)
        return 0.0
    a, b = got.astype(wide), want.astype(wide)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=what)
    finite = np.isfinite(b)
    return float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
