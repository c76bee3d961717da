"""Layout: how the blocks of a kernel lie in VMEM, and which way round each value is computed.

    x: f32[512,784] at (m, k), block 64 x 112   ->  Frame(rows=m, cols=k): a panel of 64 rows, 112 lanes used
    b: f32[512] at (n), block 300               ->  Frame(rows=None, cols=n): 3 rows, one per 128 columns

Goes in: a tiled kernel. Comes out: a Frame for each operand, scratch and value. A value varies over at most
two axes whose block is more than one element; its frame says which of them runs along sublanes (rows) and
which along lanes (cols). Operands keep the order of their dimensions in memory. A vector lies the way the
matrices beside it need it. A kernel without any matrix is *dense*: its one axis fills rows and lanes alike,
1024 elements to a register.

In VMEM, a block of (R, C) is ceil(C / 128) panels, each of R rows rounded up to 8 (of one row if there are
no rows). Elements of 16 or 8 bits lie two or four rows to a row of VMEM, and R is rounded up to 16 or 32; the
one row of a vector has a row of VMEM for itself, of which it takes the low bits. What the body keeps for
itself takes words, as registers do; so does a line between kernels. XLA calls this a tiled layout, T(8,128)
or T(8,128)(2,1), and assigns one to every buffer; Mosaic infers where replication is free, as a row vector (a
load of stride 0) is here. Read next: body.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from minicc.errors import CompileError
from minicc.graph.ir import F32, DType
from minicc.kernel.ir import Block, Kernel, Operand, post_order
from minicc.tpu.assembly import Scalar
from minicc.tpu.machine import LANES, SUBLANES


@dataclass(frozen=True)
class Frame:
    """The axis along sublanes, and the one along lanes; dense: the one axis along both."""

    rows: str | None = None
    cols: str | None = None
    dense: bool = False

    @property
    def swapped(self) -> Frame:
        """The transposed frame."""
        return Frame(self.cols, self.rows)

    @property
    def one_row(self) -> bool:
        """Whether it has no rows, so that its one row stands for all sublanes."""
        return self.rows is None and not self.dense

    def only(self, axes: Iterable[str]) -> Frame:
        """The frame of a value that varies over these axes alone."""
        axes = set(axes)
        rows, cols = (name if name in axes else None for name in (self.rows, self.cols))
        return Frame(rows, cols, self.dense and cols is not None)


@dataclass(frozen=True)
class Home:
    """A block in VMEM. start: its first row in the buffer. pitch: rows from one panel to the next.

    lane0: only the first lane holds the values, as a DMA leaves a column. cut: the block of this step may be
    smaller, and what lies behind it is not in the buffer (an array that stays in VMEM). packed: its dtype, of
    which several rows lie in one of VMEM if it is narrow; F32 where each element has a word.
    """

    buffer: str
    start: Scalar
    frame: Frame
    pitch: int
    lane0: bool = False
    cut: bool = False
    packed: DType = F32


def word_dtype(dtype: DType) -> str:
    """The dtype of a buffer that holds elements of one, each in a word of its own."""
    return dtype.name if dtype.per_word == 1 else "f32" if dtype.kind == "f" else "i32"


def round_up(size: int, multiple: int) -> int:
    """The next multiple of `multiple` from size on."""
    return -(-size // multiple) * multiple


def _thin(dot: Block, big: set[str]) -> bool:
    """Whether a dot is no work for a matrix unit: a vector comes out, or nothing or too much is summed."""
    return len(big & set(dot.axes)) < 2 or len(big & set(dot.attrs["contract"])) != 1


def suited(kernel: Kernel) -> Kernel:
    """The kernel with what suits the machine better:

    a dot that leaves no matrix, or sums over no one axis, as a sum of products: pushing 128 x 128 weights
    into a matrix unit for one row takes longer than multiplying them on the vector ALU;
    a matrix divided by a vector, as multiplied by its reciprocal, which is computed once.
    """
    big = {axis.name for axis in kernel.axes if axis.block > 1}

    def change(block: Block) -> Block:
        if block.op == "dot" and _thin(block, big):
            both = {name for arg in block.args for name in arg.axes}
            axes = tuple(axis.name for axis in kernel.axes if axis.name in both)
            product = Block("multiply", block.args, {}, block.dtype, axes, block.locs)
            attrs = {"kind": "sum", "axes": block.attrs["contract"]}
            return replace(block, op="reduce", args=(product,), attrs=attrs)
        fewer = block.op == "divide" and big & set(block.args[1].axes) < big & set(block.axes)
        if fewer and block.dtype.kind == "f":
            value = {"value": np.ones((), np.float32)}
            one = Block("constant", (), value, block.dtype, (), block.locs)
            inverse = replace(block, args=(one, block.args[1]), axes=block.args[1].axes)
            return replace(block, op="multiply", args=(block.args[0], inverse))
        return block

    return kernel.mapped(change)


class Layout:
    """The frames of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.sizes = {axis.name: axis.block for axis in kernel.axes}
        values = [block.axes for block in kernel.blocks()] + [op.axes for op in kernel.operands]
        self.dense = max((len(self.big(axes)) for axes in values), default=0) < 2
        walked = {op.name: [name for name, *_ in self.dims(op)] for op in (*kernel.outputs, *kernel.inputs)}
        self.sides: dict[str, str] = {}
        for rows, cols in (names for names in walked.values() if len(names) == 2):
            self.sides.setdefault(rows, "rows")
            self.sides.setdefault(cols, "cols")
        self.operands: dict[str, Frame] = {}
        for op in kernel.operands:
            names = walked[op.name]
            self.operands[op.name] = Frame(names[0], names[1]) if len(names) == 2 else self.natural(names)

    def big(self, axes: Iterable[str]) -> list[str]:
        """Those of the axes that have more than one element to a block, each once."""
        return [name for name in dict.fromkeys(axes) if self.sizes[name] > 1]

    def dims(self, operand: Operand) -> list[tuple[str, int, int]]:
        """(axis, dimension, elements that one step along the axis moves in it) of each dimension of a block.
        An axis with blocks of one element only moves the block, as a convolution's window is moved.

        Raises: CompileError for a block of more than two dimensions, or one that walks a diagonal.
        """
        found = [(name, dim, stride) for dim, index in enumerate(operand.index)
                 for name, stride in index.terms if self.sizes[name] > 1]
        self._check_matrix(f"a block of {operand.name}", [name for name, *_ in found])
        if operand.fill is not None and len({dim for _, dim, _ in found}) < len(found):
            got = " and ".join(f"{name}={self.sizes[name]} in dimension {dim}" for name, dim, _ in found)
            what = f"a block of {operand.name} leaves its array along two axes at once"
            raise CompileError("tpu lower", what, got=got, need="one of them with blocks of one element",
                               at=self.kernel.locs(), hint="other blocks from the tile slot")
        return found

    def _check_matrix(self, what: str, names: list[str]) -> None:
        """Raises: CompileError if something varies over more axes than a matrix has, or twice over one."""
        if len(names) > 2 or len(set(names)) < len(names):
            got = " x ".join(f"{name}={self.sizes[name]}" for name in names)
            need = "at most two axes with blocks of more than one element, each once"
            raise CompileError("tpu lower", f"{what} has no rows and columns", got=got, need=need,
                               at=self.kernel.locs(), hint="other blocks from the tile slot")

    def natural(self, axes: Iterable[str]) -> Frame:
        """The frame of a value over these axes, if nothing else decides."""
        big = sorted(self.big(axes), key=lambda name: self.sides.get(name) == "cols")
        self._check_matrix("a value", big)
        if len(big) == 2:
            return Frame(big[0], big[1])
        if big and self.sides.get(big[0]) == "rows":
            return Frame(rows=big[0])
        return Frame(None, big[0], self.dense) if big else Frame()

    def of(self, block: Block) -> Frame:
        """The way round in which most of a value's work is done: that of the first matrix it loads."""
        big = set(self.big(block.axes))
        for part in post_order(block) if len(big) == 2 else ():
            frame = self.operands.get(part.attrs["ref"], Frame()) if part.op == "load" else Frame()
            if {frame.rows, frame.cols} == big:
                return frame
        return self.natural(block.axes)

    def pitch(self, frame: Frame, dtype: DType = F32) -> int:
        """Rows of VMEM from one panel to the next; if it is dense, rows of the block."""
        fit = dtype.per_word
        return round_up(self.sizes[frame.rows], fit * SUBLANES) // fit if frame.rows else 1

    def rows_apart(self, frame: Frame, dtype: DType) -> int:
        """Rows from one panel to the next, as copies count them: several to a row of VMEM, if packed."""
        return self.pitch(frame, dtype) * (1 if frame.dense else dtype.per_word)

    def vmem_rows(self, frame: Frame, dtype: DType = F32) -> int:
        """Rows of VMEM that a block takes; a multiple of 8, so that a whole register fits at its end."""
        panels = -(-self.sizes[frame.cols] // LANES) if frame.cols else 1
        rows = -(-panels // dtype.per_word) if frame.dense else panels * self.pitch(frame, dtype)
        return round_up(rows, SUBLANES)
