"""What kernels mean, in plain numpy: run a Module block by block, at either kernel level.

    evaluate(module, {"x": x, "w": w, "b": b}) -> [y]
    evaluate_pipelined(pipelined, buffers)            the same, through buffers that are poisoned until
    waited for

Goes in: a Module (or one PipelinedKernel) and its arrays. Comes out: its outputs. Every value of a body is
an array of as many dimensions as the kernel has axes, of size 1 along those it does not vary over; so
broadcasting by axis name is numpy's own broadcasting. The last block of a ragged axis is simply smaller: no
mask is needed to say what is meant, and a backend's masks are right if they give the same. In float64 this
is the oracle for every backend. A Pallas interpreter does the same with padded blocks. Read next:
pipeline.py, tpu/lower.py.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from minicc.errors import MachineFault
from minicc.graph.elementwise import REDUCE
from minicc.graph.evaluate import elementwise_numpy, host_dtype
from minicc.kernel.ir import Axis, Block, Guard, Index, Kernel, Module, Operand
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb

Arrays = MutableMapping[str, np.ndarray]
Point = Mapping[str, int]


@dataclass(frozen=True)
class _Place:
    """One step of a kernel's grid: where each axis stands, in elements, and how many elements are at work
    there."""

    kernel: Kernel
    point: Point
    float64: bool = False

    def walk(self, axis: Axis) -> np.ndarray:
        """The elements of the axis's block, along that axis's own dimension."""
        step = self.point[axis.name]
        start = step * axis.block
        shape = [1] * len(self.kernel.axes)
        shape[self.kernel.axes.index(axis)] = -1
        return np.arange(start, start + axis.extent(step)).reshape(shape)

    def index(self, index: Index) -> np.ndarray:
        """The index at every element of the block."""
        total = np.full([1] * len(self.kernel.axes), index.offset)
        for name, stride in index.terms:
            total = total + stride * self.walk(self.kernel.axis(name))
        return total

    def elements(self, operand: Operand) -> tuple[np.ndarray, ...]:
        """An index array per dimension of the operand, ready for numpy's advanced indexing."""
        return tuple(self.index(index) for index in operand.index)

    def guard(self, guard: Guard) -> bool:
        """Whether a statement with this guard runs here."""
        if guard is Guard.ALWAYS:
            return True
        edges = {axis.name: 0 if guard is Guard.FIRST else axis.steps - 1 for axis in self.kernel.sequential}
        return all(self.point[name] == edge for name, edge in edges.items())


def read_block(place: _Place, operand: Operand, array: np.ndarray) -> np.ndarray:
    """The operand's block at this step, one dimension per axis of the kernel."""
    where = place.elements(operand)
    view = array.reshape(operand.type.shape)
    if not where:
        return view.reshape([1] * len(place.kernel.axes))
    if operand.fill is None:
        return view[where]
    sizes = operand.type.shape
    inside = reduce(np.logical_and, [(i >= 0) & (i < size) for i, size in zip(where, sizes, strict=True)])
    clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(where, sizes, strict=True))
    return np.where(inside, view[clipped], view.dtype.type(operand.fill))


def write_block(place: _Place, operand: Operand, array: np.ndarray, value: np.ndarray) -> None:
    """Store a block of the output at this step."""
    view = array.reshape(operand.type.shape)
    where = place.elements(operand)
    if where:
        view[where] = value
    else:
        view[...] = value.reshape(())


def run_body(place: _Place, state: Arrays) -> None:
    """Run the statements of one step. state: name -> block of each input; scratch and outputs are written
    there."""
    for operand in place.kernel.outputs:
        state.pop(operand.name, None)  # the block of the step before, perhaps of another size
    for statement in place.kernel.body:
        if place.guard(statement.guard):
            state[statement.target] = _value(place, statement.value, state, {})


def _value(place: _Place, block: Block, state: Arrays, known: dict[Block, np.ndarray]) -> np.ndarray:
    if block not in known:
        args = [_value(place, arg, state, known) for arg in block.args]
        known[block] = _apply(place, block, args, state)
    return known[block]


def _apply(place: _Place, block: Block, args: list[np.ndarray], state: Arrays) -> np.ndarray:
    kernel = place.kernel
    match block.op:
        case "load":
            return state[block.attrs["ref"]]
        case "constant":
            return block.attrs["value"].reshape([1] * len(kernel.axes))
        case "iota":
            return place.index(block.attrs["index"]).astype(block.dtype.numpy)
        case "reduce":
            ufunc, _ = REDUCE[block.attrs["kind"]]
            axes = _numbers(kernel, block.attrs["axes"])
            return ufunc.reduce(args[0], axis=axes, keepdims=True, dtype=args[0].dtype)
        case "dot":
            return _dot(kernel, block, *args)
        case _:
            return elementwise_numpy(block.op, block.attrs, args, place.float64)


def _numbers(kernel: Kernel, names: Sequence[str]) -> tuple[int, ...]:
    return tuple(number for number, axis in enumerate(kernel.axes) if axis.name in names)


def _dot(kernel: Kernel, block: Block, lhs: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Sum of products over the contracted axes, the rest kept; a contracted axis keeps size 1."""
    letters = "abcdefghijklmnopqrstuvwxyz"[: len(kernel.axes)]
    contract = _numbers(kernel, block.attrs["contract"])
    lhs_in = "".join(c for c, size in zip(letters, lhs.shape, strict=True) if size > 1)
    rhs_in = "".join(c for c, size in zip(letters, rhs.shape, strict=True) if size > 1)
    out = "".join(c for n, c in enumerate(letters) if n not in contract and c in lhs_in + rhs_in)
    sizes = np.broadcast_shapes(lhs.shape, rhs.shape)
    shape = [1 if n in contract else size for n, size in enumerate(sizes)]
    return np.einsum(f"{lhs_in},{rhs_in}->{out}", lhs.squeeze(), rhs.squeeze(), optimize=True).reshape(shape)


def evaluate_kernel(kernel: Kernel, buffers: Arrays, float64: bool = False) -> None:
    """Run one kernel over its whole grid, reading and writing whole buffers by name."""
    state: dict[str, np.ndarray] = {}
    for point in kernel.grid():
        place = _Place(kernel, point, float64)
        for operand in kernel.inputs:
            state[operand.name] = read_block(place, operand, buffers[operand.buffer])
        run_body(place, state)
        for operand in kernel.outputs:
            if operand.name in state:
                write_block(place, operand, buffers[operand.buffer], state[operand.name])


def allocate(
    module: Module, inputs: Mapping[str, np.ndarray], float64: bool = False
) -> dict[str, np.ndarray]:
    """Every buffer of a module: inputs and constants filled in, the others of NaN (or the largest
    integer)."""
    buffers = dict(module.constants)
    for name, type in module.inputs:
        buffers[name] = np.asarray(inputs[name], host_dtype(type.dtype, float64))
    for kernel in module.kernels:
        for operand in kernel.outputs:
            dtype = host_dtype(operand.type.dtype, float64)
            poison = {"f": np.nan, "i": 2**31 - 1, "b": True}[dtype.kind]
            buffers[operand.buffer] = np.full(operand.type.shape, poison, dtype)
    return buffers


def evaluate(module: Module, inputs: Mapping[str, np.ndarray], *, float64: bool = False) -> list[np.ndarray]:
    """The outputs of a module, kernel by kernel; in float64 if asked, which makes it an oracle."""
    buffers = allocate(module, inputs, float64)
    with np.errstate(all="ignore"):
        for kernel in module.kernels:
            evaluate_kernel(kernel, buffers, float64)
    return [buffers[name].reshape(type.shape) for name, type in module.outputs]


class _Buffers:
    """The buffers of one operand: a block each, or nothing yet (poison), or a copy still in flight."""

    def __init__(self, depth: int) -> None:
        self.slots: list[np.ndarray | str] = ["never copied"] * depth
        self.started = self.waited = 0

    def read(self, name: str, kernel: Kernel) -> np.ndarray:
        held = self.slots[(self.waited - 1) % len(self.slots)] if self.waited else "never waited for"
        if isinstance(held, str):
            need = f"copy_start {name} and copy_wait {name} before the body"
            what = f"the body reads {name}, which was {held}"
            raise MachineFault(f"pipeline of {kernel.name}", what, need=need, at=kernel.locs())
        return held


def evaluate_pipelined(pipelined: PipelinedKernel, buffers: Arrays) -> None:
    """Run one kernel as its pipeline says: copies land only when they are waited for, and buffers hold
    poison till then.

    Raises: MachineFault where the body reads a block that has not arrived, a buffer is copied into while it
    still holds a block to come or to go, or a copy is never waited for.
    """
    _Run(pipelined, buffers).run()


class _Run:
    """One execution of a pipelined kernel."""

    def __init__(self, pipelined: PipelinedKernel, buffers: Arrays) -> None:
        self.pipelined, self.kernel, self.buffers = pipelined, pipelined.kernel, buffers
        self.points = list(self.kernel.grid())
        self.operands = {operand.name: operand for operand in self.kernel.operands}
        self.outputs = {operand.name for operand in self.kernel.outputs}
        self.inflight: dict[str, list[tuple[int, np.ndarray]]] = {name: [] for name in pipelined.depths}
        self.slots = {name: _Buffers(depth) for name, depth in pipelined.depths.items()}
        self.state: Arrays = {}

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for command in self.pipelined.prologue:
                self.execute(command, 0)
            for t in range(self.kernel.steps):
                for command in self.pipelined.steady:
                    self.execute(command, t)
            for command in self.pipelined.epilogue:
                self.execute(command, self.kernel.steps - 1)
        for name, copies in self.inflight.items():
            if copies:
                self.fault(f"{len(copies)} copies of {name} were never waited for", f"copy_wait {name}")

    def fault(self, what: str, need: str) -> None:
        raise MachineFault(f"pipeline of {self.kernel.name}", what, need=need, at=self.kernel.locs())

    def execute(self, command: Command, t: int) -> None:
        step = t + max(command.ahead, 0)
        if step >= len(self.points) or not self.guarded(command, self.points[step]):
            return
        name, place = command.operand, _Place(self.kernel, self.points[step])
        match command.verb, name in self.outputs:
            case Verb.BODY, _:
                self.body(place)
            case Verb.START, False:
                self.start_input(name, place)
            case Verb.WAIT, False:
                self.wait_input(name)
            case Verb.START, True:
                slots = self.slots[name]
                self.inflight[name].append((slots.started, self.state[name]))
                self.write_back(place, name)
                slots.started += 1
            case Verb.WAIT, True:
                due = self.slots[name].started + command.ahead
                if due >= 0 and self.inflight[name] and self.inflight[name][0][0] <= due:
                    self.inflight[name].pop(0)

    def guarded(self, command: Command, point: Point) -> bool:
        first = all(point[name] == 0 for name in command.first)
        return first and all(point[name] == self.kernel.axis(name).steps - 1 for name in command.last)

    def start_input(self, name: str, place: _Place) -> None:
        slots, operand = self.slots[name], self.operands[name]
        if slots.started - slots.waited >= len(slots.slots):
            self.fault(f"copy_start {name} into a buffer whose copy is in flight", f"copy_wait {name} first")
        slots.slots[slots.started % len(slots.slots)] = "still in flight"
        block = read_block(place, operand, self.buffers[operand.buffer])
        self.inflight[name].append((slots.started, block))
        slots.started += 1

    def wait_input(self, name: str) -> None:
        if not self.inflight[name]:
            self.fault(f"copy_wait {name} would wait for ever: no copy is in flight", f"copy_start {name}")
        number, block = self.inflight[name].pop(0)
        slots = self.slots[name]
        slots.slots[number % len(slots.slots)] = block
        slots.waited += 1

    def write_back(self, place: _Place, name: str) -> None:
        operand = self.operands[name]
        write_block(place, operand, self.buffers[operand.buffer], self.state[name])

    def body(self, place: _Place) -> None:
        for operand in self.kernel.inputs:
            if operand.name in self.slots:
                self.state[operand.name] = self.slots[operand.name].read(operand.name, self.kernel)
            else:
                self.state[operand.name] = read_block(place, operand, self.buffers[operand.buffer])
        for operand in self.kernel.outputs:
            name = operand.name
            if name in self.slots and len(self.inflight[name]) >= self.pipelined.depths[name]:
                self.fault(f"the body writes {name} while it is being copied out", f"copy_wait {name}")
        run_body(place, self.state)
        for operand in self.kernel.outputs:
            if operand.name not in self.slots and operand.name in self.state:
                self.write_back(place, operand.name)
