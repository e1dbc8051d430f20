"""`python -m pjrt_metal doctor` in processes of its own: what it reports, what it exits with, what it leaves out."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlir_lowering.registry import OPS, Sample
from pjrt_metal import doctor, doctor_ops


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pjrt_metal", "doctor", *arguments]
    full = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, env=full, capture_output=True, text=True, timeout=300, check=False)


def report(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return result


def test_chosen_ops_pass_and_are_reported(tmp_path: Path) -> None:
    names = ("stablehlo.tanh", "stablehlo.dot_general")
    result = run(tmp_path, "--report", "report", *(word for name in names for word in ("--op", name)))
    assert result.returncode == 0, result.stdout + result.stderr
    assert (tmp_path / "report.txt").read_text() == result.stdout
    found = report(tmp_path)
    assert found["status"] == "passed"
    assert len(found["results"]) == sum(len(OPS[name].samples) for name in names)
    assert all(result["passed"] and result["seconds"] > 0 for result in found["results"])
    for key in ("system", "processor", "python", "jax", "jaxlib", "C++ compiler", "plugin library", "device", "target"):
        assert found["found"][key], key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--bogus",), "unrecognized arguments: --bogus"),
        (("--op", "stablehlo.tan", "--op", "stablehlo.thing"), "no op is called stablehlo.thing"),
        (("--report", "missing/report"), "there is no folder missing"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = run(tmp_path, *arguments)
    assert result.returncode == 2 and message in result.stderr and "--report PATH" in result.stderr


def test_the_report_has_no_personal_data(tmp_path: Path) -> None:
    home = tmp_path / "home" / "somebody"
    home.mkdir(parents=True)
    environment = {"HOME": str(home), "USER": "somebody", "LOGNAME": "somebody", "PJRT_METAL_CACHE_DIR": f"{home}/k"}
    assert run(tmp_path, "--report", "report", "--op", "stablehlo.abs", **environment).returncode == 0
    text = (tmp_path / "report.txt").read_text() + (tmp_path / "report.json").read_text()
    assert "~/k" in text
    assert all(secret not in text for secret in ("somebody", socket.gethostname(), sys.prefix))


def test_scrub_leaves_the_rest_as_it_was() -> None:
    text = doctor.scrub(f"{Path.home()}/a.py of {getpass.getuser()} on {socket.gethostname()}; /Users/alice/b")
    assert text == "~/a.py of <user> on <host>; /Users/<user>/b"
    assert doctor.scrub("stablehlo.tanh: 3 of 4 differ") == "stablehlo.tanh: 3 of 4 differ"


def test_without_a_device_it_fails_and_says_why(tmp_path: Path) -> None:
    result = run(tmp_path, "--report", "report", PJRT_METAL_DEVICE="nonsense")
    assert result.returncode == 1
    found = report(tmp_path)
    assert found["status"] == "failed" and "nonsense" in found["results"][0]["detail"]
    assert found["found"]["jax"]


def test_a_wrong_result_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: metal's answers are off by one part in a thousand."""
    execute = doctor_ops.run_text

    def off(text: str, inputs: list[Any], device: Any) -> list[Any]:
        return [x * np.float32(1.001 if device.platform == "metal" else 1) for x in execute(text, inputs, device)]

    record = OPS["stablehlo.exponential"]
    sample: Sample = next(sample for sample in record.samples if "xf32>" in sample.text)
    assert doctor_ops._compare(record, sample).startswith("largest difference")
    monkeypatch.setattr(doctor_ops, "run_text", off)
    with pytest.raises(AssertionError, match=r"stablehlo\.exponential"):
        doctor_ops._compare(record, sample)


def test_a_crash_leaves_what_was_running(tmp_path: Path) -> None:
    code = """
    import os, pathlib
    from pjrt_metal import doctor
    doctor._checks = lambda full, only: iter([doctor.Check("ops", "planted", lambda: os._exit(9))])
    doctor.run(False, None, pathlib.Path("report"))
    """
    command = [sys.executable, "-c", "\n".join(line.strip() for line in code.splitlines())]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False).returncode == 9
    assert report(tmp_path)["status"] == "died in ops: planted"
