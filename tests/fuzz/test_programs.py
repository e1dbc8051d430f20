"""Random programs with fixed seeds, and those that once failed (found/*.mlir).

More of them: `python -m tests.fuzz.programs --minutes 60`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.devices import Device, expected
from tests.fuzz.generate import build
from tests.fuzz.kept import FOLDER, kept_text, read
from tests.fuzz.programs import STYLES, input_sets, style_of
from tests.fuzz.replay import failure
from tests.metal import build_fake

KEPT = sorted(FOLDER.glob("*.mlir"))
BATCH = 32
# Device, first seed, programs; the strict devices interpret.
_DAILY = [("fast", 0, 96)]
_SLOW = [("fast", 96, 224), ("checked", 0, 32), ("apple7", 0, 16), ("apple9", 16, 48), ("fake", 0, 16)]
_RUNS = [
    *(pytest.param(device, first, count) for device, first, count in _DAILY),
    *(pytest.param(device, first, count, marks=pytest.mark.slow) for device, first, count in _SLOW),
]


@pytest.fixture(scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    if request.param.startswith("fake"):
        build_fake.require_objective_c()
    found = Device(request.param)
    yield found
    found.close()


@pytest.mark.parametrize("path", KEPT, ids=[p.stem for p in KEPT])
@pytest.mark.parametrize("device", ["fast", "apple9"], indirect=True)
def test_found(device: Device, path: Path) -> None:
    assert failure(read(path), device) is None


@pytest.mark.parametrize(("device", "first", "count"), _RUNS, indirect=["device"])
def test_random_programs(device: Device, first: int, count: int) -> None:
    problems = []
    for begin in range(first, first + count, BATCH):
        seeds = range(begin, min(begin + BATCH, first + count))
        cases = [build(seed, STYLES[style_of(seed)]) for seed in seeds]
        items = [(case, input_sets(case, seed)) for seed, case in zip(seeds, cases, strict=True)]
        for seed, case, found in zip(seeds, cases, device.check(items), strict=True):
            if found:
                text = kept_text(case, found.inputs, expected(case, found.inputs), found.what)
                problems.append(f"seed {seed} {style_of(seed)}: {found.what}\n{text[:4000]}")
    assert not problems, "\n\n".join(problems)
