"""Where in the one arena of a program each storage lies: ranges that are taken from a first tick to a last one."""

from __future__ import annotations

import heapq
from bisect import bisect_right

# Offsets are multiples of this: a cache line, a vector, and Metal's buffer offset alignment.
ALIGNMENT = 256
# Most ranges of a block.
BLOCK = 128


def place(storages: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The offsets of storages (first tick, last tick, bytes), and the bytes of the arena.

    First fit over free ranges, in order of first tick, large ones first.
    """
    offsets = [0] * len(storages)
    arena_bytes = 0
    taken: list[tuple[int, int, int]] = []  # a heap: last tick, offset, end
    free = _Free()
    for number in sorted(range(len(storages)), key=lambda n: (storages[n][0], -storages[n][2])):
        first, last, wanted = storages[number]
        while taken and taken[0][0] < first:
            free.give_back(*heapq.heappop(taken)[1:])
        size = -(-wanted // ALIGNMENT) * ALIGNMENT
        begin = free.take(size)
        heapq.heappush(taken, (last, begin, begin + size))
        offsets[number] = begin
        arena_bytes = max(arena_bytes, begin + size)
    return offsets, arena_bytes


class _Free:
    """The free ranges, ascending, none touch: in blocks, with the largest range of each, so that a search passes over
    whole blocks."""

    def __init__(self) -> None:
        self.blocks = [[(0, 1 << 62)]]
        self.largest = [1 << 62]

    def take(self, size: int) -> int:
        """The beginning of the first range that has `size` bytes."""
        number = next(i for i, most in enumerate(self.largest) if most >= size)
        block = self.blocks[number]
        at = next(i for i, (begin, end) in enumerate(block) if end - begin >= size)
        begin, end = block[at]
        block[at : at + 1] = [(begin + size, end)] if end - begin > size else []
        self._changed(number)
        return begin

    def give_back(self, begin: int, end: int) -> None:
        """Adds a range, joined with its neighbours."""
        number = max(bisect_right(self.blocks, begin, key=_beginning) - 1, 0)
        block = self.blocks[number]
        at = bisect_right(block, (begin, end))
        if at > 0 and block[at - 1][1] == begin:
            at -= 1
            begin = block.pop(at)[0]
        # The last range of all has no end: there is always a next one.
        following, first = (number, at) if at < len(block) else (number + 1, 0)
        if self.blocks[following][first][0] == end:
            end = self.blocks[following].pop(first)[1]
        block.insert(at, (begin, end))
        if following != number:
            self._changed(following)
        self._changed(number)

    def _changed(self, number: int) -> None:
        block = self.blocks[number]
        parts = [block] if len(block) <= BLOCK else [block[: BLOCK // 2], block[BLOCK // 2 :]]
        parts = [part for part in parts if part]
        self.blocks[number : number + 1] = parts
        self.largest[number : number + 1] = [max(end - begin for begin, end in part) for part in parts]


def _beginning(block: list[tuple[int, int]]) -> int:
    return block[0][0]
