"""SIMT kernels: what each thread of a grid of thread blocks does, as structured statements.

    Let n = blockIdx.x * 256 + threadIdx.x
    If n < 1000:
        Load x1 = x[n]
        Let t1 = maximum(x1, 0.0)
        Store y[n] = t1

In memory: a SimtKernel holds Statements, and those hold Exprs. The grid of thread blocks is a line, and the
threads of a block are a rectangle. A register is assigned by Let, and again by
Set; global and shared memory are read and written by Load and Store only, one element per thread, so that
every access can be counted and checked. A masked-off thread's Load gives `fill`, its Store does nothing.
Loops have fixed bounds. Invariants: a name is one register, of one dtype; barriers are reached by all
threads of a block or by none.

PTX is this without structure (labels, predicates); Triton's IR is one level up, with a tile in place of a
thread. Read next: lower.py makes these, cuda.py prints them, simt.py runs them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from minicc.errors import Loc
from minicc.graph.ir import BOOL, I32, DType


@dataclass(frozen=True)
class Expr:
    """An expression over registers.

    op: "const", "reg", "blockIdx.x", "threadIdx.x", "threadIdx.y", an elementwise op of the graph's, compare,
    select, convert, and for indices floordiv and mod. value: the constant as it is stored, the register's
    name, or the direction of a compare.
    """

    op: str
    args: tuple[Expr, ...] = ()
    dtype: DType = I32
    value: Any = None

    def __add__(self, other: Expr | int) -> Expr:
        return integers("add", self, other)

    def __mul__(self, other: Expr | int) -> Expr:
        return integers("multiply", self, other)

    def __floordiv__(self, other: Expr | int) -> Expr:
        return integers("floordiv", self, other)

    def __mod__(self, other: Expr | int) -> Expr:
        return integers("mod", self, other)


def integers(op: str, left: Expr, right: Expr | int) -> Expr:
    """An op on integers; what would change nothing is left out.

    >>> m = reg("m")
    >>> (const(0) + m * 1) // 1 == m, (m % 1).value
    (True, 0)
    """
    right = right if isinstance(right, Expr) else const(right)
    match op, left.value if left.op == "const" else None, right.value if right.op == "const" else None:
        case ("add", 0, _) | ("multiply", 1, _):
            return right
        case ("add", _, 0) | ("multiply" | "floordiv", _, 1) | ("multiply", 0, _):
            return left
        case ("mod", _, 1):
            return const(0)
    return Expr(op, (left, right))


BLOCK, THREAD_X, THREAD_Y = Expr("blockIdx.x"), Expr("threadIdx.x"), Expr("threadIdx.y")


def const(value: Any, dtype: DType = I32) -> Expr:
    """A constant."""
    return Expr("const", (), dtype, dtype.numpy.type(value).item())


def reg(name: str, dtype: DType = I32) -> Expr:
    """The value of a register."""
    return Expr("reg", (), dtype, name)


def less(a: Expr, b: int) -> Expr:
    """a < b."""
    return Expr("compare", (a, const(b)), BOOL, "lt")


def both(*conditions: Expr | None) -> Expr | None:
    """All of the conditions that there are; None if there are none."""
    there = [condition for condition in conditions if condition is not None]
    return reduce(lambda a, b: Expr("and", (a, b), BOOL), there) if there else None


@dataclass(frozen=True)
class Let:
    """A new register."""

    name: str
    value: Expr
    locs: tuple[Loc, ...] = ()


@dataclass(frozen=True)
class Set:
    """Another value for a register, in the threads that are active."""

    name: str
    value: Expr
    locs: tuple[Loc, ...] = ()


@dataclass(frozen=True)
class Load:
    """A new register, from global or shared memory."""

    name: str
    buffer: str
    index: Expr
    dtype: DType
    mask: Expr | None = None
    fill: float = 0.0
    locs: tuple[Loc, ...] = ()


@dataclass(frozen=True)
class Store:
    """A value into global or shared memory."""

    buffer: str
    index: Expr
    value: Expr
    mask: Expr | None = None
    locs: tuple[Loc, ...] = ()


@dataclass(frozen=True)
class For:
    """A loop that all threads walk together."""

    name: str
    stop: int
    step: int
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class If:
    """Statements for the threads where the condition holds."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Barrier:
    """Threads of a block wait for each other, and then see what each has written."""

    locs: tuple[Loc, ...] = ()


Statement = Let | Set | Load | Store | For | If | Barrier


@dataclass(frozen=True)
class Array:
    """An array in memory: in global memory, if buffer names it in the module; else in shared memory.

    held: it is written, but holds something before the kernel starts.
    """

    name: str
    dtype: DType
    elements: int
    buffer: str = ""
    written: bool = False
    held: bool = False


@dataclass(frozen=True)
class SimtKernel:
    """A grid of blocks of (x, y) threads, and what each thread does."""

    name: str
    params: tuple[Array, ...]
    shared: tuple[Array, ...]
    blocks: int
    threads: tuple[int, int]
    body: tuple[Statement, ...]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of one block."""
        return sum(array.elements * array.dtype.itemsize for array in self.shared)
