"""Schedules: each turns a Group into kernels for a Target. `OpDef.schedule` names one of SCHEDULES."""

from __future__ import annotations

from mlir_lowering.kernel import ScheduleDef
from mlir_lowering.schedules import contraction_software, reduce, sort, update, window

SCHEDULES: dict[str, ScheduleDef] = {
    "contraction": contraction_software.SCHEDULE,
    "reduce": reduce.SCHEDULE,
    "reduce_window": window.REDUCE_WINDOW,
    "select_and_scatter": window.SELECT_AND_SCATTER,
    "dynamic_update_slice": update.DYNAMIC_UPDATE_SLICE,
    "scatter": update.SCATTER,
    "sort": sort.SCHEDULE,
}
