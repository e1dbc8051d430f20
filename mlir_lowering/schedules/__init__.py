"""Schedules: each turns a Group into kernels for a Target. `OpDef.schedule` names one."""

from __future__ import annotations

from mlir_lowering.kernel import ScheduleDef
from mlir_lowering.schedules import (
    contraction_gpu,
    contraction_software,
    reduce,
    reduce_gpu,
    sort,
    sort_gpu,
    update,
    update_gpu,
    window,
)
from mlir_lowering.targets import Target

_SOFTWARE: dict[str, ScheduleDef] = {
    "contraction": contraction_software.SCHEDULE,
    "reduce": reduce.SCHEDULE,
    "reduce_window": window.REDUCE_WINDOW,
    "select_and_scatter": window.SELECT_AND_SCATTER,
    "dynamic_update_slice": update.DYNAMIC_UPDATE_SLICE,
    "scatter": update.SCATTER,
    "sort": sort.SCHEDULE,
}
# Windows run in the pointwise nest, which looks at the target itself.
_GPU: dict[str, ScheduleDef] = _SOFTWARE | {
    "contraction": contraction_gpu.SCHEDULE,
    "reduce": reduce_gpu.SCHEDULE,
    "dynamic_update_slice": update_gpu.DYNAMIC_UPDATE_SLICE,
    "scatter": update_gpu.SCATTER,
    "sort": sort_gpu.SCHEDULE,
}


def schedule_of(name: str | None, target: Target) -> ScheduleDef:
    """The schedule that OpDef.schedule names, for a device where a thread is a strip or for a GPU."""
    return (_SOFTWARE if target.is_software else _GPU)[name or ""]
