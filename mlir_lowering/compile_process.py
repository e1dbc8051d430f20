"""Compiles artifacts of unknown origin in a process of their own.

MLIR's bytecode reader is not safe against corrupt input: of 1,000 artifacts with one to three changed bytes it ended
the process in 4, never returned in 2 and wrote outside its memory in others (jaxlib 0.10 to 0.12). jaxlib writes the
programs that JAX compiles itself, so JAX's own client compiles in its own process (client option trusted_programs);
every other client's artifacts are never read there.

The child answers a request with frames, one kind byte and a length before each: `l` for a line of the log, then `p`
with the Program's bytes or `e` with the error.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any

from mlir_lowering.errors import INTERNAL, CompileError

# What takes longer until its first line of the log never ends: decoding takes 22 ms for 7,000 ops, about 1 MB, and the
# child starts in less than a second.
READING = (15.0, 5.0)  # seconds, and seconds a megabyte
# Between two later frames, far more than the compiler's slowest phase takes (3 s a megabyte): an artifact may have
# damaged the child without ending it.
COMPILING = (120.0, 200.0)
Log = Callable[[str, float, str], None]
_PIECE = 1 << 20
_lock = threading.Lock()
_process: subprocess.Popen[bytes] | None = None


class _Ended(Exception):
    """The child ended without an answer, or was ended because it gave none."""


def compile(code: bytes, options: bytes, target: str, log: Log) -> bytes:
    """A Program's bytes, as pipeline.compile_artifact makes them; raises its CompileError, or one of its own if the
    artifact ends the process that reads it, or is never read to the end."""
    global _process
    with _lock:
        # An earlier artifact may have damaged the child: only the end of a new one says something of this artifact.
        if _process is not None:
            try:
                return _ask(_process, code, options, target, log)
            except _Ended:
                pass
        _process = _start()
        try:
            return _ask(_process, code, options, target, log)
        except _Ended:
            _process = None
            raise CompileError("the program is corrupt: MLIR's reader does not survive it, or never ends") from None


def _start() -> subprocess.Popen[bytes]:
    # The compiler is found where this process found it.
    path = [p for p in sys.path if p]
    code = f"import sys; sys.path[:] = {path!r}; from mlir_lowering import compile_process; compile_process.serve()"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _ask(
    process: subprocess.Popen[bytes],
    code: bytes,
    options: bytes,
    target: str,
    log: Log,
) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    watchdog = _watchdog(process, code, READING)
    try:
        for part in (code, options, target.encode()):
            _send(process.stdin, part)
        process.stdin.flush()
        while True:
            kind = process.stdout.read(1)
            data = _receive(process.stdout)
            watchdog.cancel()
            watchdog = _watchdog(process, code, COMPILING)
            match kind:
                case b"l":
                    phase, milliseconds, detail = _message(data, str, float, str)
                    log(phase, milliseconds, detail)
                case b"p":
                    return data
                case b"e":
                    message, error_code = _message(data, str, int)
                    raise CompileError(message, error_code)
                case _:
                    raise EOFError
    except (EOFError, BrokenPipeError):
        process.kill()
        process.wait()
        raise _Ended from None
    finally:
        watchdog.cancel()


def _watchdog(process: subprocess.Popen[bytes], code: bytes, seconds: tuple[float, float]) -> threading.Timer:
    timer = threading.Timer(seconds[0] + seconds[1] * len(code) / 1e6, process.kill)
    timer.start()
    return timer


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)


def _receive(pipe: IO[bytes]) -> bytes:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    left = int.from_bytes(size, "little")
    pieces = []
    while left > 0:  # in pieces: memory is taken for what came, not for what was announced
        piece = pipe.read(min(left, _PIECE))
        if not piece:
            raise EOFError
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _message(data: bytes, *kinds: type) -> list[Any]:
    """What a frame says, or EOFError: an artifact may have damaged the child."""
    try:
        found = json.loads(data)
    except ValueError:
        raise EOFError from None
    if not isinstance(found, list) or [type(item) for item in found] != list(kinds):
        raise EOFError
    return found


def serve() -> None:
    """Answers requests from standard input on standard output, until the input ends."""
    from mlir_lowering.pipeline import compile_artifact

    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what anybody prints is no answer

    def answer(kind: bytes, data: bytes) -> None:
        answers.write(kind)
        _send(answers, data)
        answers.flush()

    def log(phase: str, milliseconds: float, detail: str) -> None:
        answer(b"l", json.dumps([phase, milliseconds, detail]).encode())

    while True:
        try:
            code, options, target = (_receive(requests) for _ in range(3))
        except EOFError:
            return
        try:
            answer(b"p", compile_artifact(code, "mlir", options, target.decode(), log=log))
        except CompileError as error:
            answer(b"e", json.dumps([str(error), error.code]).encode())
        except Exception as error:
            answer(b"e", json.dumps([f"{type(error).__name__}: {error}", INTERNAL]).encode())
