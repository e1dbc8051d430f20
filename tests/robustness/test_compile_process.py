"""Artifacts of unknown origin compile in another process, whose end is an error and no more."""

from __future__ import annotations

import sys

import pytest

from mlir_lowering import compile_process
from mlir_lowering.errors import INVALID_ARGUMENT, CompileError
from mlir_lowering.pipeline import compile_artifact

TEXT = b"""func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
  %y = stablehlo.add %x, %x : tensor<3xf32>
  return %y : tensor<3xf32>
}"""
TARGET = "software"


def compile(code: bytes, log: compile_process.Log = lambda *line: None) -> bytes:
    return compile_artifact(code, "mlir", b"", TARGET, trusted=False, log=log)


def test_it_answers_as_this_process_would() -> None:
    lines: list[tuple[str, float, str]] = []
    program = compile(TEXT, lambda *line: lines.append(line))
    assert program == compile_artifact(TEXT, "mlir", b"", TARGET)
    assert [phase for phase, _, _ in lines][:2] == ["compile: decode", "compile: normalize"]


def test_its_errors_arrive_with_their_codes() -> None:
    with pytest.raises(CompileError, match="not a valid StableHLO module") as caught:
        compile(TEXT.replace(b"stablehlo.add", b"stablehlo.odd"))
    assert caught.value.code == INVALID_ARGUMENT


def test_a_child_that_ended_is_replaced() -> None:
    compile(TEXT)
    child = compile_process._process
    assert child is not None
    child.kill()
    child.wait()
    assert compile(TEXT)
    assert compile_process._process is not child


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"p",
        b"p" + b"\xff" * 8 + b"few",
        b"p" + (1 << 50).to_bytes(8, "little"),
        b"z" + (1).to_bytes(8, "little") + b"z",
        b"l" + (1).to_bytes(8, "little") + b"{",
        b"l" + (2).to_bytes(8, "little") + b"\xff\xff",
        b"l" + (3).to_bytes(8, "little") + b"[1]",
        b"e" + (9).to_bytes(8, "little") + b'["a","b"]',
    ],
)
def test_what_a_damaged_child_says_is_no_answer(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    def start() -> compile_process.subprocess.Popen[bytes]:
        code = f"import sys; sys.stdin.buffer.read(8); sys.stdout.buffer.write({answer!r})"
        pipe = compile_process.subprocess.PIPE
        return compile_process.subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe)

    monkeypatch.setattr(compile_process, "_process", None)
    monkeypatch.setattr(compile_process, "_start", start)
    with pytest.raises(CompileError, match="does not survive"):
        compile(TEXT)


@pytest.mark.parametrize("frame", [b"", b"l" + (12).to_bytes(8, "little") + b'["a",1.0,""]', b"p" + b"\0" * 4])
def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, frame: bytes) -> None:
    """Before its first line of the log, after it, and within a frame."""

    def start() -> compile_process.subprocess.Popen[bytes]:
        code = f"import sys, time; sys.stdout.buffer.write({frame!r}); sys.stdout.buffer.flush(); time.sleep(100)"
        pipe = compile_process.subprocess.PIPE
        return compile_process.subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe)

    monkeypatch.setattr(compile_process, "_process", None)
    monkeypatch.setattr(compile_process, "_start", start)
    monkeypatch.setattr(compile_process, "READING", (1.0, 0.0))
    monkeypatch.setattr(compile_process, "COMPILING", (1.0, 0.0))
    with pytest.raises(CompileError, match="never ends"):
        compile(TEXT)


def test_an_artifact_that_ends_every_child_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def start() -> compile_process.subprocess.Popen[bytes]:
        child = original()
        child.kill()
        return child

    original = compile_process._start
    monkeypatch.setattr(compile_process, "_process", None)
    monkeypatch.setattr(compile_process, "_start", start)
    with pytest.raises(CompileError, match="does not survive"):
        compile(TEXT)
    monkeypatch.undo()
    assert compile(TEXT)
