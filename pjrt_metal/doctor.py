"""The doctor: what was found on this machine, a self-test against XLA's CPU backend, and a report of both.

The report has no personal data: no user's or machine's name, no path of a home folder. It is written anew before each
test, so that a crash leaves behind what was running.
"""

from __future__ import annotations

import getpass
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from importlib import metadata, util
from pathlib import Path

import pjrt_metal

PACKAGES = ("pjrt-metal", "jax", "jaxlib", "numpy", "ml_dtypes")
FIRST = "first minutes"  # a group of which all is told (doctor_first.py)
VARIABLES = ("JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_DISABLE_JIT", "JAX_DEFAULT_MATMUL_PRECISION", "XLA_FLAGS")


@dataclass(frozen=True)
class Check:
    """One test: `run` returns what was measured and raises if it is wrong."""

    group: str
    name: str
    run: Callable[[], str]


@dataclass
class Result:
    group: str
    name: str
    passed: bool
    seconds: float
    detail: str


@dataclass
class Report:
    """`status` is "passed", "failed" or, if the process died, what was running."""

    status: str = "starting"
    found: dict[str, str] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    def text(self) -> str:
        lines = ["pjrt-metal doctor", ""]
        lines += [f"{key + ':':<18} {value}" for key, value in self.found.items()]
        for group in dict.fromkeys(result.group for result in self.results):
            chosen = [result for result in self.results if result.group == group]
            passed = sum(result.passed for result in chosen)
            seconds = sum(result.seconds for result in chosen)
            lines += ["", f"{group}: {passed} of {len(chosen)} passed ({seconds:.1f} s)"]
            for result in chosen:
                if result.passed and group != FIRST:
                    continue
                lines += [f"  {'passed' if result.passed else 'FAILED'} {result.name}"]
                lines += [f"    {line}" for line in result.detail.splitlines()]
        return "\n".join([*lines, "", f"status: {self.status}", ""])

    def write(self, path: Path | None) -> None:
        if path is not None:
            path.with_suffix(".txt").write_text(self.text())
            path.with_suffix(".json").write_text(json.dumps(asdict(self), indent=1) + "\n")


def run(full: bool, only: list[str] | None, path: Path | None) -> int:
    """Prints and writes the report; the exit status, 0 only if everything passed."""
    report = Report(found=machine())
    # Before jax is imported. The CPU gives the expected results.
    os.environ["JAX_PLATFORMS"] = "metal,cpu"
    if only is None:
        _run_all(_first(), report, path)
    report.status = "died while opening the device"
    report.write(path)
    checks: list[Check] = []
    try:
        report.found.update(device())
        report.found["left out of ops"] = _left_out()
        checks = list(_checks(full, only))
    except Exception:
        report.results.append(Result("device", "open", False, 0.0, scrub(traceback.format_exc())))
    _run_all(checks, report, path)
    passed = bool(report.results) and all(result.passed for result in report.results)
    report.status = "passed" if passed else "failed"
    report.write(path)
    print(report.text(), end="")
    return 0 if passed else 1


def _run_all(checks: list[Check], report: Report, path: Path | None) -> None:
    for number, check in enumerate(checks):
        report.status = f"died in {check.group}: {check.name}"
        report.write(path)
        _progress(f"{number + 1}/{len(checks)} {check.name}")
        report.results.append(_run(check))
    _progress("")


def _first() -> list[Check]:
    from pjrt_metal import doctor_first

    return list(doctor_first.checks()) if doctor_first.applies() else []


def _checks(full: bool, only: list[str] | None) -> Iterator[Check]:
    from pjrt_metal import doctor_models, doctor_ops, doctor_schedules

    yield from doctor_ops.checks(full, only)
    if only is None:
        yield from doctor_schedules.checks()
        yield from doctor_models.checks()


def _left_out() -> str:
    from pjrt_metal import doctor_ops

    return "; ".join(f"{op} ({why})" for op, _, why in doctor_ops.NOT_COMPARED)


def _run(check: Check) -> Result:
    start = time.perf_counter()
    try:
        detail, passed = check.run(), True
    except Exception as error:
        detail, passed = f"{type(error).__name__}: {error}", False
    return Result(check.group, check.name, passed, round(time.perf_counter() - start, 3), scrub(detail))


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:78]}", end="", file=sys.stderr, flush=True)


def machine() -> dict[str, str]:
    """What can be said without opening the device."""
    mac = platform.mac_ver()[0]
    found = {
        "system": f"macOS {mac}" if mac else f"{platform.system()} {platform.release()}",
        "processor": f"{platform.machine()}, {_chip()}, {os.cpu_count()} cores",
        "memory": _gigabytes(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed (a source folder on sys.path?)"
    found["C++ compiler"] = _compiler()
    library = pjrt_metal.library_path()
    found["plugin library"] = f"{library.name}, {_size(library)}"
    compiled = util.find_spec("pjrt_metal._core") is not None
    found["compiler reached"] = "through _core" if compiled else "through ctypes"
    found["kernel cache"] = _cache()
    variables = {name: value for name, value in os.environ.items() if name in VARIABLES or "PJRT_METAL" in name}
    found["variables"] = scrub(" ".join(f"{name}={value}" for name, value in sorted(variables.items()))) or "none"
    return found


def device() -> dict[str, str]:
    """What the device says of itself; raises if there is none."""
    import jax

    chosen = jax.devices("metal")[0]
    statistics = chosen.memory_stats() or {}
    memories = ", ".join(memory.kind for memory in chosen.addressable_memories())
    return {
        "device": f"{chosen.device_kind} ({len(jax.devices('metal'))} in all)",
        "platform": str(chosen.client.platform_version).replace("\n", "; "),
        "target": str(getattr(chosen, "target", "unknown")),
        "hardware": str(getattr(chosen, "hardware", "no GPU")),
        "device memory": f"limit {_gigabytes(statistics.get('bytes_limit', 0))}; kinds {memories}",
    }


def _chip() -> str:
    if platform.system() == "Darwin":
        return _first_line(["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"])
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return "unknown"
    found = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1] if found else "unknown"


def _compiler() -> str:
    """The one the software device would take (csrc/software/compiler.cc)."""
    for name in filter(None, [os.environ.get("PJRT_METAL_CXX"), "clang++", "g++", "c++"]):
        if path := shutil.which(name):
            return f"{Path(path).name}: {scrub(_first_line([path, '--version']))}"
    if util.find_spec("ziglang") is not None:
        return f"ziglang {metadata.version('ziglang')}"
    return "none (needed by the software device only)"


def _first_line(command: list[str]) -> str:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{Path(command[0]).name}: {type(error).__name__}"
    return (result.stdout.splitlines() or ["no output"])[0]


def _cache() -> str:
    """As csrc/runtime/cache_folder.cc chooses the folder."""
    if given := os.environ.get("PJRT_METAL_CACHE_DIR"):
        folder = Path(given)
    elif platform.system() == "Darwin":
        folder = Path.home() / "Library/Caches/pjrt-metal"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pjrt-metal"
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.exists() else []
    return f"{scrub(str(folder))}, {len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB" if path.exists() else "MISSING: install pjrt-metal again"


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def scrub(text: str) -> str:
    """The text without the names of folders, of the user and of the machine."""
    known = {str(Path.home()): "~", sys.prefix: "<python>", sys.base_prefix: "<python>"}
    known[str(Path(pjrt_metal.__file__).parents[1])] = "<packages>"
    # The longest first: an environment is often inside the home folder.
    for folder in sorted(known, key=len, reverse=True):
        if len(folder) > 1:
            text = text.replace(folder, known[folder])
    text = re.sub(r"(/Users|/home)/[^/\s'\"]+", r"\1/<user>", text)
    for name, stand_in in ((_user(), "<user>"), (socket.gethostname(), "<host>")):
        if name:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", stand_in, text)
    return text


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a process of a user that the system does not know
        return ""
