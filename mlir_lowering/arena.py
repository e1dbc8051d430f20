"""Where in the one arena of a program each storage lies: ranges that are taken from a first tick to a last one."""

from __future__ import annotations

import heapq
from bisect import bisect_left

# Offsets are multiples of this: a cache line, a vector, and Metal's buffer offset alignment.
ALIGNMENT = 256


def place(storages: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The offsets of storages (first tick, last tick, bytes), and the bytes of the arena.

    First fit over free ranges, in order of first tick, large ones first.
    """
    offsets = [0] * len(storages)
    arena_bytes = 0
    taken: list[tuple[int, int, int]] = []  # a heap: last tick, offset, end
    free = [(0, 1 << 62)]  # ascending, none touch
    for number in sorted(range(len(storages)), key=lambda n: (storages[n][0], -storages[n][2])):
        first, last, wanted = storages[number]
        while taken and taken[0][0] < first:
            _give_back(free, *heapq.heappop(taken)[1:])
        size = -(-wanted // ALIGNMENT) * ALIGNMENT
        at = next(i for i, (begin, end) in enumerate(free) if end - begin >= size)
        begin, end = free[at]
        free[at : at + 1] = [(begin + size, end)] if end - begin > size else []
        heapq.heappush(taken, (last, begin, begin + size))
        offsets[number] = begin
        arena_bytes = max(arena_bytes, begin + size)
    return offsets, arena_bytes


def _give_back(free: list[tuple[int, int]], begin: int, end: int) -> None:
    """Adds a range to the free ones, joined with its neighbours."""
    at = bisect_left(free, (begin, end))
    if at < len(free) and free[at][0] == end:
        end = free.pop(at)[1]
    if at > 0 and free[at - 1][1] == begin:
        at -= 1
        begin = free.pop(at)[0]
    free.insert(at, (begin, end))
