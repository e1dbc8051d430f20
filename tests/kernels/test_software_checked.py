"""The software device's own schedules on the device that checks every access (PJRT_METAL_STRICT=software): the op
table, models and the digits run pass on it, and it finds faults that are planted into kernels and into plans."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# One order of threads: those of these schedules share nothing, and accesses that depend on the order are found in any.
ENVIRONMENT = {"PJRT_METAL_STRICT": "software", "PJRT_METAL_STRICT_ORDERS": "1", "JAX_PLATFORMS": "metal,cpu"}


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ENVIRONMENT | changes
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize(
    "path",
    [
        "tests/kernels/planted_cases.py",
        pytest.param("tests/kernels/test_special_values.py", marks=pytest.mark.slow),
        pytest.param("tests/ops/test_ops.py", marks=pytest.mark.slow),
        pytest.param("tests/models/test_training.py", marks=pytest.mark.slow),
    ],
)
def test_passes(path: str) -> None:
    result = run("-m", "pytest", "-q", "--no-header", path)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    summary = result.stdout.splitlines()[-1]
    assert "passed" in summary and "skipped" not in summary, summary


# What a faulty compiler does, a program, and what the device says of it.
FAULTS = {
    "values on top of one another": (
        """
allocate = plan._Planner.allocate
def faulty(self):
    allocate(self)
    for storage in self.of.values():
        self.root(storage).offset = 0
plan._Planner.allocate = faulty
""",
        "lambda x: jnp.stack([jnp.sort(x), jnp.sort(-x)])",
        "which nobody has written",
    ),
    "a copy left out": (
        """
steps = plan._Planner.steps
plan._Planner.steps = lambda self, nodes: tuple(s for s in steps(self, nodes) if not isinstance(s, plan.Copy))
""",
        "lambda x: x.at[2].set(7)",
        "output 0: nobody has written its byte 0 of 80",
    ),
    "a loop's body in another order": (
        """
While = plan.While
plan.While = lambda predicate, condition, body, trips: While(predicate, condition, body[::-1], trips)
""",
        "lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sort(jnp.cumsum(jnp.sort(x) * 2)), x)",
        "which nobody has written",
    ),
    "a launch left out": (
        """
steps = plan._Planner.steps
plan._Planner.steps = lambda self, nodes: steps(self, nodes)[1:]
""",
        "lambda x: jnp.sort(x) @ jnp.sort(-x)",
        "which nobody has written",
    ),
}
PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from mlir_lowering import plan
{fault}
print(jax.jit({function})(np.arange(20, dtype=np.float32)))
"""


@pytest.mark.parametrize("name", FAULTS)
def test_finds_a_fault_in_the_plan(name: str) -> None:
    fault, function, says = FAULTS[name]
    right = run("-c", PROGRAM.format(fault="", function=function))
    assert right.returncode == 0, right.stderr
    # Without the compiler's own verifier, which finds it first.
    wrong = run("-c", PROGRAM.format(fault=fault, function=function), PJRT_METAL_VERIFY_IR="0")
    assert wrong.returncode != 0, wrong.stdout
    assert "INTERNAL" in wrong.stderr and says in wrong.stderr, wrong.stderr[-2000:]
