"""The tests of the C API, and attacks from Python, on the plugin built with the address and undefined-behaviour
sanitizers: python -m tests.robustness.sanitized_tests [pytest's arguments]"""

from __future__ import annotations

import subprocess
import sys

from tests.robustness import sanitized


def main(arguments: list[str]) -> int:
    variables = {
        "LD_PRELOAD": sanitized.preload("address"),
        "PJRT_METAL_LIBRARY_PATH": str(sanitized.library("address")),
        # Python and jaxlib leave much of what they allocated at their end; test_attacks.py looks for leaks.
        "ASAN_OPTIONS": sanitized.OPTIONS["ASAN_OPTIONS"] + ":detect_leaks=0",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or ["tests/capi"])]
    return subprocess.run(command, env=sanitized.environment(**variables), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
