"""Verifiers of the compiler's own representations (Graph, groups, buffer plan), run after the stage that made them.

They share nothing with the code that they check but the data it made. PJRT_METAL_VERIFY_IR=1 turns them on (all our
tests do), and PJRT_METAL_DUMP does. Each takes time about linear in the program.
"""

from __future__ import annotations

import os

from mlir_lowering.errors import INTERNAL, CompileError


class VerificationError(CompileError):
    """The compiler made something that is wrong: a defect of the compiler, not of the program."""

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(
            f"the compiler's {stage} is wrong (a defect of pjrt-metal: please report it): {message}", INTERNAL
        )


def enabled() -> bool:
    return os.environ.get("PJRT_METAL_VERIFY_IR", "0") not in ("", "0") or bool(os.environ.get("PJRT_METAL_DUMP"))
