"""What every test run shares: platforms, private caches, the installed package before the checkout.

The tests are about the package that `pip install` built. The checkout's pjrt_metal folder has no
compiled library in it, so it must come last on sys.path, here and in processes that tests start.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Folders under tests/ that compile and run C++ themselves, or need nothing compiled.
NEED_NO_LIBRARY = {"compiler", "metal", "software"}


def _isolate() -> None:
    """Before jax is imported. Workers of pytest-xdist inherit the caches: kernels compile once."""
    os.environ.setdefault("JAX_PLATFORMS", "metal,cpu")
    # What nobody wrote shows in the numbers, on every device.
    os.environ.setdefault("PJRT_METAL_POISON", "1")
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    os.environ.setdefault("PJRT_METAL_VERIFY_IR", "1")  # also in processes that tests start
    # Processes that tests start with -c or -m would otherwise look in the checkout first.
    os.environ["PYTHONSAFEPATH"] = "1"
    if "PYTEST_XDIST_WORKER" not in os.environ:
        scratch = tempfile.mkdtemp(prefix="pjrt-metal-tests-")
        atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        os.environ["XDG_CACHE_HOME"] = scratch
        os.environ.setdefault("PJRT_METAL_CACHE_DIR", f"{scratch}/kernels")


def _prefer_installed() -> None:
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT] + [str(ROOT)]
    # Bound to the installed copies from here on, whatever a test does to sys.path.
    import mlir_lowering  # noqa: F401
    import pjrt_metal  # noqa: F401


def _missing_library() -> str | None:
    """Why the installed plugin library cannot be used; None if it can."""
    import pjrt_metal

    if os.environ.get("PJRT_METAL_LIBRARY_PATH"):  # the bare client's tests, on any build
        return None
    if not pjrt_metal.library_path().exists():
        return f"{pjrt_metal.library_path()} does not exist"
    try:
        from pjrt_metal import _core  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


_isolate()
_prefer_installed()


def _needs_library(argument: str) -> bool:
    path = Path(argument.partition("::")[0]).resolve()
    return not any(path.is_relative_to(ROOT / "tests" / name) for name in NEED_NO_LIBRARY)


def pytest_configure(config: pytest.Config) -> None:
    """One clear message instead of a failure in every test."""
    reason = _missing_library() if any(map(_needs_library, config.args)) else None
    if reason:
        raise pytest.UsageError(
            f"pjrt-metal is not installed in {sys.prefix}: {reason}. Run `make test`, or "
            "`pip install '.[test]'` and then `pytest`."
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The last lines: what was not tested for want of a tool, by reason ("needs X: how to get it")."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple | list) else ""
        if reason.startswith(("needs ", "could not import ")):
            reasons[reason] += 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(
            f"NOT TESTED: {count} test{'s' if count > 1 else ''}: {reason}", yellow=True, bold=True
        )
