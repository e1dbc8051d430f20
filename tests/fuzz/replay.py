"""Runs kept programs: `python -m tests.fuzz.replay [--device fast] FILE...` prints what is wrong with each."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.fuzz import values
from tests.fuzz.devices import DEVICES, Device
from tests.fuzz.kept import FOLDER, Kept, read


def failure(kept: Kept, device: Device) -> str | None:
    """What the device gets wrong of a kept program."""
    (answer,) = device.run([(kept.text, [kept.inputs])])
    if answer[0] == "error":
        return str(answer[1])
    lines = []
    for number, ((dtype, want), got) in enumerate(zip(kept.results, answer[1][0], strict=True)):
        if what := values.compare(got, want, dtype):
            lines.append(f"result {number}: {what}")
    return "\n".join(lines) or None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=DEVICES, default="fast")
    parser.add_argument("files", nargs="*", type=Path, default=sorted(FOLDER.glob("*.mlir")))
    options = parser.parse_args()
    device = Device(options.device)
    wrong = 0
    for path in options.files:
        what = failure(read(path), device)
        print(f"{path.name}: {what or 'right'}"[:1500], flush=True)
        wrong += what is not None
    device.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
