"""Alternate timing: rivals take turns in one process, so that noise hits them alike; figures are medians and ratios."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def alternate(rivals: dict[str, Callable[[], Any]], turns: int, warm: int = 3) -> dict[str, float]:
    """Median seconds of a call of each rival; each turn calls every rival once."""
    samples: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(turns + warm):
        for name, call in rivals.items():
            start = time.perf_counter()
            call()
            if turn >= warm:
                samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in samples.items()}


def report(title: str, rows: list[dict[str, Any]], path: str | None) -> None:
    """Prints the rows as a table (their keys are its columns) and saves them as JSON if there is a path."""
    print(f"\n{title}")
    columns = list(rows[0])
    texts = [[_cell(row[c]) for c in columns] for row in rows]
    widths = [max(len(c), *(len(t[i]) for t in texts)) for i, c in enumerate(columns)]
    for line in [columns, *texts]:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))
    if path:
        Path(path).write_text(json.dumps({"title": title, "rows": rows}, indent=1))


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
