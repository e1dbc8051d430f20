"""How often a while loop runs, where that is known when the program is compiled."""

from __future__ import annotations

from mlir_lowering.graph import Op, Value
from mlir_lowering.passes.fold import splat_of

_HOLDS = {
    "LT": lambda i, n: i < n,
    "LE": lambda i, n: i <= n,
    "GT": lambda i, n: i > n,
    "GE": lambda i, n: i >= n,
}
# A loop that counts longer than this is not counted here but run until its condition fails.
MAX_TRIPS = 1 << 40


def static_trip_count(op: Op) -> int:
    """Iterations of a `while` whose counter starts, steps and ends at constants (jax's scan and fori_loop); else -1.

    A limit that JAX carries along is outside by now (passes/loops.py)."""
    condition, body = op.regions
    test = condition.outputs[0].op
    if test is None or test.name != "stablehlo.compare":
        return -1
    left, right = test.operands
    direction = test.attrs["comparison_direction"]
    if left not in condition.args or direction not in _HOLDS:
        return -1
    number = condition.args.index(left)
    limit = _integer(right)
    start = _integer(op.operands[number])
    step = _step(body.outputs[number], body.args[number])
    if limit is None or start is None or not step:
        return -1
    if not _HOLDS[direction](start, limit):
        return 0
    if (step > 0) != (direction in ("LT", "LE")):
        return -1
    distance = abs(limit - start) + (1 if direction in ("LE", "GE") else 0)
    trips = -(-distance // abs(step))
    bits = left.dtype.bits - (left.dtype.kind == "int")
    last = start + trips * step
    lowest = -(2**bits) if left.dtype.kind == "int" else 0
    if trips > MAX_TRIPS or not lowest <= last < 2**bits:  # the counter would wrap around
        return -1
    return trips


def _integer(value: Value) -> int | None:
    splat = splat_of(value)
    return int(splat) if splat is not None and value.dtype.is_integer and value.shape == () else None


def _step(next_value: Value, argument: Value) -> int | None:
    add = next_value.op
    if add is None or add.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    x, y = add.operands
    if add.name == "stablehlo.add" and y is argument:
        x, y = y, x
    if x is not argument:
        return None
    step = _integer(y)
    return step if step is None or add.name == "stablehlo.add" else -step
