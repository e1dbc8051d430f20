"""csrc/software: compiling, caching and running kernels, driven by device_test.cc."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import programs
from tests.programs import ROOT

SOURCE = ROOT / "tests/software/device_test.cc"
CHECKS = programs.checks(SOURCE)


@pytest.fixture(scope="session")
def program() -> Path:
    return programs.program([*programs.SOFTWARE, SOURCE])


class Runner:
    """Runs checks with a cache folder and a folder for temporary files of their own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.cache = folder / "cache"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()

    def start(self, check: str, **changes: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PJRT_METAL_")}
        environment |= {
            "PJRT_METAL_CACHE_DIR": str(self.cache),
            "PJRT_METAL_THREADS": "4",
            "TMPDIR": str(self.temporary),
        }
        return subprocess.Popen(
            [self.program, check],
            env=environment | changes,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, check: str, **changes: str) -> str:
        """The check's output. Fails the test if the check does."""
        process = self.start(check, **changes)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        return output

    def entries(self) -> list[Path]:
        return sorted(self.cache.glob("*.so"))


@pytest.fixture
def run(program: Path, tmp_path: Path) -> Runner:
    return Runner(program, tmp_path)


@pytest.mark.parametrize("check", CHECKS)
def test_check(run: Runner, check: str) -> None:
    run(check)


@pytest.mark.parametrize("threads", ["1", "2", "7"])
def test_threads(run: Runner, threads: str) -> None:
    run("every_thread_runs_once", PJRT_METAL_THREADS=threads)
    assert f":threads={threads}," in run("print_info", PJRT_METAL_THREADS=threads)


def test_info(run: Runner) -> None:
    kind, target, memory = run("print_info", PJRT_METAL_THREADS="").splitlines()
    assert re.fullmatch(r"software Metal \(.+\)", kind)
    assert re.fullmatch(r"software:threads=\d+,vector_bytes=(16|32|64)", target)
    assert f"threads={len(os.sched_getaffinity(0))}," in target
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < int(memory) <= physical


def test_creating_touches_nothing(run: Runner) -> None:
    run("print_info", PATH="")
    run("empty_compile", PATH="")
    assert not run.cache.exists()
    assert not list(run.temporary.iterdir())


def test_hash_is_blake2b(run: Runner) -> None:
    text = "".join(chr(ord("a") + i % 26) for i in range(400))
    expected = [hashlib.blake2b(text[:n].encode(), digest_size=32).hexdigest() for n in range(401)]
    assert run("print_hashes").split() == expected


def test_cached_kernels_need_no_compiler(run: Runner) -> None:
    run("no_compiler", PATH="")
    run("many_kernels")
    assert len(run.entries()) == 40
    assert run.cache.stat().st_mode & 0o777 == 0o700
    before = {path: path.stat().st_ino for path in run.entries()}
    run("many_kernels", PATH="")
    assert {path: path.stat().st_ino for path in run.entries()} == before
    assert not list(run.temporary.iterdir())


def test_the_chosen_compiler_is_part_of_the_key(run: Runner) -> None:
    run("add")
    run("wrong_compiler", PJRT_METAL_CXX="no-such-compiler")


@pytest.mark.parametrize("where", [0, 100, -1, -20, -60, -100])
def test_damaged_entry_is_replaced(run: Runner, where: int) -> None:
    run("add")
    (entry,) = run.entries()
    sound = entry.read_bytes()
    damaged = bytearray(sound)
    damaged[where] ^= 1
    entry.write_bytes(damaged)
    run("no_compiler", PATH="")
    run("add")
    assert entry.read_bytes() != damaged
    run("add", PATH="")


@pytest.mark.parametrize("size", [0, 1, 55, 56, 1000])
def test_truncated_entry_is_replaced(run: Runner, size: int) -> None:
    run("add")
    (entry,) = run.entries()
    entry.write_bytes(entry.read_bytes()[:size])
    run("no_compiler", PATH="")
    run("add")
    run("add", PATH="")


def test_entry_of_another_kernel_is_not_used(run: Runner) -> None:
    run("add")
    (entry,) = run.entries()
    run("same_name_other_content")
    other = next(path for path in run.entries() if path != entry)
    shutil.copy(other, entry)
    run("no_compiler", PATH="")


def test_processes_share_a_cache(run: Runner) -> None:
    processes = [run.start("many_kernels") for _ in range(4)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert len(run.entries()) == 40
    assert {path.name for path in run.cache.iterdir()} - {path.name for path in run.entries()} == {"trimmed"}
    run("many_kernels", PATH="")


def test_user_cache_folders(run: Runner, tmp_path: Path) -> None:
    home, caches = tmp_path / "home", tmp_path / "deep/caches"
    run("add", PJRT_METAL_CACHE_DIR="", XDG_CACHE_HOME="", HOME=str(home))
    assert len(list((home / ".cache/pjrt-metal").glob("*.so"))) == 1
    run("add", PJRT_METAL_CACHE_DIR="", XDG_CACHE_HOME=str(caches), HOME=str(home))
    assert len(list((caches / "pjrt-metal").glob("*.so"))) == 1
    run("add", PJRT_METAL_CACHE_DIR="", XDG_CACHE_HOME="", HOME="")


def fill(cache: Path, count: int, kilobytes: int) -> list[Path]:
    """Files as the cache could have had, the last one used most recently."""
    paths = [cache / f"{i:064x}.so" for i in range(count)]
    for i, path in enumerate(paths):
        path.write_bytes(bytes(kilobytes << 10))
        os.utime(path, (1e9 + i, 1e9 + i))
    return paths


def test_cache_is_bounded(run: Runner) -> None:
    """What was used last stays, with all its names; abandoned files go, those that are being written do not."""
    run("add", PJRT_METAL_CACHE_MB="1")
    (entry,) = run.entries()
    os.utime(entry, (1e9 + 1000, 1e9 + 1000))
    old = fill(run.cache, 30, 64)
    second_name = run.cache / ("f" * 64 + ".so")
    second_name.hardlink_to(old[-1])
    first_of_two = run.cache / ("e" * 64 + ".so")
    first_of_two.hardlink_to(old[0])
    abandoned, young = run.cache / "new.1.0", run.cache / "new.1.1"
    for path in (abandoned, young):
        path.write_bytes(b"x")
    os.utime(abandoned, (1e9, 1e9))
    run("same_name_other_content", PJRT_METAL_CACHE_MB="1")
    assert old[0].exists()  # somebody looked through the folder a moment ago
    os.utime(run.cache / "trimmed", (1e9, 1e9))
    run("every_parameter", PJRT_METAL_CACHE_MB="1")
    kept = [path for path in old if path.exists()]
    assert kept == old[-len(kept) :]
    assert 8 <= len(kept) <= 14  # nine tenths of a megabyte, less the kernels
    assert second_name.exists() and not first_of_two.exists()
    assert young.exists() and not abandoned.exists()
    assert entry.exists()
    run("add", PATH="")


def test_use_is_noted(run: Runner) -> None:
    run("add")
    (entry,) = run.entries()
    os.utime(entry, (1e9, 1e9))
    run("add", PATH="")
    assert entry.stat().st_mtime > 1.5e9


def test_processes_share_a_bounded_cache(run: Runner) -> None:
    """Each looks through the folder all the time, and deletes what the others are about to load."""
    run("add")
    for _ in range(3):
        fill(run.cache, 100, 16)
        os.utime(run.cache / "trimmed", (1e9, 1e9))
        for path in run.entries():
            os.utime(path, (1e9, 1e9))
        processes = [run.start(check, PJRT_METAL_CACHE_MB="1") for check in ["many_kernels", "unloading"] * 2]
        for process in processes:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    blocks = {path.stat().st_ino: path.stat().st_blocks for path in run.cache.iterdir()}
    assert sum(blocks.values()) * 512 < 2 << 20


def test_bound_that_is_no_number(run: Runner) -> None:
    for bound in ("0", "-1", "many"):
        run("wrong_bound", PJRT_METAL_CACHE_MB=bound)


def refused(run: Runner) -> None:
    """Kernels run, each time compiled anew, and the user is told."""
    process = run.start("add")
    _, log = process.communicate(timeout=120)
    assert process.returncode == 0, log
    assert "PJRT_METAL_CACHE_DIR cannot be used" in log
    assert str(run.cache) in log
    run("no_compiler", PATH="")


def test_cache_folder_others_may_write(run: Runner) -> None:
    run("add")
    run.cache.chmod(0o770)
    refused(run)


def test_cache_folder_of_another_user(run: Runner) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give a folder away")
    run("add")
    os.chown(run.cache, 12345, 12345)
    refused(run)


def test_cache_folder_that_cannot_be_made(run: Runner) -> None:
    run.cache.write_text("a file")
    refused(run)
    run.cache = run.cache / "below"
    refused(run)


def test_cache_that_takes_no_files(run: Runner) -> None:
    """An entry's place is taken by a folder: the kernel runs, the log says that it was not kept."""
    run("add")
    (entry,) = run.entries()
    entry.unlink()
    (entry / "full").mkdir(parents=True)
    process = run.start("add", PJRT_METAL_LOG="1")
    _, log = process.communicate(timeout=120)
    assert process.returncode == 0, log
    assert "not cached" in log
    assert run.entries() == [entry]


def test_log_names_phases(run: Runner) -> None:
    for expected in ["software: compile", "software: disk cache"]:
        process = run.start("add", PJRT_METAL_LOG="1")
        _, log = process.communicate(timeout=120)
        assert expected in log


def test_kernel_with_an_error(run: Runner) -> None:
    message = run("source_with_error")
    (command,) = re.findall("^repeat with: (.*)$", message, re.MULTILINE)
    (source,) = re.findall("^source: (.*)$", message, re.MULTILINE)
    assert "undeclared_name" in Path(source).read_text()
    repeated = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert repeated.returncode != 0
    assert "undeclared_name" in repeated.stderr
    assert len(list(run.temporary.iterdir())) == 1  # of the failed compilation alone


def test_compilers_that_fail(run: Runner, tmp_path: Path) -> None:
    run("wrong_compiler", PJRT_METAL_CXX=str(tmp_path / "missing"))
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF, but not really")
    broken.chmod(0o755)
    run("wrong_compiler", PJRT_METAL_CXX=str(broken))
    run("useless_compiler", PJRT_METAL_CXX=shutil.which("true") or "")
    run("useless_compiler", PJRT_METAL_CXX=shutil.which("false") or "")


def test_compiler_with_options_and_spaces(run: Runner, tmp_path: Path) -> None:
    run("add", PJRT_METAL_CXX="g++ -g0", PATH=os.environ["PATH"])
    script = tmp_path / "my compiler"
    script.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    script.chmod(0o755)
    run("add", PJRT_METAL_CXX=str(script))


def test_ziglang_is_the_last_resort(run: Runner, tmp_path: Path) -> None:
    """A stand-in for a Python that has the package, alone on PATH."""
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text(
        '#!/bin/sh\n[ "$*" = "-c import ziglang" ] && exit 0\n'
        f'[ "$1 $2 $3" = "-m ziglang cc" ] || exit 1\nshift 3\nPATH={os.environ["PATH"]}\n'
        'exec gcc "$@"\n'
    )
    python.chmod(0o755)
    run("add", PATH=str(python.parent))
    python.write_text("#!/bin/sh\nexit 1\n")
    run.cache = tmp_path / "another"
    run("no_compiler", PATH=str(python.parent))


def test_no_room_for_temporary_files(run: Runner) -> None:
    run("no_temporary_folder")
    assert not list(run.temporary.iterdir())


def test_temporary_folder_that_is_missing(run: Runner, tmp_path: Path) -> None:
    run("add", TMPDIR=str(tmp_path / "missing"))
