"""Vector mode: a kernel as one Python function of numpy calls, which is the fast way to run it on this CPU.

    x: f32[1000,64] at (m, k), m in chunks of 250     ->     x = buffers['x'].reshape((1000, 64))
    always: y = exp(subtract(x, b))                          for m0 in range(0, 1000, 250):
                                                                 m1 = min(m0 + 250, 1000)
                                                                 x_block = x[m0:m1]
                                                                 subtract(x_block, b, out=y_block)
                                                                 exp(y_block, out=y_block)

Goes in: any legal Kernel. Comes out: a VectorKernel, whose source is there to be read, and whose `run` fills
the outputs among the buffers it is given. Its tiles are its own choice (chunks.py). The ideas:
- An op writes into the array of an argument that dies in it, else into the output (if nothing else is kept
  there), else into an array that nobody needs any more. So chains run in place.
- What it needs beside its operands it is handed, so that a program can keep that memory warm (arena.py).
- A dot becomes one np.matmul (dots.py), a lookup a view, a take or an update (lookups.py), and what is put
  together is computed part by part (pieces.py).
Invariants: the text is made from the kernel's structure only, names are made safe, and no text of a user's is
ever compiled; an array has one dimension per axis it varies over; nothing is copied that a view can express.

XLA calls the first idea buffer reuse; functional compilers, destination-passing style. numexpr and XLA's CPU
backend do the rest with compiled loops; numpy's calls are loops that someone compiled already. Read next:
calls.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minicc.gpu.arrays import Array, Walk, contiguous_strides, expanded, permuted
from minicc.gpu.calls import CALLS, Names, python_name
from minicc.gpu.chunks import chunked
from minicc.gpu.dots import DotLines
from minicc.gpu.lookups import Finder, operand_axes, view_of
from minicc.gpu.pieces import LOCAL, pieces
from minicc.gpu.views import enlarged, padding
from minicc.graph.dtypes import BOOL, F32, I8, I16, I32, DType, encode
from minicc.graph.ir import Type
from minicc.kernel.ir import Block, Guard, Kernel, Operand, Statement, post_order

INDENT = "    "
BITS = {1: I8, 2: I16, 4: I32}


class _Writer:
    """The function under construction: its lines, and which array holds what."""

    def __init__(self, kernel: Kernel, names: Names) -> None:
        self.kernel, self.names = kernel, names
        self.sizes = {axis.name: axis.size for axis in kernel.axes}
        self.blocks = {axis.name: axis.block for axis in kernel.axes}
        self.loop = next((axis.name for axis in kernel.axes if axis.block < axis.size), "")
        self.walk = Walk(self.blocks, self.loop)
        self.low, self.high = (self.names.fresh(self.loop, number) for number in (0, 1))
        self.head: list[str] = []
        self.cuts: list[str] = []  # lines that take the step's part of an array
        self.temporaries: list[Array] = []
        self.bits: dict[tuple[tuple[str, ...], DType], list[Array]] = {}
        self.made: dict[str, Type] = {}  # the memory it needs beside its operands
        self.outputs = {operand.name for operand in kernel.outputs}
        texts = {one.name: self.names.fresh(one.name) for one in kernel.scalars}
        self.head += [f"{texts[one.name]} = {buffer_text(one)}" for one in kernel.scalars]
        self.finder = Finder({one.name: one for one in kernel.scalars}, texts, self.sizes)
        self.looked: dict[str, Operand] = {}  # the operands that are read, or updated, by a call
        self.update = kernel.update()
        self.arrays = {operand.name: self.open(operand) for operand in kernel.operands}
        self.arrays |= {s.name: self.make(s.name, s.axes, s.dtype) for s in kernel.scratch}

    def run(self) -> list[str]:
        """All lines of the kernel."""
        parts = {guard: [line for s in self.kernel.body if s.guard is guard for line in self.lines(s)]
                 for guard in Guard}
        always, low, high = parts[Guard.ALWAYS], self.low, self.high
        if self.loop:
            axis = self.kernel.axis(self.loop)
            step = [f"{high} = min({low} + {axis.block}, {axis.size})", *self.cuts, *always]
            always = [f"for {low} in range(0, {axis.size}, {axis.block}):", *(INDENT + line for line in step)]
        notes = [*map(str, self.kernel.axes), *(f"{name}: {type}" for name, type in self.made.items())]
        return [f"# {note}" for note in notes] + self.head + parts[Guard.FIRST] + always + parts[Guard.LAST]

    # -- arrays ----------------------------------------------------------------------------------------------

    def open(self, operand: Operand) -> Array:
        """The lines that make a view of an operand's array, padded if it reads outside."""
        name, dtype = self.names.fresh(operand.name), operand.type.dtype
        self.head.append(f"{name} = {buffer_text(operand)}")
        if not self.finder.fixed(operand):
            self.looked[operand.name] = operand
            return Array(name, operand_axes(operand), str(dtype))
        starts = tuple(self.finder.starts(operand))
        pads = padding(operand, self.sizes)
        if any(map(any, pads)) and 0 not in self.sizes.values():
            operand, fill = enlarged(operand, pads), encode(operand.fill, dtype)
            larger = self.names.fresh(name, 1)
            self.made[larger] = operand.type
            self.head.append(f"{name} = padded({name}, {pads}, {fill}, out={larger})")
        view = view_of(name, operand, self.sizes, starts)
        if view.text != name:
            self.head.append(f"{name} = {view.text}")
        return replace(view, text=self.part(name, view.axes, f"{self.low}:{self.high}"))

    def make(self, wish: str, axes: tuple[str, ...], dtype: DType, number: int | None = None) -> Array:
        """A new array of one step's size, which the caller will hand in."""
        name, shape = self.names.fresh(wish, number), tuple(self.blocks[axis] for axis in axes)
        self.made[name] = Type(dtype, shape)
        text = self.part(name, axes, f":{self.high} - {self.low}")
        return Array(text, axes, str(dtype), contiguous_strides(shape))

    def part(self, name: str, axes: tuple[str, ...], cut: str) -> str:
        """The part of an array that a step of the loop works on."""
        if self.loop not in axes:
            return name
        part = self.names.fresh(f"{name}_block")
        self.cuts.append(f"{part} = {name}[{':, ' * axes.index(self.loop)}{cut}]")
        return part

    # -- statements ------------------------------------------------------------------------------------------

    def lines(self, statement: Statement) -> Iterator[str]:
        """The lines of one statement, an op each, with the user's line it comes from."""
        root, target = statement.value, self.arrays[statement.target]
        kind, looked = "", self.looked.get(statement.target)
        if looked and self.update:
            kind, root = self.update
        values: dict[Block, Array] = {}
        uses = Counter(arg for block in post_order(root) for arg in block.args)
        own = statement.target in self.outputs and not kind
        spare = [*self.temporaries, *([target] if own else [])]
        for block in post_order(root):
            where = f"  # {block.locs[0]}" if block.locs else ""
            if self.is_leaf(block):
                values[block] = self.leaf(block)
            else:
                args = [values[arg] for arg in block.args]
                uses.subtract(block.args)
                dead = [values[arg] for arg in block.args if not uses[arg] and not self.is_leaf(arg)]
                in_place = block.op not in ("dot", "reduce")
                free = [target] if block is root and not kind and (in_place or target not in args) else []
                values[block] = self.place(block, free + dead + spare if in_place else free + spare)
                spare = [array for array in dead + spare if array is not values[block]]
                calls = self.dot(block, args, values[block]) if block.op == "dot" else [
                    self.call(block, args, values[block])]
                yield from (call + where for call in calls)
        if looked and kind:
            places = self.finder.places(looked, target.text)
            yield f"update_{kind}({places}, {expanded(values[root], target.axes)})" + where
        elif values[root] is not target:
            yield f"copy({expanded(values[root], target.axes)}, out={target.text})" + where

    def is_leaf(self, block: Block) -> bool:
        """Whether a block's value is there without a call."""
        return block.op == "constant" or (block.op == "load" and block.attrs["ref"] not in self.looked)

    def leaf(self, block: Block) -> Array:
        """The value of a block that needs no call."""
        if block.op == "load":
            return self.arrays[block.attrs["ref"]]
        text = str(block.attrs["value"])
        text = text if block.dtype in (F32, BOOL) else f"{block.dtype}({text})"
        return Array(text, (), str(block.dtype))

    def place(self, block: Block, free: Sequence[Array]) -> Array:
        """The first of the free arrays that has the shape of a value, or a new one."""
        for array in free:
            if (array.axes, array.dtype) == (block.axes, str(block.dtype)):
                return array
        self.temporaries.append(self.make("t", block.axes, block.dtype, 1))
        return self.temporaries[-1]

    def bits_of(self, block: Block) -> list[Array]:
        """Two arrays of integers as wide as a value, which any call may use while it runs."""
        key = block.axes, BITS[block.dtype.itemsize]
        if key not in self.bits:
            self.bits[key] = [self.make("bits", *key, 1) for _ in "12"]
        return self.bits[key]

    def dot(self, block: Block, args: Sequence[Array], out: Array) -> list[str]:
        """The calls that compute a dot."""
        lines = DotLines(block, self.walk, lambda axes, dtype: self.make("t", axes, dtype, 1))
        return lines.write(args[0], args[1], out)

    def call(self, block: Block, args: Sequence[Array], out: Array) -> str:
        """The call that computes one op."""
        texts = [expanded(array, block.axes) for array in args]
        name = python_name(block.op)
        match block.op:
            case "load":
                operand = self.looked[block.attrs["ref"]]
                reading, axes = self.finder.read(operand, self.arrays[operand.name].text)
                return f"{reading}, out={permuted(out.text, out.axes, axes)})"
            case "reduce":
                name = f"reduce_{block.attrs['kind']}"
                axes = block.args[0].axes
                dims = tuple(axes.index(axis) for axis in block.attrs["axes"])
                texts = [expanded(args[0], axes), f"axis={dims[0] if len(dims) == 1 else dims}"]
            case "iota":
                index = block.attrs["index"]
                start = f" + {dict(index.terms)[self.loop]} * {self.low}" if self.loop in out.axes else ""
                name, texts = "copy", [self.finder.place(index, out.axes, f"{out.text}.shape", start)]
            case "convert":
                name = f"{args[0].dtype}_to_{block.dtype}"
                name = name if name in CALLS else "copy"
            case "compare":
                name = block.attrs["direction"]
            case "select":
                texts += [array.text for array in self.bits_of(block)]
            case op if block.dtype.kind == "i" and f"{op}_int" in CALLS:
                name = f"{op}_int"
        return f"{name}({', '.join([*texts, f'out={out.text}'])})"


def buffer_text(operand: Operand) -> str:
    """The whole array of an operand."""
    local = operand.buffer[:1] == LOCAL
    whole = operand.buffer.removeprefix(LOCAL) if local else f"buffers[{operand.buffer!r}]"
    return f"{whole}.reshape({operand.type.shape})"


def emit_source(kernel: Kernel, chunk_elements: int = 0) -> tuple[str, tuple[Type, ...]]:
    """The text of a function that runs the kernel in chunks, and what it is to be given.

    Its arguments: a dict of buffers, and an array of each of these types to use as it likes.
    """
    parts, lines = pieces(kernel), list[str]()
    made = {one.buffer.removeprefix(LOCAL): one.type for part in parts for one in part.outputs
            if one.buffer[:1] == LOCAL}
    names = Names(made)
    for piece in parts:
        writer = _Writer(chunked(piece, chunk_elements), names)
        lines += writer.run()
        made |= writer.made
    signature = f"def {function_name(kernel)}({', '.join(['buffers', *made])}):"
    return "\n".join([signature, *(INDENT + line for line in lines)]) + "\n", tuple(made.values())


def function_name(kernel: Kernel) -> str:
    """What the generated function is called."""
    return Names().fresh(kernel.name)


@dataclass(frozen=True)
class VectorKernel:
    """A compiled kernel. function(buffers, *arrays of the types `needs`): for callers that silence numpy."""

    source: str
    function: Callable[..., None]
    needs: tuple[Type, ...]

    def run(self, buffers: Mapping[str, np.ndarray]) -> None:
        """Compute the outputs in place. buffers: contiguous arrays by name, inputs and outputs."""
        with np.errstate(all="ignore"):  # 1 / 0 is inf, as it is on the machine
            self.function(buffers, *(np.empty(type.shape, type.dtype.numpy) for type in self.needs))


def vector_kernel(kernel: Kernel, chunk_elements: int = 0) -> VectorKernel:
    """Compile a kernel to numpy. chunk_elements: see chunks.py; 0 for the usual.

    Raises: OutOfRangeError if an operand leaves its array and has no fill.
    """
    source, needs = emit_source(kernel, chunk_elements)
    namespace: dict[str, Any] = dict(CALLS)
    exec(compile(source, f"<vector {kernel.name}>", "exec"), namespace)
    return VectorKernel(source, namespace[function_name(kernel)], needs)
