"""Contractions through MPSGraph: JAX on the fake GPU, and who does them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.metal import build_fake
from tests.metal.library_cases import CASES
from tests.programs import ROOT

OURS = {"prologue", "epilogue", "integers"}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for tests that need nothing of its being empty."""
    return tmp_path_factory.mktemp("cache")


def run(cache: Path, library: str, *names: str, **variables: str) -> tuple[dict[str, tuple[int, float]], str]:
    """Calls and error of each case, and the log."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(build_fake.library()),
        "JAX_PLATFORMS": "metal,cpu",
        "PJRT_METAL_DEVICE": "gpu",
        "PJRT_METAL_LIBRARY": library,
        "PJRT_METAL_CACHE_DIR": str(cache),
        "PJRT_METAL_LOG": "1",
        "PJRT_METAL_STRICT_ORDERS": "1",
        "FAKE_METAL_INHERIT": "1",  # the process that tries calls
        **variables,
    }
    command = [sys.executable, "-m", "tests.metal.library_cases", *names]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert ran.returncode == 0, ran.stderr
    *lines, last = ran.stdout.splitlines()
    assert last == "violations: "
    found = {name: (int(calls), float(error)) for name, calls, error in map(str.split, lines)}
    assert set(found) == set(names) - {"assert", "kill", ""}
    return found, ran.stderr


def test_mpsgraph_agrees_with_the_cpu(kernels: Path) -> None:
    found, _ = run(kernels, "mpsgraph", *CASES)
    assert {name: calls for name, (calls, _) in found.items() if (calls == 0) != (name in OURS)} == {}
    assert found["dot_dot"][0] == 3
    # Rounded once; a chain three times, of sums of 30 products.
    assert {
        name: error for name, (_, error) in found.items() if error > (1 if name not in {*OURS, "dot_dot"} else 64)
    } == {}


def test_kernels_never_calls_the_library(kernels: Path) -> None:
    found, log = run(kernels, "kernels", "dot", "nhwc")
    assert [calls for calls, _ in found.values()] == [0, 0]
    assert "library:" not in log


def choices(log: str) -> list[str]:
    return [line.split()[2] for line in log.splitlines() if re.match(r"pjrt_metal: library: (mpsgraph|kernels) ", line)]


def sealed(text: bytes) -> bytes:
    """A remembered choice with the hash that fits."""
    return text + hashlib.blake2b(text, digest_size=32).hexdigest().encode() + b"\n"


def test_auto_times_once_and_remembers(tmp_path: Path) -> None:
    found, log = run(tmp_path, "auto", "dot", "dot_long", "dot")
    first = choices(log)
    assert first == ["mpsgraph", "mpsgraph"]  # the fake's is faster
    assert all(calls > 2 for name, (calls, _) in found.items() if name == "dot_long")  # timing
    files = {path: path.read_bytes() for path in tmp_path.glob("library-*.txt")}
    assert len(files) == 2
    assert log.count("library: trial ") == 2  # one process a program, of calls that are new
    remember(tmp_path, "0x1p-15 0x1p-14")  # too short to be worth measuring again
    found, log = run(tmp_path, "auto", "dot", "dot_long")
    assert choices(log) == first and "library: trial" not in log
    assert [calls for calls, _ in found.values()] == [1, 1]

    # What was remembered decides; the CPU's time for a call counts.
    for times, wins in (
        ("0x1p-14 0x1p-15", "kernels"),
        ("0x1p-15 0x1.4p-15", "kernels"),
        ("0x1p-15 0x1.bp-15", "mpsgraph"),
    ):
        remember(tmp_path, times)
        found, log = run(tmp_path, "auto", "dot", "dot_long")
        assert choices(log) == [wins, wins]
        assert [calls for calls, _ in found.values()] == [wins == "mpsgraph"] * 2
    assert "(mpsgraph 0.0305 ms, kernels 0.0515 ms)" in log


def remember(folder: Path, times: str) -> None:
    """Other times for every choice that the folder has."""
    for path in folder.glob("library-*.txt"):
        *key, old, _ = path.read_bytes().splitlines(keepends=True)
        assert sealed(b"".join([*key, old])) == path.read_bytes()
        path.write_bytes(sealed(b"".join([*key, times.encode(), b"\n"])))


def test_what_takes_long_is_timed_in_each_process(tmp_path: Path) -> None:
    run(tmp_path, "auto", "dot")
    remember(tmp_path, "0x1p-9 0x1p-10")  # kernels, by what is remembered
    found, log = run(tmp_path, "auto", "dot", "dot")
    assert choices(log) == ["mpsgraph"] and "library: trial" not in log
    assert found["dot"][0] == 1  # the second time: it is measured once a process
    (path,) = tmp_path.glob("library-*.txt")
    assert b"0x1p-9 0x1p-10" not in path.read_bytes()


def test_damaged_memory_is_timed_again(tmp_path: Path) -> None:
    run(tmp_path, "auto", "dot")
    (path,) = tmp_path.glob("library-*.txt")
    whole = path.read_bytes()
    for damaged in (b"", whole[:-10], whole.replace(b"0x1", b"0x3"), whole + b"x", sealed(b"other\n0x1p-9 0x1p-10\n")):
        path.write_bytes(damaged)
        found, log = run(tmp_path, "auto", "dot")
        assert f"{path} will be replaced" in log
        assert found["dot"][0] > 2
        text = path.read_bytes()
        assert text.startswith(whole[: whole.index(b"0x1")]) and sealed(text[:-65]) == text
    path.unlink()
    path.parent.chmod(0o777)
    found, log = run(tmp_path, "auto", "dot")
    assert "others may write there" in log and found["dot"][0] > 2 and not path.exists()


def test_what_ends_a_process_is_tried_in_another(tmp_path: Path) -> None:
    """An assertion costs the user nothing, and is met once: the library is called no more, for any shape."""
    found, log = run(tmp_path, "auto", "dot", "dot_long", FAKE_METAL_FAIL="assert")
    assert [calls for calls, _ in found.values()] == [0, 0]
    assert log.count("library: trial ") == 1 and log.count("library: condemned ") == 1
    (path,) = tmp_path.glob("library-condemned-*.txt")
    assert re.fullmatch(r"matmul .*: a process that tried it: exit status 134.*", path.read_text())
    found, log = run(tmp_path, "auto", "dot_batched")
    assert found["dot_batched"][0] == 0 and "library: trial" not in log
    assert f"delete {path} to try it again" in log
    path.unlink()
    assert choices(run(tmp_path, "auto", "dot")[1]) == ["mpsgraph"]


def test_a_killed_trial_condemns_nothing(tmp_path: Path) -> None:
    found, log = run(tmp_path, "auto", "dot", FAKE_METAL_FAIL="kill")
    assert found["dot"][0] == 0 and "library: not tried" in log and "killed by signal 9" in log
    assert list(tmp_path.glob("library-*")) == []
    assert choices(run(tmp_path, "auto", "dot")[1]) == ["mpsgraph"]


def timing(folder: Path) -> Path:
    """The file that stands while "dot" is timed, for whoever comes next."""
    run(folder, "auto", "dot")
    (path,) = folder.glob("library-*.txt")
    path.unlink()
    return path.with_name(path.name + ".trying")


def test_a_process_killed_while_timing_leaves_the_library_on(tmp_path: Path) -> None:
    path = timing(tmp_path)
    path.write_bytes(b"x")
    found, log = run(tmp_path, "auto", "dot")
    assert choices(log) == ["mpsgraph"] and found["dot"][0] > 2 and not path.exists()


def test_nobody_times_what_another_process_times(tmp_path: Path) -> None:
    path = timing(tmp_path)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found, log = run(tmp_path, "auto", "dot")
    assert found["dot"][0] == 0 and f"another process times mpsgraph just now: {path}" in log
    assert choices(run(tmp_path, "auto", "dot")[1]) == ["mpsgraph"]


def test_what_ends_every_process_that_times_it_is_condemned(tmp_path: Path) -> None:
    """Not by the trial's process, but by each that times it."""
    path = timing(tmp_path)
    path.write_bytes(b"xxx")
    found, log = run(tmp_path, "auto", "dot")
    assert found["dot"][0] == 0 and "3 processes ended while they timed it" in log
    assert len(list(tmp_path.glob("library-condemned-*.txt"))) == 1


def test_without_a_process_to_try_in_kernels_run(tmp_path: Path) -> None:
    program = "import sys; sys.executable = ''; from tests.metal import library_cases as c; c.main(['dot'])"
    environment = {
        **os.environ,
        "LD_PRELOAD": str(build_fake.library()),
        "PJRT_METAL_DEVICE": "gpu",
        "JAX_PLATFORMS": "metal,cpu",
        "PJRT_METAL_CACHE_DIR": str(tmp_path / "other"),
        "PJRT_METAL_LOG": "1",
    }
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "nobody has said how to make one" in ran.stderr and ran.stdout.startswith("dot 0 ")


def test_a_wrong_choice_is_refused() -> None:
    environment = {**os.environ, "PJRT_METAL_LIBRARY": "metal", "JAX_PLATFORMS": "metal"}
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert "PJRT_METAL_LIBRARY=metal: expected auto, mpsgraph or kernels" in ran.stderr
