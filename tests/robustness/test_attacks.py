"""The plugin under attack and under sanitizers: an error each, no crash, no hang, no leak. Short forms; all of it:

python -m tests.robustness.test_attacks 100000        (make sanitize)
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.robustness import attack_corpus, sanitized

HERE = Path(__file__).parent
# Compiled for software devices and for a GPU, whose Programs have library calls.
TARGETS = {"software": attack_corpus.SOFTWARE, "apple8": "apple8"}


def run(program: Path, *arguments: object, seconds: float = 600, **variables: str) -> list[int]:
    """The numbers in the program's last line."""
    command = [str(program), *map(str, arguments)]
    result = subprocess.run(
        command,
        env=sanitized.environment(**variables),
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
    )
    assert result.returncode == 0, f"{command} ended with {result.returncode}: {result.stderr[-8000:]}"
    print(result.stdout.splitlines()[-1], flush=True)
    return [int(number) for number in re.findall(r"\d+", result.stdout.splitlines()[-1])]


def corpus(target: str, folder: Path) -> Path:
    path = folder / "corpus"
    path.write_bytes(attack_corpus.corpus(target))
    return path


def attack(name: str) -> Path:
    """Of NAME.cc and NAME_*.cc."""
    return sanitized.attacker(
        "address", HERE / "plain_device.cc", HERE / f"{name}.cc", *sorted(HERE.glob(f"{name}_*.cc"))
    )


def programs(folder: Path, count: int, target: str, seed: int = 1) -> None:
    changed, refused, loaded, executed, _, options = run(
        attack("attack_programs"),
        corpus(target, folder),
        count,
        seed,
        PLAIN_TARGET=target,
        PJRT_METAL_LIBRARY="mpsgraph",
        seconds=7200,
    )
    assert changed == count == refused + loaded
    assert 0 < options < count
    assert refused > count // 2 and executed > count // 50  # some changes are harmless: not everything is refused


def api(folder: Path, rounds: int, seed: int = 1) -> None:
    _, calls, errors = run(attack("attack_api"), corpus(attack_corpus.SOFTWARE, folder), rounds, seed, seconds=7200)
    assert rounds * calls // 20 < errors < rounds * calls


def cache(folder: Path, count: int, seed: int = 1) -> None:
    program = sanitized.attacker("address", HERE / "attack_cache.cc")
    changed, refused, *_ = run(program, count, seed, PJRT_METAL_CACHE_DIR=str(folder / "kernels"), seconds=7200)
    assert changed == count and refused > count // 2


def choices(folder: Path, count: int, seed: int = 1) -> None:
    where = {"PJRT_METAL_CACHE_DIR": str(folder / "choices"), "PJRT_METAL_LIBRARY": "auto", "PLAIN_TARGET": "apple8"}
    changed, *became = run(attack("attack_choices"), corpus("apple8", folder), count, seed, seconds=7200, **where)
    assert changed == count == sum(became)
    refused, _, library, kernels, anew, _ = became
    assert refused > count // 3 and min(library, kernels, anew) > count // 100


def artifacts(count: int, seed: int = 1) -> None:
    """Not under sanitizers: MLIR is not built with them."""
    command = [sys.executable, "-m", "tests.robustness.attack_artifacts", str(count), str(seed)]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=14400)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    summary = result.stdout.splitlines()[-1]
    print(summary, flush=True)
    changed, refused, compiled, ended, endless, faults = map(int, re.findall(r"\d+", summary))
    assert changed == count == refused + compiled + ended + endless and faults == 0
    # Some change a name or a location only: not everything may be refused, or nothing was tried.
    assert refused > count // 2 and compiled > count // 50


def storm(folder: Path, rounds: int, kind: str, seed: int = 1) -> None:
    program = sanitized.attacker(kind, HERE / "storm.cc")
    variables = {"PJRT_METAL_THREADS": "4", "PJRT_METAL_CACHE_DIR": str(folder / "kernels")}
    target = subprocess.check_output([program, "target"], env=sanitized.environment(**variables), text=True).strip()
    _, _, sums, callbacks, _ = run(program, corpus(target, folder), rounds, seed, seconds=7200, **variables)
    assert sums > rounds and callbacks > sums


# What is under sanitizers has to be compiled with them first: minutes.
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", TARGETS)
def test_programs(tmp_path: Path, name: str) -> None:
    programs(tmp_path, 3000, TARGETS[name])


def test_api(tmp_path: Path) -> None:
    api(tmp_path, 60)


def test_cache(tmp_path: Path) -> None:
    cache(tmp_path, 3000)


def test_choices(tmp_path: Path) -> None:
    choices(tmp_path, 3000)


def test_artifacts() -> None:
    artifacts(600)


@pytest.mark.parametrize("kind", ["thread", "address"])
def test_storm(tmp_path: Path, kind: str) -> None:
    storm(tmp_path, 40, kind)


def main(count: int, seed: int) -> None:
    """`count` of everything that can be counted."""
    os.environ.setdefault("JAX_PLATFORMS", "metal,cpu")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for target in TARGETS.values():
            programs(folder, count // len(TARGETS), target, seed)
        api(folder, count // 300, seed)
        cache(folder, count, seed)
        choices(folder, count, seed)
        artifacts(count, seed)
        for kind in ("thread", "address"):
            storm(folder, count // 100, kind, seed)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
