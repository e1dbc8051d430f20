"""Decodes artifacts of unknown origin in a process of their own first.

MLIR's bytecode reader is not safe against corrupt input: of 1,000 artifacts with one to three changed bytes it ended
the process in 4 and never returned in 2 (jaxlib 0.10.2). jaxlib writes the programs that JAX compiles itself, so JAX's
own client skips this (client option trusted_programs); every other client's artifacts go through here.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from typing import IO

from mlir_lowering.errors import CompileError

# What takes longer never ends: decoding takes 22 ms for 7,000 ops, about 1 MB.
SECONDS = 5.0
SECONDS_PER_MEGABYTE = 5.0
_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None


def check(code: bytes) -> None:
    """Raises CompileError if decoding `code` ends the process that tries, or does not end."""
    global _process
    with _lock:
        if _process is None or _process.poll() is not None:
            _process = _start()
        process = _process
        assert process.stdin is not None and process.stdout is not None
        watchdog = threading.Timer(SECONDS + SECONDS_PER_MEGABYTE * len(code) / 1e6, process.kill)
        watchdog.start()
        try:
            _send(process.stdin, code)
            answer = process.stdout.read(1)
        except BrokenPipeError:
            answer = b""
        finally:
            watchdog.cancel()
        if answer != b"y":
            process.kill()
            process.wait()
            raise CompileError("the program is corrupt: MLIR's reader does not survive it")


def _start() -> subprocess.Popen[bytes]:
    # The compiler is found where this process found it.
    path = [p for p in sys.path if p]
    code = f"import sys; sys.path[:] = {path!r}; from mlir_lowering import trial_decoder; trial_decoder.serve()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def serve() -> None:
    """Reads artifacts from standard input and answers each with one byte, until the input ends."""
    from mlir_lowering import importer

    while len(size := sys.stdin.buffer.read(8)) == 8:
        data = sys.stdin.buffer.read(int.from_bytes(size, "little"))
        with contextlib.suppress(CompileError):  # the compiler will say so itself
            importer.decode(data)
        sys.stdout.buffer.write(b"y")
        sys.stdout.buffer.flush()
