"""Online kernels: rows that are too long to hold are walked in steps, though one reduction needs another.

    l = sum(exp(x - max(x)))                    over the whole axis n, in one step
        ->  first:   m = -inf, l = 0.0
            always:  m' = max(m, reduce_max(x));  l = l * exp(m - m') + reduce_sum(exp(x - m'));  m = m'
            last:    the row's maximum is m, and the sum is l

Goes in: any Kernel. Comes out: the same one with an axis sequential that was whole, for each axis for which
that can be proved. A reduction that needs no other is an accumulator. One that does must be a sum (or a dot)
of products, each factor of which is split:
    exp(x - M), M the maximum of that very x     is taken from the maximum so far, so it never overflows; when
                                                 that grows to m', what was added up is worth exp(m - m') less
    what does not vary along n                   is left for the end: sum(e / l * v) = sum(e * v) / l
    anything that needs no reduction             stays as it is, and a float converted to another is too
In a softmax that makes attention one kernel that holds no row of scores: it is flash attention, found by
these rules and not by its shape. Invariants: statements stand in the order in which they may run, what reads
an accumulator before what writes it, so maxima come last. What changes is the rounding of sums, as it does
wherever a sum is cut in blocks. A row of -inf alone has no number to subtract: it counts from the lowest
float instead, and `last` multiplies by exp(lowest - m), which is 1.0 for all other rows and makes of this one
the NaN that the program as written gives.

Source: M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", arXiv 1805.02867; T. Dao et
al., "FlashAttention", arXiv 2205.14135. Other compilers match the model, and call a kernel that somebody
wrote. Read next: tile.py, which chooses between the forms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minicc.graph.dtypes import F32
from minicc.graph.elementwise import neutral_value
from minicc.kernel.collapse import ordered
from minicc.kernel.cost import Target
from minicc.kernel.ir import COMBINE, AxisKind, Block, Guard, Kernel, Scratch, Statement
from minicc.kernel.limits import check
from minicc.kernel.pull import Illegal, axes_together
from minicc.kernel.whole import whole

LOWEST = Block("constant", (), {"value": np.array(np.finfo(np.float32).min)}, F32, ())


def online(kernel: Kernel, target: Target) -> list[Kernel]:
    """The forms of a kernel, of those that the target can run, that walk one of its whole axes step by step,
    none that an output has."""
    kept, found = {name for operand in kernel.outputs for name in operand.axes}, list[Kernel]()
    for axis in kernel.axes:
        if axis.kind is AxisKind.WHOLE and axis.name not in kept and axis.size > 1:
            with suppress(Illegal):
                check(form := _Walk(whole(kernel), axis.name).run(), target)
                found.append(form)
    return found


def in_forms(kernel: Kernel, target: Target, make: Callable[[Kernel], Any], failure: type[Exception]
             ) -> list[tuple[Kernel, Any]]:
    """What is made of a kernel as it is and of its online forms, but for those of which nothing can be made.

    Raises: the failure of the last form, if there is nothing else.
    """
    made, left = list[tuple[Kernel, Any]](), [kernel, *online(kernel, target)]
    while left:
        form = left.pop(0)
        with suppress(*([failure] if made or left else [])):
            made.append((form, make(form)))
    return made


def is_online(kernel: Kernel) -> bool:
    """Whether a step changes what an accumulator holds before it adds to it: acc = add(acc * factor, ...)."""
    sums = [(one.target, one.value.args[0]) for one in kernel.body if one.value.op == "add"]
    return any(old.op == "multiply" and old.args[0].attrs.get("ref") == name for name, old in sums)


class _Split(NamedTuple):
    """A value as a product: what is added up step by step, and what is left for the end.

    inner: at this step, None for 1. outer: (multiply or divide, by what), of which nothing varies along the
    axis. maxima: one for each exp(x - maximum) in it.
    """

    inner: Block | None
    outer: tuple[tuple[str, Block], ...] = ()
    maxima: tuple[Block, ...] = ()


@dataclass
class _Walk:
    """A kernel in one step, on the way to many. held: reduction over the axis -> its accumulator."""

    kernel: Kernel
    axis: str
    held: dict[Block, Scratch] = field(default_factory=dict)
    behind: set[Block] = field(default_factory=set)  # what needs a reduction over the axis
    splits: dict[Block, _Split] = field(default_factory=dict)
    bounds: dict[Block, Block] = field(default_factory=dict)  # maximum -> what is subtracted at this step
    growth: dict[Block, tuple[Block, Block]] = field(default_factory=dict)  # ... exp(m - m'), exp(lowest - m)
    end: dict[Block, Block] = field(default_factory=dict)  # what a value is after the last step
    first: list[Statement] = field(default_factory=list)
    steps: list[Statement] = field(default_factory=list)  # maxima last: the others read what they were

    def run(self) -> Kernel:
        """The kernel. Raises: Illegal, if some reduction has no rule."""
        for block in self.kernel.blocks():
            if self.axis in block.reduced:
                self.accumulate(block)
            elif self.axis not in block.axes:
                self.end[block] = block.on([self.end[arg] for arg in block.args])
            if self.axis in block.reduced or self.behind.intersection(block.args):
                self.behind.add(block)
        last = [replace(one, guard=Guard.LAST, value=self.end[one.value]) for one in self.kernel.body]
        inner = [axis for axis in self.kernel.axes if axis.name != self.axis]
        walked = replace(self.kernel.axis(self.axis), kind=AxisKind.SEQUENTIAL)
        return ordered(replace(self.kernel, axes=(*inner, walked), scratch=tuple(self.held.values()),
                               body=(*self.first, *self.steps, *last)))

    def accumulate(self, block: Block) -> None:
        """Note what a reduction does at a step, and what it is at the end."""
        parts = [self.split(arg) for arg in block.args]
        maxima = [one for part in parts for one in part.maxima]
        outer = [pair for part in parts for pair in part.outer]
        inner = [part.inner for part in parts if part.inner]
        kind, later = block.attrs.get("kind", "sum"), [*maxima, *(by for _, by in outer)]
        varied = set(block.reduced).intersection(name for one in later for name in one.axes)
        if len(inner) < len(parts) or (later and kind != "sum") or varied:
            raise Illegal(f"no online rule for a {kind} of what needs a reduction")
        step = _again(block, inner)
        held = Scratch(f"acc{len(self.held) + 1}" if self.held else "acc", block.dtype, step.axes)
        start = Block("constant", (), {"value": neutral_value(kind, held.dtype)}, held.dtype, ())
        self.held[block] = held
        self.first.append(Statement(Guard.FIRST, held.name, start))
        old = total = Block("load", (), {"ref": held.name}, held.dtype, held.axes, block.locs)
        for one in maxima:
            old, total = map(partial(_op, "multiply"), (old, total), self.growth[one])
        for op, by in outer:
            total = _op(op, total, by)
        self.end[block], new = total, _op(COMBINE[kind], old, step)
        self.steps.insert(len(self.steps) * (kind == "max"), Statement(Guard.ALWAYS, held.name, new))
        if kind == "max" and block.dtype is F32:
            self.bounds[block] = bound = _bounded(new)
            self.growth[block] = _difference(_bounded(old), bound), _difference(_bounded(old), old)

    def split(self, block: Block) -> _Split:
        """A value as a product. Raises: Illegal if it is none that can be added up."""
        return self.splits.get(block) or self.splits.setdefault(block, self._split(block))

    def _split(self, block: Block) -> _Split:
        if block not in self.behind:
            return _Split(block)
        if self.axis not in block.axes:
            return _Split(None, (("multiply", self.end[block]),))
        args = block.args
        x, maximum = args[0].args if block.op == "exp" and args[0].op == "subtract" else (None, block)
        if x and maximum in self.bounds and maximum.args[0] is x and x not in self.behind:
            return _Split(_again(block, [_again(args[0], [x, self.bounds[maximum]])]), (), (maximum,))
        if block.op == "multiply":
            one, other = map(self.split, args)
            both = [part.inner for part in (one, other) if part.inner]
            inner = _again(block, both) if both[1:] else both[0]
            return _Split(inner, one.outer + other.outer, one.maxima + other.maxima)
        if block.op == "divide" and args[1] in self.behind and self.axis not in args[1].axes:
            one = self.split(args[0])
            return _Split(one.inner, (*one.outer, ("divide", self.end[args[1]])), one.maxima)
        if block.op == "convert" and block.dtype.kind == args[0].dtype.kind == "f":
            one = self.split(args[0])
            return one._replace(inner=_again(block, [one.inner]) if one.inner else None)
        raise Illegal(f"no online rule for a {block.op} of what needs a reduction")


def _again(block: Block, args: Sequence[Block]) -> Block:
    """An op on other arguments, which may vary over fewer axes."""
    axes = tuple(name for name in axes_together(args) if name not in block.reduced)
    return replace(block, args=tuple(args), axes=axes)


def _difference(one: Block, other: Block) -> Block:
    return _op("exp", _op("subtract", one, other))


def _bounded(maximum: Block) -> Block:
    """A maximum that is a number: the lowest there is for a row of -inf."""
    return _op("maximum", maximum, LOWEST)


def _op(op: str, *args: Block) -> Block:
    """An elementwise op, with the lines of its first argument; the others get that one's dtype."""
    first, dtype = args[0], args[0].dtype
    args = tuple(arg if arg.dtype is dtype else Block("convert", (arg,), {}, dtype, arg.axes) for arg in args)
    return Block(op, args, {}, dtype, axes_together(args), first.locs)
