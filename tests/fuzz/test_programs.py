"""Random programs with fixed seeds, and those that once failed (found/*.mlir).

More of them: `python -m tests.fuzz.programs --minutes 60`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.devices import Device
from tests.fuzz.generate import build
from tests.fuzz.kept import FOLDER, kept_text, read
from tests.fuzz.programs import STYLES, input_sets, style_of
from tests.fuzz.replay import failure
from tests.fuzz.devices import expected

KEPT = sorted(FOLDER.glob("*.mlir"))
# Programs with fixed seeds on each device. The strict devices interpret: some 0.5 s a program.
COUNTS = {"fast": 256, "checked": 32, "apple7": 16, "apple9": 32, "fake": 16}
BATCH = 32
_DEVICES = [
    pytest.param(name, marks=[pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")] if name == "fake" else [])
    for name in COUNTS
]


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    found = Device(request.param)
    yield found
    found.close()


@pytest.mark.parametrize("path", KEPT, ids=[p.stem for p in KEPT])
@pytest.mark.parametrize("device", ["fast", "apple9"], indirect=True)
def test_found(device: Device, path: Path) -> None:
    assert failure(read(path), device) is None


@pytest.mark.parametrize("device", _DEVICES, indirect=True)
def test_random_programs(device: Device) -> None:
    problems = []
    for first in range(0, COUNTS[device.name], BATCH):
        seeds = range(first, min(first + BATCH, COUNTS[device.name]))
        cases = [build(seed, STYLES[style_of(seed)]) for seed in seeds]
        items = [(case, input_sets(case, seed)) for seed, case in zip(seeds, cases, strict=True)]
        for seed, case, found in zip(seeds, cases, device.check(items), strict=True):
            if found:
                text = kept_text(case, found.inputs, expected(case, found.inputs), found.what)
                problems.append(f"seed {seed} {style_of(seed)}: {found.what}\n{text[:4000]}")
    assert not problems, "\n\n".join(problems)
