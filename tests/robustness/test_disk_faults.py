"""A disk that is full, read-only or loses power, a cache that goes away, a compiler that dies or hangs: kernels run, or
an error says why they do not, and the next process finds nothing that is wrong."""

from __future__ import annotations

import re
import shutil
import threading
import time
from pathlib import Path

import pytest

from tests import programs
from tests.programs import ROOT
from tests.robustness import preload
from tests.software.test_device import Runner

SOURCE = ROOT / "tests/software/device_test.cc"


@pytest.fixture(scope="session")
def program() -> Path:
    return programs.program([*programs.SOFTWARE, SOURCE])


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Runner:
    return Runner(program, tmp_path)


def faulty(run: Runner, folder: Path, fault: str, **changes: str) -> tuple[int, str]:
    """How a process that compiles and runs a kernel ends, and what it logs."""
    changes |= {"PJRT_METAL_LOG": "1"} | preload.environment(folder, fault)
    process = run.start("add", **changes)
    _, log = process.communicate(timeout=120)
    return process.returncode, log


@pytest.mark.parametrize("room", [0, 1, 100, 2000])
def test_full_cache(run: Runner, room: int) -> None:
    run.cache.mkdir(mode=0o700)
    status, log = faulty(run, run.cache, f"full:{room}")
    assert status == 0, log
    assert "No space left on device" in log
    assert {path.name for path in run.cache.iterdir()} <= {"trimmed"}  # nothing half-written stays
    run("add")
    run("add", PATH="")  # from the cache


def test_read_only_cache(run: Runner) -> None:
    run.cache.mkdir(mode=0o700)
    status, log = faulty(run, run.cache, "readonly")
    assert status == 0, log
    assert "Read-only file system" in log
    run("add")
    status, log = faulty(run, run.cache, "readonly", PATH="")
    assert status == 0, log  # what is there is used


def test_full_or_read_only_temporary_folder(run: Runner) -> None:
    """There are others."""
    for fault in ("full:0", "full:2000", "readonly"):
        shutil.rmtree(run.cache, ignore_errors=True)
        status, log = faulty(run, run.temporary, fault)
        assert status == 0, log
        assert not list(run.temporary.glob("pjrt_metal*"))


def test_power_loss_at_each_change_of_the_cache(run: Runner) -> None:
    """After it the next process finds a whole entry, or none."""
    for change in range(1, 20):
        status, log = faulty(run, run.cache, f"power:{change}")
        if status == 0:
            break  # it made fewer changes than that
        assert status == 137, log
        entries = [path for path in run.entries() if path.suffix == ".so"] if run.cache.exists() else []
        for entry in entries:
            assert b"pjrtmtl" in entry.read_bytes()[-64:]
        run("add")
        run("add", PATH="")
        shutil.rmtree(run.cache)
    else:
        raise AssertionError("there is no end of changes")
    assert change > 4


def test_cache_is_deleted_all_the_time(run: Runner) -> None:
    stop = threading.Event()

    def delete() -> None:
        while not stop.is_set():
            shutil.rmtree(run.cache, ignore_errors=True)
            time.sleep(0.002)

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        for _ in range(3):
            run("many_kernels")
    finally:
        stop.set()
        thread.join()
    run("many_kernels")
    run("many_kernels", PATH="")


def compiler(path: Path, text: str) -> str:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


OUTPUT = 'while [ "$1" != -o ]; do shift; done; output=$2\n'
COMPILERS: dict[str, tuple[str, str]] = {
    "is killed": ("kill -9 $$\n", r"killed by signal 9"),
    "is killed by the system": ("kill -SEGV $$\n", r"killed by signal 11"),
    "hangs": ("exec sleep 100\n", r"killed after 1 s"),
    "prints garbage": ("head -c 100000 /dev/urandom; exit 1\n", r"exit status 1"),
    "prints without end": ("yes garbage | head -c 30000000; exit 1\n", r"exit status 1"),
    "writes nothing": ("exit 0\n", r"exit status 0"),
    "writes garbage": (OUTPUT + "head -c 5000 /dev/urandom > $output\n", r"could not be loaded"),
    "writes an empty file": (OUTPUT + ": > $output\n", r"could not be loaded"),
    "writes half a library": (
        'g++ "$@" || exit 1\n'
        + OUTPUT
        + "head -c $(($(wc -c < $output) / 2)) $output > $output.half; mv $output.half $output\n",
        r"wrote half a library",
    ),
    "writes another library": (
        OUTPUT + 'echo "int other;" | g++ -shared -x c++ -o $output -\n',
        r"could not be loaded",
    ),
}


@pytest.mark.parametrize("how", COMPILERS)
def test_compiler(run: Runner, tmp_path: Path, how: str) -> None:
    text, message = COMPILERS[how]
    path = tmp_path / "cxx"
    variables = {"PJRT_METAL_CXX": compiler(path, text), "PJRT_METAL_CXX_SECONDS": "1" if how == "hangs" else "100"}
    process = run.start("add", **variables)
    assert process.stderr is not None
    errors = process.stderr.buffer.read().decode(errors="replace")
    assert process.wait(60) == 1, errors[:3000]  # an exception, not a signal
    assert re.search(message, errors), errors[:3000]
    compiler(path, 'exec g++ "$@"\n')  # the same name: what the bad one left would be found under its key
    run("add", PJRT_METAL_CXX=str(path))
    run("add", PJRT_METAL_CXX=str(path))
