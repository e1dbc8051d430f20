"""No launch does more than a GPU's watchdog allows, and no family's work grows faster than its algorithm's.

Counts, not times: from the schedules' loops (bounds.py), for the software device and for GPUs.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest

from mlir_lowering import work
from mlir_lowering.emit import Emitter
from mlir_lowering.options import read_options
from mlir_lowering.pipeline import compile_program
from mlir_lowering.program import Launch
from mlir_lowering.registry import OPS
from mlir_lowering.targets import parse_target
from mlir_lowering.work import Work, trips_of
from pjrt_metal import doctor_schedules
from tests.kernels import bounds
from tests.kernels.families import FAMILIES, Family
from tests.kernels.test_lint import case_text

# One GPU stands for all: test_lint.py proves that every family of chips gets the same kernels.
# A logarithm, or a nest that starts to have vectors or blocks, between one size and the next.
SLACK = 0.2
TARGETS = ["software:threads=2,vector_bytes=64", "apple8"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_families(family: Family, target: str) -> None:
    device = parse_target(target)
    texts = [family.text(n) for n in family.sizes]
    assert bounds.problems(texts[-1], device) == []
    assert bounds.exponent(family.sizes, texts, device) < family.power + SLACK


@pytest.mark.parametrize("target", TARGETS)
def test_the_op_table(target: str) -> None:
    """Every sample's loops have bounds, and every path's through a GPU's schedules."""
    device = parse_target(target)
    texts = [f"func.func @main{sample.text}" for record in OPS.values() for sample in record.samples]
    texts += [case_text(case) for case in doctor_schedules.CASES]
    assert [problem for text in texts for problem in bounds.problems(text, device)] == []


def test_trips() -> None:
    assert trips_of("for (int i = 0; i < 10; ++i)") == 10
    assert trips_of("for (int i = 2; i < 10; i += 3)") == 3
    assert trips_of("for (int i = int(local.x); i < 10; i += 4)") == 3
    assert trips_of("for (int width = 1; width < 9; width *= 2)") == 4
    assert trips_of("for (uint half = 8; half > 0; half /= 2)") == 4
    assert trips_of("for (int i = begin; i < end; ++i)") is None
    assert trips_of("while (left < right)") is None


def test_work_of_nested_loops() -> None:
    emitter = Emitter(parse_target("apple8"), set())
    with emitter.block("for (int i = 0; i < 10; ++i)"):
        with emitter.block("if (i > 3)"), emitter.block("for (int j = 0; j < n; ++j)", trips=5):
            emitter.line("x += 1;")
        emitter.line("for (int k = 0; k < 7; ++k) y[k] = 0;")
    with emitter.block("while (more)", total=1000):
        emitter.line("z += 1;")
    assert emitter.work.launch((4, 2, 1)) == 4 * 2 * 10 * (5 + 7) + 1000
    assert emitter.work.unbounded == []


def test_a_loop_without_a_bound_is_found() -> None:
    counted = Work()
    counted.enter("while (true)", None, None)
    counted.leave()
    assert counted.unbounded == ["while (true)"]


def test_the_program_says_what_its_launches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each part its share: csrc/metal ends command buffers by it."""
    monkeypatch.setattr(work, "LAUNCH", 3000)
    text = jax.jit(lambda x: x.sum(1)).lower(jax.ShapeDtypeStruct((1000, 10), jnp.float32)).as_text()
    program = compile_program(text.encode(), read_options(b""), parse_target("apple8"))
    done = [(step.work, math.prod(step.threads)) for step in program.body if isinstance(step, Launch)]
    assert len(done) > 2
    assert all(threads <= iterations <= 3000 for iterations, threads in done)
    assert 10_000 <= sum(iterations for iterations, _ in done) < 20_000
    assert sum(threads for _, threads in done) < 2000
