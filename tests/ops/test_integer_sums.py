"""Sums and products of integers over rows of a few columns: host compilers vectorize them over the rows, and one left
terms out (`schedules/reduce.py`). Against numpy, whose integers wrap too."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
from jax import lax

ROWS, COLUMNS = (8, 16, 32), (2, 3, 4, 5, 6, 7, 9, 12)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint32"])
def test_of_columns(dtype: str) -> None:
    rng = np.random.default_rng(0)
    kinds: dict[str, Any] = {"sum": (lax.add, np.sum), "product": (lax.mul, np.prod)}
    arrays = {
        (kind, rows, columns): rng.integers(0, 9, (3, rows, columns)).astype(dtype)
        for kind, rows, columns in itertools.product(kinds, ROWS, COLUMNS)
    }

    @jax.jit
    def run(arrays: Any, first: jax.Array) -> Any:
        return {key: lax.reduce(x, first, kinds[key[0]][0], (1,)) for key, x in arrays.items()}

    found = run(arrays, np.asarray(5, dtype))
    for (kind, rows, columns), x in arrays.items():
        rest = np.full((3, 1, columns), 5, dtype)
        want = kinds[kind][1](np.concatenate([x, rest], 1), 1, dtype=dtype)
        np.testing.assert_array_equal(found[kind, rows, columns], want, f"{kind} of {rows} x {columns}")
