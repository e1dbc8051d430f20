"""python -m pjrt_metal doctor: what this machine has, and whether the metal platform computes what the CPU does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m pjrt_metal", description="Tools of pjrt-metal.")
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="say what was found, test it, write a report")
    doctor.add_argument("--full", action="store_true", help="every sample of every op, not only one an op (minutes)")
    doctor.add_argument("--op", action="append", metavar="NAME", help="test this op only, such as stablehlo.tanh")
    doctor.add_argument(
        "--report", type=Path, metavar="PATH", help="write PATH.txt and PATH.json, to attach to an issue"
    )
    options, unknown = parser.parse_known_args()
    if unknown:
        doctor.error(f"unrecognized arguments: {' '.join(unknown)}")

    import mlir_lowering.ops
    from mlir_lowering.registry import OPS
    from pjrt_metal import doctor as doctor_module

    assert mlir_lowering.ops
    if wrong := [name for name in options.op or () if name not in OPS]:
        doctor.error(f"no op is called {', '.join(wrong)}; names are like stablehlo.tanh")
    if options.report and not options.report.parent.is_dir():
        doctor.error(f"--report {options.report}: there is no folder {options.report.parent}")
    return doctor_module.run(full=options.full, only=options.op, path=options.report)


if __name__ == "__main__":
    sys.exit(main())
