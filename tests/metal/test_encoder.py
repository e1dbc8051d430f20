"""Submissions to the Metal device against the fake Metal, and faults planted in them that the fake must notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.programs import ROOT, checks, run

ENCODER = ROOT / "tests/metal/encoder_test.cc"
HOST_STEPS = ROOT / "tests/metal/host_steps_test.cc"
SOURCE_OF = {check: source for source in (ENCODER, HOST_STEPS) for check in checks(source)}


@pytest.fixture(scope="module")
def programs() -> dict[Path, Path]:
    return {source: build_fake.device_program(source) for source in (ENCODER, HOST_STEPS)}


@pytest.mark.parametrize("check", SOURCE_OF)
def test_against_fake_metal(programs: dict[Path, Path], check: str) -> None:
    result = run([str(programs[SOURCE_OF[check]]), check])
    assert result.returncode == 0, result.stderr


def test_gpu_times_are_logged(programs: dict[Path, Path]) -> None:
    result = run(["env", "PJRT_METAL_LOG=1", str(programs[ENCODER]), "times"])
    lines = re.findall(r"execute: gpu +([\d.]+) ms  (.*)", result.stderr)
    assert [detail for _, detail in lines[-4:]] == [
        "2 commands of 1 submissions",
        "2 commands of 1 submissions",
        "6 commands of 3 submissions",
        "1 commands of 1 submissions",
    ]
    assert all(0.2 <= float(milliseconds) < 1000 for milliseconds, _ in lines)


FAULTS = [
    (
        "hazards.cc",
        "one.begin < other.end && other.begin < one.end",
        "false",
        "copies_are_ordered",
        "no barrier is between",
    ),
    (
        "command_buffer.cc",
        "Send<Message::kMemoryBarrier>(encoder, kBarrierScopeBuffers);",
        "",
        "copies_are_ordered",
        "no barrier is between",
    ),
    ("pipelines.cc", "kind == ParamKind::kOutput}", "false}", "copies_are_ordered", "no barrier is between"),
    ("command_buffer.cc", "hazards_.Add(accesses);", "", "copies_are_ordered", "no barrier is between"),
    (
        "command_queue.cc",
        "kMaxBatches = 32",
        "kMaxBatches = 320",
        "many_command_buffers",
        "waits inside Metal",
    ),
    ("command_queue.cc", "if (batch->host_steps > 0) return;", "", "nothing_passes_a_host_step", "FakeCommitted"),
    ("command_queue.cc", "if (then.work && then.submission->error)", "if (false)", "host_errors", "skipped"),
    (
        "encoder.cc",
        "!Joins(recording_.work, grid.work)",
        "false",
        "work_of_a_command_buffer_is_bounded",
        "committed == 7",
    ),
    (
        "command_queue.cc",
        "!open_->commands->Takes(recording)",
        "false",
        "work_of_a_command_buffer_is_bounded",
        "committed == 7",
    ),
    ("encoder.cc", "if (encoded_)", "if (false)", "abandoned_submissions", "ran"),
]


@pytest.mark.parametrize(("file", "right", "wrong", "check", "message"), FAULTS)
def test_a_planted_fault_is_noticed(
    tmp_path: Path, file: str, right: str, wrong: str, check: str, message: str
) -> None:
    text = (ROOT / "csrc/metal" / file).read_text()
    assert text.count(right) == 1
    changed = tmp_path / file
    changed.write_text(text.replace(right, wrong))
    result = run([str(build_fake.device_program(SOURCE_OF[check], changed)), check])
    assert result.returncode == 1 and message in result.stderr, result.stderr
