"""How much a launch does, counted while its kernel is written: a bound of the innermost iterations of all threads.

A GPU's watchdog ends what runs too long, and a loop nest whose work grows faster than its algorithm's is a defect that
small tests do not show. Every loop has a bound: its head's own constants, or what the schedule says of it, `trips` a
thread, or `total` of all threads together where a loop's length depends on data but the sum of them does not.
tests/kernels/bounds.py computes the work of every launch; on a GPU a launch that would do more than LAUNCH is made in
parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Threads = tuple[int, int, int]

# Iterations of one launch on a GPU. An M1's 1,024 lanes at 1.3 GHz issue some 10^12 instructions a second; an iteration
# with a load that misses costs 10 to 100 of them, so this is a tenth of a second to a second, and the watchdog allows
# a few.
LAUNCH = 10**10
# for (int i = START; i < END; ++i), i += STEP or i *= STEP, and the halving of a tree. A start that is no constant is
# a thread's number or the like, not negative.
_UP = re.compile(r"for \(\w+ (\w+) = ([^;]+); \1 < (\d+); (?:\+\+\1|\1 ([+*])= (\d+))\)")
_HALVING = re.compile(r"for \(\w+ (\w+) = (\d+); \1 > 0; \1 /= 2\)")
_LOOP = re.compile(r"(for|while) \(")


def trips_of(head: str) -> int | None:
    """How often the loop `head` runs at most; None if its text does not say."""
    if halving := _HALVING.match(head):
        return int(halving[2]).bit_length()
    found = _UP.match(head)
    if found is None:
        return None
    start = int(found[2]) if found[2].isdigit() else 0
    end, step = int(found[3]), int(found[5] or 1)
    if found[4] == "*":
        trips, at = 0, start
        while 0 < at < end:
            trips, at = trips + 1, at * step
        return trips
    return max(-(-(end - start) // step), 0)


@dataclass(frozen=True)
class Cut:
    """A launch is made in parts of at most `length` threads along one axis; `unit` threads are a threadgroup."""

    axis: int
    length: int
    unit: int


def cut(work: int, threads: Threads, per_threadgroup: Threads) -> Cut | None:
    """How to make a launch in parts of at most LAUNCH; None if it is not that large. The axis is that of most
    threadgroups, which are left whole."""
    parts = -(-work // LAUNCH)
    if parts < 2:
        return None
    # Where the runtime chooses the threadgroup, whole SIMD groups.
    units = per_threadgroup if per_threadgroup[0] else (32, 1, 1)
    groups = [-(-count // unit) for count, unit in zip(threads, units, strict=True)]
    axis = groups.index(max(groups))
    return Cut(axis, max(groups[axis] // parts, 1) * units[axis], units[axis])


class Work:
    """Counts one kernel: `thread`, a thread's innermost iterations, and `shared`, those that all threads share.

    `unbounded`: the heads of loops that nobody gave a bound.
    """

    def __init__(self) -> None:
        self.shared = 0
        self.unbounded: list[str] = []
        self._counts = [0]
        self._loops: list[tuple[str, int | None, int | None]] = []

    @property
    def thread(self) -> int:
        return max(self._counts[0], 1)

    def launch(self, threads: Threads) -> int:
        """The work of a launch."""
        x, y, z = threads
        return x * y * z * self.thread + self.shared

    def enter(self, head: str, trips: int | None, total: int | None) -> None:
        """A block begins; `head` may be a loop."""
        self._counts.append(0)
        self._loops.append((head, trips, total))

    def leave(self) -> None:
        head, trips, total = self._loops.pop()
        inner = self._counts.pop()
        if not _LOOP.match(head):
            self._counts[-1] += inner
        elif total is not None:
            self.shared += total * max(inner, 1)
        else:
            self._counts[-1] += self._trips(head, trips) * max(inner, 1)

    def line(self, text: str) -> None:
        """A line, which may be a loop of one statement."""
        if _LOOP.match(text):
            self._counts[-1] += self._trips(text, None)

    def _trips(self, head: str, trips: int | None) -> int:
        found = trips_of(head) if trips is None else trips
        if found is None:
            self.unbounded.append(head)
        return found or 1
