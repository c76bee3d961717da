"""Writing vector mode's functions: a kernel's statements become lines of numpy calls.

    always: y = exp(subtract(x, m))     ->     subtract(x, m[:, None], out=y)
                                               exp(y, out=y)

Goes in: a Kernel whose blocks are the chunks to run. Comes out: the text of one function. Two ideas:
- Each value has a *home*, the array it is written to. Homes are decided backwards: a value that is stored
  lives in the output, and an argument that dies in an op lives where the op's result will, so chains run in
  place.
- A dot becomes one np.matmul, batched where axes are shared; axes are merged or swapped by views where they
  can be.

XLA calls the first buffer reuse; functional compilers, destination-passing style. Read next: frame.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from minicc.gpu.calls import CALLS, python_name, safe_name
from minicc.gpu.frame import INDENT, Array, Frame, Home, dtype_text, looped
from minicc.gpu.whole import blocks_under
from minicc.kernel.ir import Axis, AxisKind, Block, Guard, Kernel, Statement

LEAVES = ("load", "constant")


@dataclass
class Emitter(Frame):
    """A frame, and the values computed so far in the section (a run of statements) that is being written."""

    values: dict[Block, Array] = field(default_factory=dict)
    plan: dict[Block, Home] = field(default_factory=dict)
    uses: Counter[Block] = field(default_factory=Counter)

    # -- where values live -----------------------------------------------------------------------------------

    def plan_homes(self, statements: Sequence[Statement]) -> None:
        """Decide the home of every value that these statements compute."""
        blocks = blocks_under(statement.value for statement in statements)
        self.values, self.plan = {}, {}
        self.uses = Counter(arg for block in blocks for arg in block.args)
        self.uses.update(statement.value for statement in statements)
        scratch = {scratch.name for scratch in self.kernel.scratch}
        for statement in reversed(statements):
            value, home = statement.value, self.homes[statement.target]
            fits = (value.axes, dtype_text(value.dtype)) == (home.axes, home.dtype)
            shared = statement.target in scratch and self.uses[value] > 1
            if value.op in LEAVES or value in self.plan or not fits or shared:
                continue
            self.plan[value] = home
            if statement.target not in scratch:  # an accumulator is still to be read by the chain
                self.plan_chain(value)
        for block in reversed(blocks):
            if block.axes and block.op not in LEAVES and block not in self.plan:
                self.plan[block] = Home("", block.axes, dtype_text(block.dtype))
                self.plan_chain(block)

    def plan_chain(self, block: Block) -> None:
        """Let an argument that dies in `block`, and has its shape, be computed in the same place."""
        if block.op in ("dot", "reduce"):
            return
        for arg in block.args:
            fits = arg.op not in LEAVES and (arg.axes, arg.dtype) == (block.axes, block.dtype)
            if fits and self.uses[arg] == 1 and arg not in self.plan:
                self.plan[arg] = self.plan[block]
                self.plan_chain(arg)
                return

    def release(self, block: Block, into: Block | None) -> None:
        """Count one use of a value; after the last one its temporary is free, unless `into` took it over."""
        self.uses[block] -= 1
        home = self.plan.get(block)
        if self.uses[block] or home is None or not home.temporary or not home.name:
            return
        if home not in self.homes.values() and (into is None or self.plan.get(into) is not home):
            self.pool.append(home)

    # -- statements ------------------------------------------------------------------------------------------

    def section(self, statements: Sequence[Statement]) -> None:
        """The lines of some statements, which share what they compute unless an accumulator changes."""
        groups = [[statement] for statement in statements] if self.kernel.scratch else [list(statements)]
        for group in groups:
            self.plan_homes(group)
            for statement in group:
                self.store(statement)

    def store(self, statement: Statement) -> None:
        """target = value; nothing to do when the value was computed in place."""
        value, home = self.value(statement.value), self.homes[statement.target]
        if self.plan.get(statement.value) is not home:
            target = self.written(home)
            self.line(f"store({target.text}, {self.expand(value, home.axes)})", statement.value)
        self.release(statement.value, None)

    def value(self, block: Block) -> Array:
        """The array that holds a block's value, computed by now."""
        if block not in self.values:
            by_matrix = block.op == "dot"  # and so loads its operands itself
            args = [self.unread(arg) if by_matrix else self.value(arg) for arg in block.args]
            self.values[block] = self.compute(block, args)
            for arg in block.args:
                self.release(arg, block)
        return self.values[block]

    def unread(self, block: Block) -> Array:
        """An operand before it is loaded, with axes and strides only; any other value as it is."""
        ref = block.attrs.get("ref", "") if block.op == "load" else ""
        if ref in self.operands:
            return self.view(ref, self.sort(self.operands[ref].axes))
        return self.value(block)

    def compute(self, block: Block, args: list[Array]) -> Array:
        """Write the lines of one op."""
        match block.op:
            case "load":
                ref = block.attrs["ref"]
                home = self.homes.get(ref)
                return self.written(home) if home else self.load(ref, self.sort(self.operands[ref].axes))
            case "constant":
                return Array(str(block.attrs["value"]), literal=True)
            case "iota":
                return self.assign(block, self.iota_text(block))
            case "reduce":
                return self.reduce(block, args[0])
            case "dot":
                return self.dot(block, *args)
        return self.elementwise(block, args)

    def assign(self, block: Block, text: str, in_place: str = "") -> Array:
        """Give a value its array; in_place: the text of a call with room for its out argument."""
        home = self.plan.get(block)
        if home is None or (home.temporary and not in_place):
            name = self.fresh("s", 1)
            self.line(f"{name} = {text}", block)
            return Array(name, block.axes, self.contiguous_strides(block.axes))
        target = self.written(home)
        self.line(in_place.format(out=target.text) if in_place else f"store({target.text}, {text})", block)
        return target

    def contiguous_strides(self, axes: Sequence[str]) -> tuple[int, ...]:
        shape = [self.kernel.axis(axis).block for axis in axes]
        return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))

    # -- ops -------------------------------------------------------------------------------------------------

    def operand_text(self, block: Block, arg: Block, array: Array, typed: bool) -> str:
        text = self.expand(array, block.axes)
        return f"{dtype_text(arg.dtype)}({text})" if array.literal and typed else text

    def elementwise(self, block: Block, args: list[Array]) -> Array:
        """One ufunc, or what stands for one: compare, select, convert."""
        typed = all(array.literal for array in args)  # Python's numbers alone would be computed in double
        texts = [self.operand_text(block, *pair, typed) for pair in zip(block.args, args, strict=True)]
        joined = ", ".join(texts)
        match block.op:
            case "convert":
                return self.assign(block, f"{dtype_text(block.dtype)}({texts[0]})" if not block.axes else "",
                                   f"store({{out}}, {texts[0]})")
            case "select":
                mask = self.operand_text(block, block.args[0], args[0], True)
                joined = ", ".join([mask, *texts[1:]])
                words = block.dtype.itemsize == 4 and not args[0].literal
                typed_texts = [self.operand_text(block, *p, True) for p in zip(block.args, args, strict=True)]
                return self.assign(block, f"where({', '.join(typed_texts)})",
                                   f"select({joined}, {{out}})" if words else "")
        name = block.attrs["direction"] if block.op == "compare" else python_name(block.op)
        is_ufunc = isinstance(CALLS[name], np.ufunc)
        return self.assign(block, f"{name}({joined})", f"{name}({joined}, out={{out}})" if is_ufunc else "")

    def iota_text(self, block: Block) -> str:
        """The values of an affine index along its axes."""
        index, dtype = block.attrs["index"], dtype_text(block.dtype)
        parts = []
        for axis, stride in index.terms:
            low, high = self.loops.get(axis, ("0", str(self.sizes[axis])))
            walk = self.expand(Array(f"arange({low}, {high}, dtype={dtype})", (axis,)), block.axes)
            parts.append(walk if stride == 1 else f"{stride} * {walk}")
        if index.offset or not parts:
            parts.append(f"{dtype}({index.offset})")
        return " + ".join(parts)

    def reduce(self, block: Block, array: Array) -> Array:
        """A ufunc's reduce over some dimensions."""
        axes = block.attrs["axes"]
        array = self.spread(array, axes, block.args[0].dtype)
        dims = tuple(array.axes.index(axis) for axis in axes)
        text = f"reduce_{block.attrs['kind']}({array.text}, axis={dims[0] if len(dims) == 1 else dims}"
        typed = f"{text}, dtype={dtype_text(block.dtype)})" if block.dtype.kind == "i" else f"{text})"
        return self.assign(block, typed, f"{text}, out={{out}})")

    def dot(self, block: Block, left: Array, right: Array) -> Array:
        """One matmul: rows are the axes of the left only, columns of the right only, batch those of both."""
        contract = self.sort(block.attrs["contract"])
        left = self.spread(left, contract, block.args[0].dtype)
        right = self.spread(right, contract, block.args[1].dtype)
        if self._swapped(block, left, right):
            left, right = right, left
        batch = tuple(axis for axis in block.axes if axis in left.axes and axis in right.axes)
        rows = tuple(axis for axis in block.axes if axis in left.axes and axis not in batch)
        columns = tuple(axis for axis in block.axes if axis in right.axes and axis not in batch)
        single = len(contract) == 1 and len(rows) <= 1 and len(columns) <= 1
        plain = single and bool(rows and columns or not batch)
        lhs = self.matrix(left, (batch, rows, contract), plain)
        rhs = self.matrix(right, (batch, contract, columns), plain)
        call = f"matmul({lhs}, {rhs}"
        made = batch + rows + columns
        if plain and made == block.axes:
            return self.assign(block, f"{call})", f"{call}, out={{out}})" if made else "")
        text = f"{call}).reshape({self.shape_text(made)})"
        if made != block.axes:
            text += f".transpose({', '.join(str(made.index(axis)) for axis in block.axes)})"
        return self.assign(block, text if made else f"{text}[()]")

    def _swapped(self, block: Block, left: Array, right: Array) -> bool:
        """Whether the result's columns are the left operand's: y.T = w.T @ x.T."""
        only = [next((axis for axis in block.axes if axis in one.axes and axis not in other.axes), "")
                for one, other in ((left, right), (right, left))]
        return all(only) and block.axes.index(only[0]) > block.axes.index(only[1])

    def matrix(self, array: Array, parts: tuple[tuple[str, ...], ...], plain: bool) -> str:
        """The array as a matrix, or a batch of them. parts: batch, rows, columns; merged unless plain."""
        batch, rows, columns = parts
        order = batch + rows + columns
        strides = dict(zip(array.axes, array.strides, strict=True))
        text = self.load(array.ref, order).text if array.ref else array.text
        if not array.ref and array.axes != order:
            text += f".transpose({', '.join(str(array.axes.index(axis)) for axis in order)})"
        if not plain:
            sizes = [self.extent(axis) for axis in batch]
            sizes += [" * ".join(map(self.extent, axes)) or "1" for axes in (rows, columns)]
            return f"{text}.reshape({', '.join(sizes)})"
        # BLAS wants one of the last two dimensions contiguous; without that, numpy multiplies one by one
        inner = [strides[axis] for axis in order[len(batch) :]]
        return text if 1 in inner else f"contiguous({text})"

    def shape_text(self, axes: Sequence[str]) -> str:
        return ", ".join(map(self.extent, axes)) or "()"


def emit_source(kernel: Kernel) -> str:
    """The text of a function of one dict of buffers, which runs the kernel in steps of its blocks."""
    emitter = Emitter(kernel)
    for operand in kernel.operands:
        emitter.open_operand(operand)
    parallel = [axis for axis in kernel.axes if axis.kind is not AxisKind.SEQUENTIAL and looped(axis)]
    sequential = [axis for axis in kernel.sequential if looped(axis)]
    by_guard = {guard: [s for s in kernel.body if s.guard is guard] for guard in Guard}
    open_loops(emitter, parallel)
    emitter.section(by_guard[Guard.FIRST])
    open_loops(emitter, sequential)
    emitter.section(by_guard[Guard.ALWAYS])
    close_loops(emitter, sequential)
    emitter.section(by_guard[Guard.LAST])
    grid = [f"{INDENT}# {axis}" for axis in kernel.axes]
    head = [INDENT + line for line in emitter.head]
    return "\n".join([f"def {safe_name(kernel.name)}(buffers):", *grid, *head, *emitter.body]) + "\n"


def open_loops(emitter: Emitter, axes: Sequence[Axis]) -> None:
    """Start a loop per axis; what follows works on one block of it."""
    for axis in axes:
        low, high = emitter.fresh(f"{axis.name}0"), emitter.fresh(f"{axis.name}1")
        emitter.line(f"for {low} in range(0, {axis.size}, {axis.block}):")
        emitter.depth += 1
        end = f"{low} + {axis.block}"
        emitter.line(f"{high} = min({end}, {axis.size})" if axis.ragged else f"{high} = {end}")
        emitter.loops[axis.name] = (low, high)
    if axes:
        emitter.scopes.append({})


def close_loops(emitter: Emitter, axes: Sequence[Axis]) -> None:
    """End the innermost loops."""
    for axis in axes:
        del emitter.loops[axis.name]
        emitter.depth -= 1
    if axes:
        emitter.scopes.pop()
