"""Abstract memory: which values' bytes each range of memory holds.

A token stands for the contents of one value at one time. A range holds a set of tokens, since one value may be known
by several names (a loop's carried value is also what it was made from). Every change is kept in a log, so that both
ways of a branch can start from the same memory; joining them costs as much as what they changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

Token = object
Tokens = frozenset[Token]
NOTHING: Tokens = frozenset()


@dataclass(frozen=True)
class Range:
    """Bytes `begin` to `end` of a space: the arena, a parameter, an output or a constant."""

    space: tuple[str, int]
    begin: int
    end: int

    def overlaps(self, other: Range) -> bool:
        return self.space == other.space and self.begin < other.end and other.begin < self.end

    def __str__(self) -> str:
        kind, number = self.space
        return f"{kind}{'' if kind == 'arena' else f' {number}'}+{self.begin}[{self.end - self.begin}]"


# What changed between two times: of each range, what it held before and what it holds now.
Changes = dict[Range, tuple[Tokens, Tokens]]


@dataclass
class Memory:
    """Ranges of which none overlap. What is not written whole, or is written in part later, is not known."""

    held: dict[Range, Tokens] = field(default_factory=dict)
    _begins: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    _where: dict[Token, set[Range]] = field(default_factory=dict)
    _log: list[tuple[Range, Tokens]] = field(default_factory=list)

    def read(self, range: Range) -> Tokens:
        return self.held.get(range, NOTHING)

    def where(self, token: Token) -> Iterable[Range]:
        """The ranges that hold `token`."""
        return tuple(self._where.get(token, ()))

    def write(self, range: Range, tokens: Tokens) -> None:
        """Fills a range; others that it overlaps hold nothing known any more."""
        if range not in self.held:
            begins = self._begins.get(range.space, [])
            at = bisect_left(begins, (range.begin, -1))
            if at > 0 and begins[at - 1][1] > range.begin:
                at -= 1
            gone = []
            while at < len(begins) and begins[at][0] < range.end:
                gone.append(Range(range.space, *begins[at]))
                at += 1
            for other in gone:
                self._set(other, NOTHING)
        self._set(range, tokens)

    def _set(self, range: Range, tokens: Tokens) -> None:
        before = self.read(range)
        self._log.append((range, before))
        self._put(range, before, tokens)

    def _put(self, range: Range, before: Tokens, tokens: Tokens) -> None:
        begins = self._begins.setdefault(range.space, [])
        if tokens and not before:
            insort(begins, (range.begin, range.end))
        elif before and not tokens:
            del begins[bisect_left(begins, (range.begin, range.end))]
        for token in before - tokens:
            self._where[token].discard(range)
        for token in tokens - before:
            self._where.setdefault(token, set()).add(range)
        if tokens:
            self.held[range] = tokens
        else:
            self.held.pop(range, None)

    # Time.

    def mark(self) -> int:
        return len(self._log)

    def changes(self, mark: int) -> Changes:
        found: Changes = {}
        for range, before in self._log[mark:]:
            if range not in found:
                found[range] = (before, self.read(range))
        return found

    def rollback(self, mark: int) -> None:
        while len(self._log) > mark:
            range, before = self._log.pop()
            self._put(range, self.read(range), before)
