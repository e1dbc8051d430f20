"""Documents name only files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = "benchmarks|csrc|docs|examples|mlir_lowering|pjrt_metal|tests"
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_exist(document: Path) -> None:
    text = document.read_text()
    named = set(re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w./]*\w)", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
