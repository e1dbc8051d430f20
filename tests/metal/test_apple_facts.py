"""What csrc/metal/selectors.h says of Apple's API against apple_facts.json, which tools/apple_facts.py gathered."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "csrc/metal/selectors.h"
APPLE: dict[str, Any] = json.loads((Path(__file__).parent / "apple_facts.json").read_text())
MINIMUM = (13, 0)


def compile(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["g++", "-std=c++20", f"-I{folder}", f"-I{ROOT}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def table(folder: Path, wrong: tuple[str, str] | None = None) -> dict[str, Any]:
    """The table as the code has it; with one text of it replaced, if `wrong` is given."""
    if wrong:
        assert wrong[0] in TABLE.read_text()
        (folder / "csrc/metal").mkdir(parents=True)
        (folder / "csrc/metal/selectors.h").write_text(TABLE.read_text().replace(*wrong))
    program = str(folder / "facts")
    built = compile(folder, str(ROOT / "tests/metal/facts.cc"), "-o", program)
    assert built.returncode == 0, built.stderr
    result: dict[str, Any] = json.loads(subprocess.run([program], capture_output=True, check=True).stdout)
    return result


def without_const(types: str) -> str:
    """PyObjC does not tell const pointers from others, and writes text as a pointer to char."""
    return re.sub(r"r(?=[\^*])", "", types).replace("*", "^c")


def differences(facts: dict[str, Any]) -> list[str]:
    """What the table says and Apple does not."""
    found = []
    for receiver, selector, types, macos in facts["messages"]:
        name = f"[{receiver} {selector}]"
        if (declared := APPLE["messages"].get(receiver, {}).get(selector)) is None:
            found.append(f"{name} is not declared by Apple")
            continue
        apple_types, introduced = declared
        if without_const(types) != without_const(apple_types):
            found.append(f"{name} has types {apple_types}, not {types}")
        # Methods without a version are older than the headers' notes on versions.
        if macos != (introduced or "10.0"):
            found.append(f"{name} is in macOS since {introduced or 'the first'}, not {macos}")
    receivers = {receiver.lstrip("+") for receiver in APPLE["messages"]}
    found += [f"class {name} is not declared by Apple" for name, _ in facts["classes"] if name not in receivers]
    for name, value, _ in facts["constants"]:
        if str(APPLE["constants"].get(name)) != value:
            found.append(f"{name} is {APPLE['constants'].get(name)}, not {value}")
    for symbol, macos in facts["symbols"]:
        if APPLE["functions"].get(symbol, [None, None])[1] != macos:
            found.append(f"{symbol} is not a symbol of Metal's since macOS {macos}")
    return found


def test_table_is_apples(tmp_path: Path) -> None:
    facts = table(tmp_path)
    assert len(facts["messages"]) > 40
    selectors = [(receiver, selector) for receiver, selector, _, _ in facts["messages"]]
    assert len(selectors) == len(set(selectors))
    assert differences(facts) == []


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"commit"', '"comit"', "[MTLCommandBuffer comit] is not declared by Apple"),
        (
            '"supportsFamily:", bool(int64_t)',
            '"supportsFamily:", bool(uint64_t)',
            "[MTLDevice supportsFamily:] has types B@:q, not B@:Q",
        ),
        ('int64_t(), "10.0"', 'int64_t(), "10.4"', "[NSError code] is in macOS since the first, not 10.4"),
        ('void(int64_t), "15.0"', 'void(int64_t), "13.0"', "[MTLCompileOptions setMathMode:] is in macOS since 15.0"),
        ('"NSProcessInfo", "10.0")', '"NSProcessesInfo", "10.0")', "class NSProcessesInfo is not declared by Apple"),
        ("uint64_t, 5,", "uint64_t, 4,", "MTLCommandBufferStatusError is 5, not 4"),
        ('"MTLCopyAllDevices"', '"MTLCopyEveryDevice"', "MTLCopyEveryDevice is not a symbol of Metal's"),
    ],
)
def test_a_wrong_entry_is_found(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    found = differences(table(tmp_path, (right, wrong)))
    assert any(difference.startswith(message) for difference in found), found


def newer() -> list[str]:
    rows = re.findall(r'X\((k\w+), "\+?\w+", "[\w:]+",(?:[^"]*)"([\d.]+)"\)', TABLE.read_text())
    return [identifier for identifier, macos in rows if tuple(map(int, macos.split("."))) > MINIMUM]


def test_newer_messages_are_sent_only_if_available() -> None:
    assert {"kSetMathMode", "kNewResidencySet", "kAddResidencySet", "kSetMaximizeConcurrentCompilation"} < set(newer())
    for source in (ROOT / "csrc/metal").glob("*.cc"):
        for how, identifier in re.findall(r"(\w+)<Message::(k\w+)>", source.read_text()):
            assert identifier not in newer() or how == "SendIfAvailable", f"{source}: {how}<{identifier}>"


def test_sending_a_newer_message_unchecked_does_not_compile(tmp_path: Path) -> None:
    source = tmp_path / "send.cc"
    text = '#include "csrc/metal/objc.h"\nusing namespace pjrt_metal::metal;\n'
    # Of macOS 15, and of 13.3, which the oldest supported macOS is not.
    for call in ("<Message::kSetMathMode>(o, kMathModeSafe)", "<Message::kSetMaximizeConcurrentCompilation>(o, true)"):
        source.write_text(f"{text}void f(Id o) {{ SendIfAvailable{call}; }}\n")
        assert compile(tmp_path, "-fsyntax-only", str(source)).returncode == 0
        source.write_text(f"{text}void f(Id o) {{ Send{call}; }}\n")
        result = compile(tmp_path, "-fsyntax-only", str(source))
        assert result.returncode != 0 and "use SendIfAvailable" in result.stderr
