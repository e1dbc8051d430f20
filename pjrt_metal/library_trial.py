"""The child process in which MPSGraph is tried: an assertion of its ends this one and not the user's.

    python library_trial.py LIBRARY CALLS

makes the library calls that the file CALLS lists (csrc/runtime/library_trial.cc) with the plugin library. It imports no
JAX, and records nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(library: Path) -> str:
    """The words that start it, one a line, but for the list; empty if this Python cannot be started again."""
    if not sys.executable:
        return ""
    return "\n".join([sys.executable, "-I", str(Path(__file__).resolve()), str(library)])


def main(library: str, calls: str) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from pjrt_metal.core_ctypes import find_extension

    os.environ.pop("PJRT_METAL_CAPTURE", None)
    return int(find_extension(library).run_trials(calls.encode()))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
