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
are in the operands' indices, and `tile` only sets the blocks. An index may also look up a number in scalar
memory (index.py); an output in place changes a part of what its buffer holds: gather, scatter, cache update.

Axes are parallel (in every output, never reduced), sequential (reduced into an accumulator, step by step)
or whole (the block is the whole axis). Guards: a statement runs always, or at the first or last step of all
sequential axes. Invariants (see verify): parallel axes come before sequential ones; a whole axis has one
step; what runs `always` or `first` writes accumulators, `last` writes outputs, and with no sequential axis
there is only `always`; an output in place is written always, each step after those before it. Of the
statements of a guard, what reads an accumulator comes before what writes it: see online.py.

It is the idea of a Pallas kernel (grid, BlockSpec, scratch, body), with einsum's named axes in place of
block shapes; Triton writes the same thing as pointers and masks. Read next: fuse.py makes kernels, tile.py
sets their blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from math import prod
from operator import is_
from typing import Any

import numpy as np

from minicc.errors import CompileError, Loc
from minicc.graph.dtypes import DType, decode
from minicc.graph.ir import Type
from minicc.kernel.index import Axis, AxisKind, Index

COMBINE = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply"}  # kind of reduce -> op
OLD = "_old"  # out_old: the input through which a kernel reads what it updates in place


@dataclass(frozen=True)
class Operand:
    """An array in memory that a kernel reads or writes a block of at each step.

    name: within the kernel. buffer: the array's name in the module. type: how this kernel views the buffer,
    which is contiguous and row-major: a reshape of it costs nothing. index: one per dimension of type.
    fill: what elements outside the array read as; None when the index never leaves it. in_place: an output
    whose buffer holds something already, of which the kernel changes a part; what it writes outside is lost.
    near: whether the buffer is one between kernels, and likely to stay in fast memory: for prices only.
    """

    name: str
    buffer: str
    type: Type
    index: tuple[Index, ...]
    fill: float | None = None
    in_place: bool = False
    near: bool = False

    @cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes the operand varies over, in the order of its dimensions."""
        return tuple([name for index in self.index for name in index.axes])

    def __str__(self) -> str:
        fill = "" if self.fill is None else f" else {self.fill}"
        of = "" if self.name == self.buffer else f" of {self.buffer}"
        of += " in place" if self.in_place else ""
        return f"{self.name}: {self.type} at ({', '.join(map(str, self.index))}){fill}{of}"


def on_buffers(operands: Sequence[Operand], names: Mapping[str, str]) -> tuple[Operand, ...]:
    """The operands, on other buffers where `names` has one; within the kernel they keep their names."""
    return tuple(replace(op, buffer=names.get(op.buffer, op.buffer)) for op in operands)


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
        if self.op == "reduce":
            return self.attrs["axes"]
        return self.attrs["contract"] if self.op == "dot" else ()

    def on(self, args: Sequence[Block]) -> Block:
        """The same op on other blocks; itself if they are its own."""
        if all(map(is_, args, self.args)):
            return self
        return Block(self.op, tuple(args), self.attrs, self.dtype, self.axes, self.locs)

    def text(self, names: Mapping[Block, str]) -> str:
        """The block as nested calls; one that is in `names` is written by its name."""
        if self in names:
            return names[self]
        match self.op:
            case "load":
                return self.attrs["ref"]
            case "constant":
                return constant_text(decode(self.attrs["value"], self.dtype))
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
    """One grid, one body. axes: outermost first, which is the order of the steps.

    scalars: i32 arrays that stand whole in scalar memory before the first step, for the lookups of indices.
    """

    name: str
    axes: tuple[Axis, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    scratch: tuple[Scratch, ...]
    body: tuple[Statement, ...]
    scalars: tuple[Operand, ...] = ()

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
        if unknown := blocks.keys() - {axis.name for axis in self.axes}:
            self.axis(min(unknown))
        axes = tuple([Axis(axis.name, axis.size, blocks.get(axis.name, axis.block), axis.kind)
                      for axis in self.axes])
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

    @property
    def reads(self) -> tuple[Operand, ...]:
        """Everything it needs from memory: its inputs and its scalars."""
        return self.inputs + self.scalars

    @property
    def walked(self) -> frozenset[str]:
        """The axes that lookups walk: their blocks have one element."""
        return frozenset(name for op in self.operands for index in op.index for name in index.walked)

    def update(self) -> tuple[str, Block] | None:
        """How an in-place output changes: ("set", the new value), or a kind of REDUCE and what comes to the
        old value; None if no output is in place."""
        if not self.outputs[0].in_place:
            return None
        value, old = self.body[-1].value, f"{self.outputs[0].name}{OLD}"
        if value.args and value.args[0].attrs.get("ref") == old:
            return {op: kind for kind, op in COMBINE.items()}[value.op], value.args[1]
        return "set", value

    def locs(self) -> tuple[Loc, ...]:
        """Every user line in the body, in order of first use."""
        return tuple(dict.fromkeys(loc for block in self.blocks() for loc in block.locs))

    def blocks(self) -> tuple[Block, ...]:
        """Every block of the body, each once, arguments before users, in the order of the statements."""
        return self._blocks

    @cached_property
    def _blocks(self) -> tuple[Block, ...]:
        return tuple(post_order(*[statement.value for statement in self.body]))

    def nearer(self, buffers: Collection[str]) -> Kernel:
        """The same kernel, with these buffers likely to be in fast memory too."""
        inputs, outputs = (tuple([replace(one, near=one.near or one.buffer in buffers) for one in side])
                           for side in (self.inputs, self.outputs))
        return replace(self, inputs=inputs, outputs=outputs)

    def renamed(self, name: str) -> Kernel:
        """The same kernel by another name."""
        return replace(self, name=name)

    def mapped(self, change: Callable[[Block], Block]) -> Kernel:
        """The same kernel with `change` applied to every block, arguments first; shared blocks stay
        shared."""
        new: dict[Block, Block] = {}
        for block in self.blocks():
            new[block] = change(block.on([new[arg] for arg in block.args]))
        return replace(self, body=tuple([Statement(s.guard, s.target, new[s.value]) for s in self.body]))

    def __str__(self) -> str:
        lines = [f"kernel {self.name}", f"  grid  {', '.join(map(str, self.axes)) or 'one step'}"]
        if self.scalars:
            lines.append(f"  smem  {', '.join(f'{one.name}: {one.type}' for one in self.scalars)}")
        if self.inputs:
            lines.append(f"  in    {', '.join(map(str, self.inputs))}")
        lines.append(f"  out   {', '.join(map(str, self.outputs))}")
        if self.scratch:
            lines.append(f"  acc   {', '.join(map(str, self.scratch))}")
        return "\n".join(lines + self._body_lines())

    def _body_lines(self) -> list[str]:
        """One line per statement; what is used more than once gets a line and a name (%0, %1, ...) before
        it."""
        uses = [arg for block in self.blocks() for arg in block.args] + [one.value for one in self.body]
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


def post_order(*roots: Block) -> list[Block]:
    """Blocks and everything below them, each once, arguments before users."""
    order: dict[Block, None] = {}

    def visit(block: Block) -> None:
        for arg in block.args:
            if arg not in order:
                visit(arg)
        order[block] = None

    for root in roots:
        if root not in order:
            visit(root)
    return list(order)


@dataclass(frozen=True)
class Again:
    """What a buffer holds once more, and the cycles that this takes; see recompute.py."""

    buffer: str
    cycles: float


@dataclass(frozen=True)
class Module:
    """A whole graph as kernels in order, which meet in buffers named by strings.

    inputs: (buffer, type) in the order of the graph's inputs. outputs: (buffer, type) likewise; a buffer
    may be an input itself, and the type a reshape of it. constants: buffers that are filled before the
    first run. donated: inputs that may be lost, and the output that is written onto each; see donate.py.
    waits: buffers, and those that are better written before them; see order.py. again: of buffers that hold
    what another one held, which.
    """

    name: str
    kernels: tuple[Kernel, ...]
    inputs: tuple[tuple[str, Type], ...]
    outputs: tuple[tuple[str, Type], ...]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False)
    donated: Mapping[str, str] = field(default_factory=dict)
    waits: Mapping[str, Collection[str]] = field(default_factory=dict, compare=False)
    again: Mapping[str, Again] = field(default_factory=dict)

    @property
    def onto(self) -> dict[str, str]:
        """The outputs that are written onto something donated, and what that is."""
        return {new: old for old, new in self.donated.items() if new not in ("", old)}

    def __str__(self) -> str:
        ins = ", ".join(f"{name}: {type}" for name, type in self.inputs)
        outs = ", ".join(f"{name}: {type}" for name, type in self.outputs)
        return "\n\n".join([f"module {self.name}({ins}) -> ({outs})", *map(str, self.kernels)])
