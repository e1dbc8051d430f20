"""When a storage's contents are needed: spans of ticks, from how the steps really run.

The buffer plan numbers every step with a tick, nested sequences in line. Time does not run along the ticks alone: a
loop goes back from its end to its start, is left after its condition and not at its end, and of a case's branches one
runs. So a storage is needed in spans: what one branch reads is not needed in another; what a loop reads from outside
is needed in all of the loop, for its next iteration; what is read after a loop is needed while its condition runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

# Inclusive: from the tick that writes (or that enters a scope) to the last one that reads (or leaves it).
Span = tuple[int, int]


@dataclass(eq=False)
class Scope:
    """Steps that run together: a loop's condition and body, or one branch of a case. Its ticks are `start` to `end`.

    `entry`: the tick that decides whether it runs (a loop's is its start). `exit`: where a loop is left, after its
    condition's last step.
    """

    parent: Scope | None
    is_loop: bool
    entry: int
    start: int
    exit: int = -1
    end: int = -1

    def contains(self, tick: int) -> bool:
        return self.start <= tick <= self.end


def reach(start: int, scope: Scope | None, tick: int, inner: Scope | None) -> list[Span]:
    """The spans in which what is written at `start` in `scope` is needed by an access at `tick` in `inner`.

    `inner` is `scope` or inside it.
    """
    entered = []
    while inner is not scope:
        assert inner is not None, "a value is used outside the region that computes it"
        entered.append(inner)
        inner = inner.parent
    spans: list[Span] = []
    for part in reversed(entered):
        if part.is_loop:
            return [*spans, (start, part.end)]
        spans.append((start, part.entry))
        start = part.start
    return [*spans, (start, tick)]


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same ticks as ascending spans of which none touch."""
    result: list[Span] = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def near(live: list[Span], span: Span) -> range:
    """Which of a storage's spans (ascending, none touch) share a tick with `span`."""
    start, end = span
    first = bisect_left(live, start, key=_end)
    behind = first
    while behind < len(live) and live[behind][0] <= end:
        behind += 1
    return range(first, behind)


def united(a: list[Span], b: list[Span]) -> list[Span]:
    """`joined` of both, each as `joined` makes them. The longer list becomes the result.

    The work is that of the shorter one, so n storages become one in O(n log n) steps.
    """
    few, many = sorted((a, b), key=len)
    for start, end in few:
        found = near(many, (start, end))
        if found:
            start, end = min(start, many[found.start][0]), max(end, many[found.stop - 1][1])
        many[found.start : found.stop] = [(start, end)]
    return many


def _end(span: Span) -> int:
    return span[1]
