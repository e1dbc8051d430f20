"""What the compiler knows of each op: one record, registered beside the op's code in mlir_lowering/ops.

find how `stablehlo.tanh` is lowered:  grep -rn '"stablehlo.tanh"' mlir_lowering/ops
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlir_lowering.emit import Emitter, Expr
    from mlir_lowering.graph import Op
    from mlir_lowering.index import Index

ElementFunction = Callable[["Emitter", "Op", "Index"], "Expr"]
FoldFunction = Callable[["Op", list[np.ndarray[Any, Any]]], "np.ndarray[Any, Any] | None"]


@dataclass(frozen=True)
class Sample:
    """One test case of an op.

    `text` is the body of `func.func @main` with its signature, as StableHLO text: for instance
    "(%a: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.tanh %a : tensor<2xf32> return %0 : tensor<2xf32> }".
    `inputs` makes its arguments from a seeded generator; None draws normal floats and small integers. `rtol`
    takes the place of the record's for coarser element types. `oracle`: "interpreter" (StableHLO's reference) or
    "xla" (XLA:CPU), where the interpreter lacks the op, differs from the specification, or divides by zero.
    """

    text: str
    inputs: Callable[[np.random.Generator], list[np.ndarray[Any, Any]]] | None = None
    rtol: float | None = None
    oracle: str = "interpreter"


@dataclass(frozen=True)
class OpDef:
    """How one StableHLO (or CHLO) op is lowered and tested.

    Exactly one of `element`, `schedule` and `control` is set:
    - `element(emitter, op, index)` gives the result's element at `index` from elements of operands. With
      `pointwise`, every operand of the result's shape is read at that very index, so chains need no recursion.
    - `schedule` names the loop nest the op heads (mlir_lowering/schedules).
    - `control` names how the sequence of steps handles it (mlir_lowering/sequence.py).
    `cost` is the arithmetic of one element in units of an addition; fusion does not duplicate what is dear.
    `fold` computes the result from numpy operands at compile time.
    `rtol`, `atol` bound the difference from the oracle on `samples`.
    """

    name: str
    element: ElementFunction | None = None
    pointwise: bool = False
    schedule: str | None = None
    control: str | None = None
    cost: int = 1
    fold: FoldFunction | None = None
    samples: tuple[Sample, ...] = ()
    rtol: float = 1e-6
    atol: float = 0.0


OPS: dict[str, OpDef] = {}


def register(definition: OpDef) -> OpDef:
    """Adds a record; a name can have only one."""
    if definition.name in OPS:
        raise ValueError(f"{definition.name} is registered twice")
    ways = [definition.element, definition.schedule, definition.control]
    if sum(way is not None for way in ways) != 1:
        raise ValueError(f"{definition.name}: set one of element, schedule, control")
    OPS[definition.name] = definition
    return definition
