"""Symbolic integer index expressions with known ranges.

An Ix is kept in one canonical form, a sum of integer multiples of atoms plus a constant. An atom is a loop
variable, a quotient or remainder by a positive constant, or a value computed at run time ("opaque"). Ranges are
inclusive and used to drop divisions: (8*r + c) / 8 is r and (8*r + c) % 8 is c when 0 <= c < 8; and 8*(i/8) + i%8
is i again, which is what makes reshapes disappear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Atom:
    """One term. `kind` is "var" (a loop variable or run-time value called `name`), "div" or "mod" (of `inner` by
    `by`)."""

    kind: str
    name: str
    lo: int
    hi: int
    inner: Ix | None = None
    by: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.name, self.inner, self.by))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def order(self) -> str:
        """A total order that does not depend on addresses, so that text is the same in every process."""
        return self.name if self.inner is None else f"{self.inner.key}{self.kind}{self.by}"


@dataclass(frozen=True)
class Ix:
    """sum(coefficient * atom) + const."""

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    @cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.const))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def key(self) -> str:
        return "+".join(f"{c}*({a.order})" for a, c in self.terms) + f"+{self.const}"

    @cached_property
    def range(self) -> tuple[int, int]:
        lo = hi = self.const
        for atom, c in self.terms:
            a, b = atom.lo * c, atom.hi * c
            lo += min(a, b)
            hi += max(a, b)
        return lo, hi

    @property
    def is_const(self) -> bool:
        return not self.terms

    def __add__(self, other: Ix | int) -> Ix:
        if isinstance(other, int):
            return Ix(self.terms, self.const + other) if other else self
        if not other.terms:
            return self + other.const
        if not self.terms:
            return other + self.const
        sums = dict(self.terms)
        for atom, c in other.terms:
            sums[atom] = sums.get(atom, 0) + c
        return _canonical(sums, self.const + other.const)

    def __sub__(self, other: Ix | int) -> Ix:
        return self + other * -1

    def __mul__(self, factor: int) -> Ix:
        if factor == 1:
            return self
        if factor == 0:
            return ZERO
        return Ix(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def __floordiv__(self, by: int) -> Ix:
        """Floor division by a positive constant."""
        if by == 1:
            return self
        exact, rest = self._split(by)
        lo, hi = rest.range
        if lo // by == hi // by:
            return exact + lo // by
        # (x / a) / b = x / (a*b) for non-negative x
        if len(rest.terms) == 1 and rest.const == 0:
            atom, c = rest.terms[0]
            if c == 1 and atom.kind == "div" and atom.inner is not None and atom.inner.range[0] >= 0:
                return exact + atom.inner // (atom.by * by)
        return exact + Ix(((Atom("div", "", lo // by, hi // by, rest, by), 1),))

    def __mod__(self, by: int) -> Ix:
        """Remainder in [0, by) for a positive constant."""
        if by == 1:
            return ZERO
        _, rest = self._split(by)
        lo, hi = rest.range
        if lo // by == hi // by:
            return rest - (lo // by) * by
        # (x mod (k*by)) mod by = x mod by
        if len(rest.terms) == 1 and rest.const == 0:
            atom, c = rest.terms[0]
            if c == 1 and atom.kind == "mod" and atom.inner is not None and atom.by % by == 0:
                return atom.inner % by
        return Ix(((Atom("mod", "", 0, by - 1, rest, by), 1),))

    def _split(self, by: int) -> tuple[Ix, Ix]:
        """self = by * exact + rest, with no multiple of `by` left in rest's coefficients."""
        exact: list[tuple[Atom, int]] = []
        rest: list[tuple[Atom, int]] = []
        for atom, c in self.terms:
            if c % by == 0:
                exact.append((atom, c // by))
            else:
                rest.append((atom, c))
        return Ix(tuple(exact), self.const // by), Ix(tuple(rest), self.const % by)

    def coefficient(self, name: str) -> int | None:
        """The coefficient of the variable, or None if it also occurs inside another atom."""
        found = 0
        for atom, c in self.terms:
            if atom.kind == "var":
                if atom.name == name:
                    found = c
            elif atom.inner is not None and atom.inner.mentions(name):
                return None
        return found

    def mentions(self, name: str) -> bool:
        return any(a.name == name if a.inner is None else a.inner.mentions(name) for a, _ in self.terms)

    @cached_property
    def size(self) -> int:
        """The number of atoms in its text."""
        return sum(1 + (0 if a.inner is None else a.inner.size) for a, _ in self.terms)

    @cached_property
    def has_division(self) -> bool:
        return any(a.inner is not None for a, _ in self.terms)

    def __str__(self) -> str:
        return self.code

    @cached_property
    def code(self) -> str:
        """C++ text of type int. Divisions of values that are never negative are unsigned (cheaper)."""
        parts = []
        for atom, c in sorted(self.terms, key=lambda t: (-abs(t[1]), t[0].order)):
            text = _atom_code(atom)
            parts.append(text if c == 1 else f"{text} * {c}" if c > 0 else f"{text} * ({c})")
        if self.const or not parts:
            parts.append(str(self.const) if self.const >= 0 else f"({self.const})")
        return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"


def _atom_code(atom: Atom) -> str:
    if atom.inner is None:
        return atom.name
    inner, by = atom.inner.code, atom.by
    if atom.inner.range[0] >= 0:
        return f"int(uint({inner}) {'/' if atom.kind == 'div' else '%'} {by}u)"
    # Floor semantics below zero: shift the dividend by a multiple of the divisor.
    up = -(atom.inner.range[0] // by)
    shifted = f"uint({inner} + {up * by})"
    if atom.kind == "div":
        return f"(int({shifted} / {by}u) - {up})"
    return f"int({shifted} % {by}u)"


def _canonical(sums: dict[Atom, int], const: int) -> Ix:
    """Drops zero terms and folds by*(x/by) + x%by back to x."""
    for atom in [a for a in sums if a.kind == "mod"]:
        c = sums.get(atom, 0)
        if not c or atom.inner is None:
            continue
        quotient = atom.inner // atom.by
        # The quotient may itself be a sum; fold only when it is one atom with the right coefficient.
        if len(quotient.terms) == 1 and quotient.const == 0 and quotient.terms[0][1] == 1:
            div = quotient.terms[0][0]
            if sums.get(div, 0) == c * atom.by:
                del sums[div], sums[atom]
                folded = _canonical(sums, const) + atom.inner * c
                return folded
    return Ix(tuple(sorted(((a, c) for a, c in sums.items() if c), key=_by_order)), const)


def _by_order(term: tuple[Atom, int]) -> str:
    return term[0].order


ZERO = Ix(())
Index = tuple[Ix, ...]


def constant(value: int) -> Ix:
    return Ix((), value)


def variable(name: str, extent: int) -> Ix:
    """A loop variable (or a run-time value already in range) called `name`, in [0, extent)."""
    return bounded(name, 0, max(extent - 1, 0))


def bounded(name: str, lo: int, hi: int) -> Ix:
    """A value called `name` in [lo, hi]; a value with one possibility is that constant."""
    return constant(lo) if lo == hi else Ix(((Atom("var", name, lo, hi), 1),))


def linearize(index: Index, shape: Sequence[int]) -> Ix:
    """Row-major element offset of `index` in an array of `shape`."""
    offset = ZERO
    for ix, extent in zip(index, shape, strict=True):
        offset = offset * extent + ix
    return offset


def delinearize(offset: Ix, shape: Sequence[int]) -> Index:
    """The index whose row-major offset is `offset`."""
    result: list[Ix] = []
    rest = offset
    for extent in reversed(shape[1:]):
        result.append(rest % extent)
        rest = rest // extent
    if shape:
        result.append(rest if shape[0] > 1 else ZERO)
    return tuple(reversed(result))
