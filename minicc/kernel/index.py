"""Axes, and where an operand stands along them: the vocabulary of blocks.

    Index((("m", 2),), 3)                                   2*m+3           affine, in elements
    Index(lookups=(Lookup("ids", (Index.axis("m"),), 9),))  ids[m] in 0..9  wherever a number in memory says

Goes in: nothing. Comes out: the words in which kernels say which block they read or write. An axis has a size
and a block, and stands for all the elements of its block wherever its name is used. An Index is a sum of axes
times strides, an offset, and Lookups: numbers that are read from scalar memory when the kernel runs, which is
how a gather, a scatter and a dynamic slice say where they go.

Invariant: an axis that a lookup walks has blocks of one element, so that a block begins at one place. Pallas
calls it scalar prefetch; a GPU just loads the number. Read next: ir.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class AxisKind(Enum):
    """How the grid treats an axis."""

    PARALLEL = "parallel"
    SEQUENTIAL = "sequential"
    WHOLE = "whole"


@dataclass(frozen=True)
class Axis:
    """One axis of the iteration space. size and block in elements; an untiled axis is one block.

    >>> Axis("k", 784, 112, AxisKind.SEQUENTIAL).steps
    7
    """

    name: str
    size: int
    block: int
    kind: AxisKind

    @property
    def steps(self) -> int:
        """How many blocks cover the axis."""
        return -(-self.size // self.block)

    @property
    def ragged(self) -> bool:
        """Whether the last block is smaller than the others."""
        return self.size % self.block != 0

    def extent(self, step: int) -> int:
        """Elements of the block at this step."""
        return min(self.block, self.size - step * self.block)

    def __str__(self) -> str:
        return f"{self.name} = {self.steps} x {self.block} of {self.size} {self.kind.value}"


@dataclass(frozen=True)
class Lookup:
    """A number read when the kernel runs: element `index` of the i32 array in the scalar operand `scalars`.

    clamp: it is moved into 0 .. clamp; with None it is taken as it is, and may point outside.
    """

    scalars: str
    index: tuple[Index, ...] = ()
    clamp: int | None = None

    def __str__(self) -> str:
        place = f"{self.scalars}[{', '.join(map(str, self.index))}]"
        return place if self.clamp is None else f"{place} in 0..{self.clamp}"


class Crossing(Exception):
    """An index that cannot be divided: this axis ("": none) would have to be two, the inner of this size."""

    def __init__(self, axis: str, inner: int) -> None:
        super().__init__(f"axis {axis or 'of a lookup'} is walked across a boundary")
        self.axis, self.inner = axis, inner


@dataclass(frozen=True)
class Index:
    """An index along one dimension: sum of axis * stride, plus offset, plus lookups; in elements.

    >>> str(Index((("m", 2),), 3)), str(Index.axis("m")), str(Index())
    ('2*m+3', 'm', '0')
    """

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0
    lookups: tuple[Lookup, ...] = ()

    @staticmethod
    def axis(name: str) -> Index:
        """The index that walks one axis."""
        return Index(((name, 1),))

    def scaled(self, factor: int, shift: int = 0) -> Index:
        """self * factor + shift, for an index without lookups."""
        assert not self.lookups, "what is looked up is read from memory, and nothing scales its index"
        terms = tuple((name, stride * factor) for name, stride in self.terms)
        return Index(terms, self.offset * factor + shift)

    def plus(self, other: Index) -> Index:
        """The sum of two indices over different axes."""
        return Index(self.terms + other.terms, self.offset + other.offset, self.lookups + other.lookups)

    def reach(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """The smallest and the largest value that it takes over all its axes."""
        low = high = self.offset
        for name, stride in self.terms:
            span = stride * (sizes[name] - 1)
            low, high = low + min(span, 0), high + max(span, 0)
        return low, high + sum([lookup.clamp or 0 for lookup in self.lookups])

    def divided(self, by: int, sizes: Mapping[str, int]) -> tuple[Index, Index]:
        """Quotient and remainder, if each is affine: (8*m+n) / 8 = m, n as long as n is below 8.

        Raises: Crossing, which names the axis that belongs to both.
        """
        whole = tuple((name, stride // by) for name, stride in self.terms if stride % by == 0)
        rest = tuple((name, stride) for name, stride in self.terms if stride % by)
        remainder = Index(rest, self.offset % by)
        low, high = remainder.reach(sizes)
        if self.lookups or low < 0 or high >= by:
            name, stride = max(rest, key=lambda term: abs(term[1]) * sizes[term[0]], default=("", 0))
            inner = by // stride if stride > 0 and by % stride == 0 else 0
            splits = 1 < inner < sizes.get(name, 0) and sizes[name] % inner == 0
            raise Crossing(name, inner) if splits and not self.lookups else Crossing("", 0)
        return Index(whole, self.offset // by), remainder

    @property
    def walked(self) -> tuple[str, ...]:
        """The axes that its lookups' places move along."""
        return tuple(name for lookup in self.lookups for index in lookup.index for name in index.axes)

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes this index moves along; those of its lookups last."""
        return tuple([name for name, _ in self.terms]) + (self.walked if self.lookups else ())

    def __str__(self) -> str:
        parts = [name if stride == 1 else f"{stride}*{name}" for name, stride in self.terms]
        parts += map(str, self.lookups)
        if self.offset or not parts:
            parts.append(str(self.offset))
        return "+".join(parts).replace("+-", "-")
