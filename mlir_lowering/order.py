"""A topological order that is kept while a graph grows: an edge or a merge that would close a cycle is refused.

After Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs" (2006): only nodes whose
places lie between those of the two ends need to be looked at. The search is bounded: where it would take long, the
answer is that there might be a cycle, which costs a fusion and never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Node = TypeVar("Node")

# Edges followed for one question. Programs of 20,000 ops ask as often: so that takes seconds at worst.
MAX_EDGES = 400


class Order(Generic[Node]):
    """Places of nodes: every edge goes from a lower place to a higher one."""

    def __init__(
        self, following: Callable[[Node], Iterable[Node]], preceding: Callable[[Node], Iterable[Node]]
    ) -> None:
        self.following = following
        self.preceding = preceding
        self.place: dict[Node, int] = {}
        self._first = 0

    def add_first(self, node: Node) -> None:
        """Adds a node that nothing precedes."""
        self._first -= 1
        self.place[node] = self._first

    def connect(self, node: Node, following: Iterable[Node]) -> bool:
        """Makes room for edges from `node` to each of `following`; False if that would close a cycle."""
        end = self.place[node]
        starts = [f for f in following if self.place[f] < end]
        if not starts:
            return True
        begin = min(self.place[s] for s in starts)
        after = self._found(starts, self.following, begin, end)
        if after is None or node in after:
            return False
        before = self._found([node], self.preceding, begin, end)
        if before is None:
            return False
        self._arrange([*self._sorted(before), *self._sorted(after)])
        return True

    def merge(self, kept: Node, gone: Node) -> bool:
        """Makes room for `kept` to have the edges of `gone` as well; False if that would close a cycle.

        An edge between the two does not count. `gone` has no place afterwards.
        """
        first, last = sorted((kept, gone), key=self.place.__getitem__)
        begin, end = self.place[first], self.place[last]
        after = self._found([n for n in self.following(first) if n is not last], self.following, begin, end)
        if after is None or last in after:
            return False
        before = self._found([n for n in self.preceding(last) if n is not first], self.preceding, begin, end)
        if before is None:
            return False
        self._arrange([*self._sorted(before), kept, *self._sorted(after)], self.place.pop(gone))
        return True

    def _found(
        self, starts: list[Node], neighbours: Callable[[Node], Iterable[Node]], begin: int, end: int
    ) -> set[Node] | None:
        """What can be reached from `starts` (themselves included) at places from begin to end; None: too far to say."""
        found = {n for n in starts if begin <= self.place[n] <= end}
        stack = list(found)
        edges = 0
        while stack:
            for node in neighbours(stack.pop()):
                edges += 1
                if edges > MAX_EDGES:
                    return None
                if node not in found and begin <= self.place[node] <= end:
                    found.add(node)
                    stack.append(node)
        return found

    def _sorted(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=self.place.__getitem__)

    def _arrange(self, nodes: list[Node], *spare: int) -> None:
        """Deals the nodes' places out among them anew, in the order given."""
        places = sorted([*(self.place[n] for n in nodes), *spare])
        self.place.update(zip(nodes, places, strict=False))
