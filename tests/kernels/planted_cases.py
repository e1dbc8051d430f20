"""Faults planted into the kernels of each software schedule, on the device that checks them (see
test_software_checked.py): an index that is off by one, a guard that always holds, one step of k too many.

The device must find each result that is stored one place off, and each guard that is gone. What is loaded one place off
may be in the same array, and written: then the results must differ.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mlir_lowering.program import Kernel, Label
from pjrt_metal.run_text import compile_text

Array = np.ndarray[Any, Any]

FOUND = re.compile(r"out of (its )?bounds|no(body| thread) has written|with no barrier in between|order of threads")
METAL, CPU = jax.devices("metal")[0], jax.devices("cpu")[0]
Shape = tuple[int, ...]


def _convolution(layout: tuple[str, str, str], **options: Any) -> Callable[..., jax.Array]:
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=layout, **options)


def _pool(x: jax.Array, size: int = 3, padding: str = "SAME") -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (size, size), (2, 2), padding)


NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
# The last element is the largest: what is added one place behind it leaves the array.
SPIKE = np.random.default_rng(2).standard_normal((25, 37), np.float32)
SPIKE[-1, -1] = 100
# Name: function, shapes of its arguments, what a launch's label says.
CASES: dict[str, tuple[Callable[..., Any], tuple[Shape, ...], str]] = {
    "pointwise": (lambda x: jnp.tanh(x) + 1, ((777,),), "Pointwise over n"),
    "pointwise rows": (lambda x: jnp.pad(x.T * 2, ((1, 2), (0, 3))), ((9, 13),), "Pointwise over"),
    "concatenation": (lambda x, y: jnp.concatenate([x, y + 1], 1), ((9, 13), (9, 5)), "Pointwise over"),
    "reduction of rows": (lambda x: jnp.exp(x).sum(1), ((7, 50),), "stablehlo"),
    "reduction of columns": (lambda x: x.sum(0), ((50, 33),), "stablehlo"),
    "softmax": (lambda x: jax.nn.softmax(x), ((5, 40),), "stablehlo"),
    "argmax": (lambda x: jnp.argmax(x, 1), ((5, 40),), "Folds"),
    "dot by strips": (lambda x, y: x @ y, ((1, 50), (50, 40)), "sums a thread"),
    "dot by dots": (lambda x, y: x @ y, ((40, 50), (50,)), "sums a thread"),
    "dot by tiles": (lambda x, y: x @ y, ((33, 70), (70, 45)), "a thread computes"),
    "dot in place": (lambda x, y: x @ y, ((26, 70), (70, 64)), "a thread computes"),
    "convolution by strips": (
        _convolution(NCHW, window_strides=(1, 1), padding=((1, 2), (1, 2)), lhs_dilation=(2, 2)),
        ((1, 2, 5, 5), (2, 2, 3, 3)),
        "sums a thread",
    ),
    "convolution by tiles": (
        _convolution(NHWC, window_strides=(1, 1), padding="SAME"),
        ((2, 7, 7, 5), (3, 3, 5, 20)),
        "a thread computes",
    ),
    "transposed convolution": (
        _convolution(NHWC, window_strides=(1, 1), padding=((1, 2), (1, 2)), lhs_dilation=(2, 2)),
        ((2, 7, 7, 5), (3, 3, 5, 20)),
        "a thread computes",
    ),
    "window": (_pool, ((9, 13),), "Pointwise over"),
    "select and scatter": (jax.grad(lambda x: (_pool(x + SPIKE, 3, "VALID") ** 2).sum()), ((25, 37),), ""),
    "cumulative sum": (lambda x: jnp.cumsum(x, 0), ((20, 7),), ""),
    "update of a slice": (lambda x, y: lax.dynamic_update_slice(x, y, (3, 3)), ((9, 13), (6, 10)), ""),
    "scatter": (lambda x, y: x.at[jnp.array([1, 8, 4, 1])].add(y), ((9, 5), (4, 5)), ""),
    "gather": (lambda x: x[jnp.array([1, 8, 4, 1])], ((9, 5),), "Pointwise over"),
    "sort": (lambda x: jnp.sort(x, 1), ((5, 40),), ""),
}

_ACCESS = re.compile(r"\b(in\d+|out\d+|total|sum|tile|to|t\d+_\w+|acc\d+|nan\d+)\[")
_GUARD = re.compile(r"if \(([^{}]*)\) \{\n(?=\s*[^\n]*\bin\d+\[)")


def _closing(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        depth += {"[": 1, "]": -1}.get(text[i], 0)
        if depth == 0:
            return i
    raise AssertionError(text)


class Planter:
    """Puts every fault into kernels as they are compiled. One of them, `fault`, is real: kernels look up which, and
    note in `reached` where they did. They note a guard where it does not hold."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.fault = ctypes.c_int(-1)
        self.reached = (ctypes.c_ubyte * 1000)()
        self.faults: list[tuple[str, bool]] = []  # what is done, and whether the device itself must find it
        self.labels: list[str] = []
        init, label = Kernel.__init__, Label.__init__

        def planted(kernel: Kernel, name: str, source: str, *rest: Any, **named: Any) -> None:
            init(kernel, name, self.plant(source), *rest, **named)

        def labelled(made: Label, *parts: str, **named: str) -> None:
            label(made, *parts, **named)
            self.labels.append(str(made))

        patch.setattr(Kernel, "__init__", planted)
        patch.setattr(Label, "__init__", labelled)

    def _new(self, what: str, must: bool) -> str:
        """The text of a new fault: true if it is the real one."""
        self.faults.append((what, must))
        return f"planted({len(self.faults) - 1})"

    def plant(self, source: str) -> str:
        edits: list[tuple[int, str]] = []
        for found in _ACCESS.finditer(source):
            begin, end = found.end(), _closing(source, found.end() - 1)
            line = source[source.rfind("\n", 0, begin) + 1 : source.find("\n", begin)].strip()
            if not re.match(r"(alignas\(\d+\) )?\w+ \w+\[\d+\];", line):  # a declaration
                what = f"{found[1]}[.. + 1] in: {line}"
                edits += [(begin, f"{self._new(what, line.startswith('out'))} + ("), (end, ")")]
        for found in _GUARD.finditer(source):
            if "<" in found[1] or ">=" in found[1]:
                edits += [(found.start(1), "("), (found.end(1), ") || " + self._new(f"no guard {found[1]}", True))]
        for found in re.finditer(r", depth(?=, block)", source):
            edits.append((found.end(), " + " + self._new("one step of k too many", True)))
        for at, text in sorted(edits, key=lambda edit: edit[0], reverse=True):
            source = source[:at] + text + source[at:]
        # Not a kernel's memory: read without being checked.
        return f"""
#ifndef PLANTED
#define PLANTED
__attribute__((no_sanitize("thread"), noinline)) static bool planted(int number) {{
  reinterpret_cast<uchar*>({ctypes.addressof(self.reached)}ul)[number] = 1;
  return *reinterpret_cast<const int*>({ctypes.addressof(self.fault)}ul) == number;
}}
#endif
{source}"""


def execute(executable: Any, inputs: list[Array]) -> list[Array]:
    results = executable.execute_sharded([jax.device_put(x, METAL) for x in inputs])
    return [np.asarray(shards[0]) for shards in results.disassemble_into_single_device_arrays()]


def test_runs_on_the_checked_device() -> None:
    (device,) = jax.devices("metal")
    assert device.device_kind == "strict software Metal (software)"


@pytest.mark.parametrize("name", CASES)
def test_finds_what_is_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, shapes, says = CASES[name]
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    text = jax.jit(f).lower(*inputs).as_text()
    planter = Planter(monkeypatch)
    executable = compile_text(text, METAL)
    want = execute(executable, inputs)
    np.testing.assert_allclose(want[0], np.asarray(jax.jit(f)(*jax.device_put(inputs, CPU))), 1e-4, 1e-5)
    assert any(says in label for label in planter.labels), planter.labels
    assert any(what.startswith("out") for what, _ in planter.faults)
    missed = []
    reached = bytes(planter.reached)
    for number, (what, must) in enumerate(planter.faults):
        if not reached[number]:
            continue
        planter.fault.value = number
        try:
            got = execute(executable, inputs)
        except Exception as error:
            assert FOUND.search(str(error)), f"{what}: {error}"
        else:
            same = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(got, want, strict=True))
            if must or same:
                missed.append(what)
    assert missed == [], "\n".join(missed)
