"""What the compiler asks of constants' numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_splat(array: np.ndarray[Any, Any]) -> bool:
    """One value for all elements, of which there is at least one. Arrays of constants have strides of 0 then."""
    return array.size == 1 or (array.size > 1 and all(s == 0 for s in array.strides))
