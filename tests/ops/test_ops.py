"""Every sample of every record against StableHLO's interpreter; the records drive the tests."""

from __future__ import annotations

import jax
import numpy as np
from absl.testing import absltest, parameterized

import mlir_lowering.ops
from mlir_lowering.registry import OPS, OpDef, Sample
from mlir_lowering.samples import module_text, sample_inputs
from pjrt_metal.run_text import run_text
from tests.ops import harness

assert mlir_lowering.ops

SAMPLES = [
    (f"{name.replace('.', '_')}_{number}", record, sample)
    for name, record in sorted(OPS.items())
    for number, sample in enumerate(record.samples)
]

_ORACLES = {
    "interpreter": harness.reference,
    "xla": lambda text, inputs: run_text(text, inputs, jax.devices("cpu")[0]),
}


def test_every_op_has_samples() -> None:
    assert [name for name, record in OPS.items() if not record.samples] == []


class OpTest(parameterized.TestCase):
    @parameterized.named_parameters(*SAMPLES)
    def test_agrees_with_the_interpreter(self, record: OpDef, sample: Sample) -> None:
        text = module_text(sample)
        inputs = sample_inputs(sample)
        want = _ORACLES[sample.oracle](text, inputs)
        got = run_text(text, inputs, jax.devices("metal")[0])
        rtol = record.rtol if sample.rtol is None else sample.rtol
        for number, (a, b) in enumerate(zip(got, want, strict=True)):
            harness.assert_close(np.asarray(a), b, rtol, record.atol, f"{record.name} result {number}:\n{text}")


if __name__ == "__main__":
    absltest.main()
