"""Artifacts of unknown origin compile in another process, whose end is an error and no more."""

from __future__ import annotations

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
