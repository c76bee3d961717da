"""The kernel level: how to compute it. One grid of blocks, one body that runs at each block.

    kernel dot_add_maximum
      grid  m = 2 x 64 of 128 parallel, n = 4 x 128 of 512 parallel, k = 7 x 112 of 784 sequential
      in    x: f32[128,784] at (m, k), w: f32[784,512] at (k, n), b: f32[512] at (n)
      out   y: f32[128,512] at (m, n)
      acc   acc: f32 (m, n)
      first:   acc = 0.0
      always:  acc = add(acc, dot(x, w, k))
      last:    y = maximum(add(acc, b), 0.0)

A kernel is written over named *axes*. An axis has a size and a block: the grid walks it in ceil(size /
block) steps, and at each step a block of `block` elements (fewer at the end) is at work. Each operand says
at which index it is read or written, one affine expression of axes per dimension, in elements; an axis name
in it stands for all the elements of the axis's block. Every value in the body varies over some axes, and
broadcasts along the others like numpy. So broadcasting, transposing and slicing need no op in a body: they
are in the operands' indices, and `tile` only sets the blocks.

Axes are parallel (in every output, never reduced), sequential (reduced into an accumulator, step by step)
or whole (the block is the whole axis). Guards: a statement runs always, or at the first or last step of all
sequential axes. Invariants (see verify): parallel axes come before sequential ones; a whole axis has one
step; what runs `always` or `first` writes accumulators, `last` writes outputs, and with no sequential axis
there is only `always`.

It is the idea of a Pallas kernel (grid, BlockSpec, scratch, body), with einsum's named axes in place of
block shapes; Triton writes the same thing as pointers and masks. Read next: fuse.py makes kernels, tile.py
sets their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.graph.ir import DType, Type


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
class Index:
    """An affine index along one dimension: sum of axis * stride, plus offset; in elements.

    >>> str(Index((("m", 2),), 3)), str(Index.axis("m")), str(Index())
    ('2*m+3', 'm', '0')
    """

    terms: tuple[tuple[str, int], ...] = ()
    offset: int = 0

    @staticmethod
    def axis(name: str) -> Index:
        """The index that walks one axis."""
        return Index(((name, 1),))

    def scaled(self, factor: int, shift: int = 0) -> Index:
        """self * factor + shift."""
        terms = tuple((name, stride * factor) for name, stride in self.terms)
        return Index(terms, self.offset * factor + shift)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes this index moves along."""
        return tuple(name for name, _ in self.terms)

    def at(self, starts: Mapping[str, int]) -> int:
        """Where it points when each axis stands at the given element."""
        return self.offset + sum(stride * starts[name] for name, stride in self.terms)

    def renamed(self, names: Mapping[str, str]) -> Index:
        """The same index over axes of other names."""
        return Index(tuple((names.get(name, name), stride) for name, stride in self.terms), self.offset)

    def __str__(self) -> str:
        parts = [name if stride == 1 else f"{stride}*{name}" for name, stride in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return "+".join(parts).replace("+-", "-")


@dataclass(frozen=True)
class Operand:
    """An array in memory that a kernel reads or writes a block of at each step.

    name: within the kernel. buffer: the array's name in the module. type: how this kernel views the buffer,
    which is contiguous and row-major: a reshape of it costs nothing. index: one per dimension of type.
    fill: what elements outside the array read as; None when the index never leaves it.
    """

    name: str
    buffer: str
    type: Type
    index: tuple[Index, ...]
    fill: float | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes the operand varies over, in the order of its dimensions."""
        return tuple(name for index in self.index for name in index.axes)

    def __str__(self) -> str:
        fill = "" if self.fill is None else f" else {self.fill}"
        of = "" if self.name == self.buffer else f" of {self.buffer}"
        return f"{self.name}: {self.type} at ({', '.join(map(str, self.index))}){fill}{of}"


@dataclass(frozen=True)
class Scratch:
    """An accumulator: fast memory that keeps a block of values over these axes from one step to the next."""

    name: str
    dtype: DType
    axes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype} ({', '.join(self.axes)})"


@dataclass(frozen=True, eq=False)
class Block:
    """A block of values in a body: an op on other blocks.

    op and attrs are the graph's, with these differences:
        load      ref: str                  a block of an operand or scratch
        constant  value: a 0-d array
        iota      index: Index, shape-less  the index's value at each element, as `dtype`
        reduce    kind, axes: axis names
        dot       contract: axis names      sum over them of args[0] * args[1]
    and every elementwise op, compare, select and convert. axes: what the values vary over, in the kernel's
    order.
    """

    op: str
    args: tuple[Block, ...]
    attrs: Mapping[str, Any]
    dtype: DType
    axes: tuple[str, ...]
    locs: tuple[Loc, ...] = field(default=(), repr=False)

    @property
    def reduced(self) -> tuple[str, ...]:
        """The axes a reduce or a dot sums (or maximises, ...) over; none for any other op."""
        return self.attrs.get("axes", ()) + self.attrs.get("contract", ())

    def text(self, names: Mapping[Block, str]) -> str:
        """The block as nested calls; one that is in `names` is written by its name."""
        if self in names:
            return names[self]
        match self.op:
            case "load":
                return self.attrs["ref"]
            case "constant":
                return constant_text(self.attrs["value"])
        parts = [arg.text(names) for arg in self.args]
        parts += [f"{name}={attribute_text(value)}" for name, value in self.attrs.items()]
        if self.op == "iota":
            parts.append(f"dtype={self.dtype}")
        return f"{self.op}({', '.join(parts)})"

    def __str__(self) -> str:
        return self.text({})


def constant_text(value: np.ndarray) -> str:
    """A scalar constant as text, in as few digits as tell it from its neighbours: 0.1, 3, True."""
    return str(value[()])


def attribute_text(value: Any) -> str:
    """An attribute of a block as text; tuples of names as [m, n]."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


class Guard(Enum):
    """At which steps of the sequential axes a statement runs."""

    FIRST = "first"
    ALWAYS = "always"
    LAST = "last"


@dataclass(frozen=True)
class Statement:
    """guard: target = value, where target names an output or a scratch."""

    guard: Guard
    target: str
    value: Block


@dataclass(frozen=True)
class Kernel:
    """One grid, one body. axes: outermost first, which is the order of the steps."""

    name: str
    axes: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    scratch: tuple[Scratch, ...]
    body: tuple[Statement, ...]

    def axis(self, name: str) -> Axis:
        """The axis of this name. Raises: CompileError if there is none."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        names = ", ".join(axis.name for axis in self.axes)
        raise CompileError("kernel", f"{self.name} has no axis {name}", need=names or "none: it has one step")

    @property
    def steps(self) -> int:
        """Steps of the whole grid."""
        total = 1
        for axis in self.axes:
            total *= axis.steps
        return total

    @property
    def sequential(self) -> tuple[Axis, ...]:
        """The axes that are reduced step by step."""
        return tuple(axis for axis in self.axes if axis.kind is AxisKind.SEQUENTIAL)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Inputs and outputs."""
        return self.inputs + self.outputs

    def tiled(self, blocks: Mapping[str, int]) -> Kernel:
        """The same kernel with other blocks; an axis that is not named keeps its own.

        Raises: CompileError for an axis that the kernel does not have.
        """
        for name in blocks:
            self.axis(name)
        axes = tuple(replace(axis, block=blocks.get(axis.name, axis.block)) for axis in self.axes)
        return replace(self, axes=axes)

    def grid(self) -> Iterator[dict[str, int]]:
        """The steps in order, each as axis -> step number."""
        for flat in range(self.steps):
            point = {}
            for axis in reversed(self.axes):
                flat, point[axis.name] = divmod(flat, axis.steps)
            yield {axis.name: point[axis.name] for axis in self.axes}

    def block_shape(self, operand: Operand) -> tuple[int, ...]:
        """Elements of a full block of the operand, per dimension of its type.

        A dimension that no axis moves along has 1; one that an axis strides over counts the elements read,
        not spanned.
        """
        sizes = {axis.name: axis.block for axis in self.axes}
        return tuple(prod(sizes[name] for name in index.axes) for index in operand.index)

    def locs(self) -> tuple[Loc, ...]:
        """Every user line in the body, in order of first use."""
        return tuple(dict.fromkeys(loc for block in self.blocks() for loc in block.locs))

    def blocks(self) -> tuple[Block, ...]:
        """Every block of the body, each once, arguments before users, in the order of the statements."""
        found = (block for statement in self.body for block in post_order(statement.value))
        return tuple(dict.fromkeys(found))

    def renamed(self, name: str) -> Kernel:
        """The same kernel by another name."""
        return replace(self, name=name)

    def mapped(self, change: Callable[[Block], Block]) -> Kernel:
        """The same kernel with `change` applied to every block, arguments first; shared blocks stay
        shared."""
        new: dict[Block, Block] = {}
        for block in self.blocks():
            new[block] = change(replace(block, args=tuple(new[arg] for arg in block.args)))
        return replace(self, body=tuple(replace(s, value=new[s.value]) for s in self.body))

    def __str__(self) -> str:
        lines = [f"kernel {self.name}", f"  grid  {', '.join(map(str, self.axes)) or 'one step'}"]
        if self.inputs:
            lines.append(f"  in    {', '.join(map(str, self.inputs))}")
        lines.append(f"  out   {', '.join(map(str, self.outputs))}")
        if self.scratch:
            lines.append(f"  acc   {', '.join(map(str, self.scratch))}")
        return "\n".join(lines + self._body_lines())

    def _body_lines(self) -> list[str]:
        """One line per statement; what is used more than once gets a line and a name (%0, %1, ...) before
        it."""
        uses = [arg for block in self.blocks() for arg in block.args]
        names: dict[Block, str] = {}
        lines = []
        for statement in self.body:
            guard = f"  {statement.guard.value + ':':8} "
            for block in post_order(statement.value):
                if uses.count(block) > 1 and block.op not in ("load", "constant") and block not in names:
                    text = block.text(names)
                    names[block] = f"%{len(names)}"
                    lines.append(f"{guard}{names[block]} = {text}")
            lines.append(f"{guard}{statement.target} = {statement.value.text(names)}")
        return lines


def post_order(root: Block) -> list[Block]:
    """A block and everything below it, each once, arguments before users."""
    order: dict[Block, None] = {}

    def visit(block: Block) -> None:
        if block not in order:
            for arg in block.args:
                visit(arg)
            order[block] = None

    visit(root)
    return list(order)


@dataclass(frozen=True)
class Module:
    """A whole graph as kernels in order, which meet in buffers named by strings.

    inputs: (buffer, type) in the order of the graph's inputs. outputs: (buffer, type) likewise; a buffer
    may be an input itself, and the type a reshape of it. constants: buffers that are filled before the
    first run.
    """

    name: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[tuple[str, Type], ...]
    outputs: tuple[tuple[str, Type], ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        ins = ", ".join(f"{name}: {type}" for name, type in self.inputs)
        outs = ", ".join(f"{name}: {type}" for name, type in self.outputs)
        return "\n\n".join([f"module {self.name}({ins}) -> ({outs})", *map(str, self.kernels)])
