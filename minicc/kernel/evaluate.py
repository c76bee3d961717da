"""What kernels mean, in plain numpy: run a Module block by block, at either kernel level.

    evaluate(module, {"x": x, "w": w, "b": b})   ->   [y]
    evaluate_pipelined(pipelined, buffers)       the same, through buffers that are poison until waited for

Goes in: a Module (or one PipelinedKernel) and its arrays. Comes out: its outputs. Every value of a body is
an array of as many dimensions as the kernel has axes, of size 1 along those it does not vary over; so
broadcasting by axis name is numpy's own broadcasting. The last block of a ragged axis is simply smaller: no
mask is needed to say what is meant, and a backend's masks are right if they give the same. In float64 this
is the oracle for every backend. A Pallas interpreter does the same with padded blocks. Read next:
pipeline.py, tpu/lower.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NoReturn

import numpy as np

from minicc.errors import MachineFault
from minicc.graph.dtypes import DType, decode, encode, widen
from minicc.graph.elementwise import REDUCE
from minicc.graph.evaluate import elementwise_numpy, host_dtype
from minicc.graph.ir import Type
from minicc.kernel.index import Axis, Index, Lookup
from minicc.kernel.ir import Block, Guard, Kernel, Module, Operand
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb, blocks_of

Arrays = MutableMapping[str, np.ndarray]
Point = Mapping[str, int]


@dataclass(frozen=True)
class _Place:
    """One step of a kernel's grid: where each axis stands, in elements, and how many elements are at work
    there. scalars: the arrays that lookups read."""

    kernel: Kernel
    point: Point
    scalars: Mapping[str, np.ndarray]
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
        return sum(map(self.found, index.lookups), total)

    def found(self, lookup: Lookup) -> np.ndarray:
        """The number that a lookup reads here."""
        value = self.scalars[lookup.scalars][tuple(map(self.index, lookup.index))]
        value = value.reshape([1] * len(self.kernel.axes)) if not lookup.index else value
        return value if lookup.clamp is None else np.clip(value, 0, lookup.clamp)

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
    clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(where, sizes, strict=True))
    fill = encode(np.asarray(operand.fill), operand.type.dtype) if view.dtype.kind != "f" else operand.fill
    return np.where(_inside(where, sizes), view[clipped], np.asarray(fill, view.dtype))


def _inside(where: Sequence[np.ndarray], sizes: Sequence[int]) -> np.ndarray:
    return reduce(np.logical_and, [(i >= 0) & (i < size) for i, size in zip(where, sizes, strict=True)])


def write_block(place: _Place, operand: Operand, array: np.ndarray, value: np.ndarray) -> None:
    """Store a block of the output at this step; in place, what lies outside is dropped."""
    view = array.reshape(operand.type.shape)
    where = place.elements(operand)
    if not where:
        view[...] = value.reshape(())
    elif not operand.in_place:
        view[where] = value
    else:
        inside = _inside(where, view.shape)
        *places, value, inside = np.broadcast_arrays(*where, value, inside)
        view[tuple(place[inside] for place in places)] = value[inside]


def scalar_arrays(kernel: Kernel, buffers: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the kernel has in scalar memory."""
    return {one.name: buffers[one.buffer].reshape(one.type.shape) for one in kernel.scalars}


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
            return _held(block.attrs["value"], block.dtype, place.float64).reshape([1] * len(kernel.axes))
        case "iota":
            return encode(place.index(block.attrs["index"]), block.dtype)
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
    lhs, rhs = (widen(side.squeeze()) for side in (lhs, rhs))
    if block.dtype.kind == "i":  # small integers multiply as what they add up to
        lhs, rhs = lhs.astype(block.dtype.numpy), rhs.astype(block.dtype.numpy)
    return np.einsum(f"{lhs_in},{rhs_in}->{out}", lhs, rhs, optimize=True).reshape(shape)


def evaluate_kernel(kernel: Kernel, buffers: Arrays, float64: bool = False) -> None:
    """Run one kernel over its whole grid, reading and writing whole buffers by name."""
    state: dict[str, np.ndarray] = {}
    scalars = scalar_arrays(kernel, buffers)
    for point in kernel.grid():
        place = _Place(kernel, point, scalars, float64)
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
    buffers = {name: _held(array, Type.of(array).dtype, float64) for name, array in module.constants.items()}
    for name, type in module.inputs:
        buffers[name] = _held(np.asarray(inputs[name]), type.dtype, float64)
    given = set(buffers)
    for kernel in module.kernels:
        for operand in kernel.outputs:
            if operand.buffer in given:  # updated in place
                buffers[operand.buffer] = buffers[operand.buffer].copy()
                continue
            dtype = host_dtype(operand.type.dtype, float64)
            poison = {"f": np.nan, "i": 2**31 - 1, "b": True}[operand.type.dtype.kind]
            held = poison if dtype.kind == "f" else encode(poison, operand.type.dtype)
            buffers[operand.buffer] = np.full(operand.type.shape, held, dtype)
    return buffers


def _held(array: np.ndarray, dtype: DType, float64: bool) -> np.ndarray:
    """A stored array, or what the oracle has in its place."""
    return decode(array, dtype).astype(host_dtype(dtype, True), copy=False) if float64 else array


def evaluate(module: Module, inputs: Mapping[str, np.ndarray], *, float64: bool = False) -> list[np.ndarray]:
    """The outputs of a module, kernel by kernel; in float64 if asked, which makes it an oracle."""
    buffers = allocate(module, inputs, float64)
    with np.errstate(all="ignore"):
        for kernel in module.kernels:
            evaluate_kernel(kernel, buffers, float64)
    return [buffers[name].reshape(type.shape) for name, type in module.outputs]


def evaluate_pipelined(pipelined: PipelinedKernel, buffers: Arrays) -> None:
    """Run one kernel as its pipeline says: copies land when waited for, and buffers hold poison till then.

    Raises: MachineFault where the body reads a block that has not arrived, a buffer is copied into or written
    while a copy is still in flight, or a copy is never waited for.
    """
    run = _Run(pipelined, buffers)
    last = pipelined.kernel.steps - 1
    commands = [(command, 0) for command in pipelined.prologue]
    commands += [(command, t) for t in range(last + 1) for command in pipelined.steady]
    commands += [(command, last) for command in pipelined.epilogue]
    with np.errstate(all="ignore"):
        for command, t in commands:
            run.execute(command, t)
    for name, channel in run.channels.items():
        if channel.flight:
            run.fault(f"copies of {name} were never waited for", f"copy_wait {name}", len(channel.flight))
        blocks = blocks_of(pipelined.kernel, run.operands[name])
        if channel.started != blocks:
            run.fault(f"not every block of {name} was copied", f"{blocks} copies", channel.started)


class _Channel:
    """The buffers of one operand: a block each, or why there is none; and the copies in flight."""

    def __init__(self, depth: int) -> None:
        self.slots: list[tuple[_Place, np.ndarray] | str] = ["was never copied"] * depth
        self.flight: deque[tuple[_Place, np.ndarray]] = deque()
        self.started = self.waited = 0  # copies so far


class _Run:
    """One execution of a pipelined kernel."""

    def __init__(self, pipelined: PipelinedKernel, buffers: Arrays) -> None:
        self.kernel, self.buffers, self.state = pipelined.kernel, buffers, dict[str, np.ndarray]()
        scalars = scalar_arrays(self.kernel, buffers)
        self.places = [_Place(self.kernel, point, scalars) for point in self.kernel.grid()]
        self.operands = {operand.name: operand for operand in self.kernel.operands}
        self.channels = {name: _Channel(depth) for name, depth in pipelined.depths.items()}

    def fault(self, what: str, need: str, got: object = "") -> NoReturn:
        raise MachineFault(f"pipeline of {self.kernel.name}", what, got=got, need=need, at=self.kernel.locs())

    def execute(self, command: Command, t: int) -> None:
        step = t + max(command.ahead, 0)
        if step >= len(self.places) or not command.runs_at(self.places[step].point, self.kernel):
            return
        if command.verb is Verb.BODY:
            self.body(self.places[step])
        elif command.verb is Verb.START:
            self.start(command.operand, self.places[step])
        else:
            self.wait(command.operand, command.ahead)

    def start(self, name: str, place: _Place) -> None:
        channel, operand = self.channels[name], self.operands[name]
        if len(channel.flight) == len(channel.slots):
            self.fault(f"copy_start {name} into a buffer whose copy is in flight", f"copy_wait {name} first")
        if operand in self.kernel.inputs:
            channel.slots[channel.started % len(channel.slots)] = "is still in flight"
            channel.flight.append((place, read_block(place, operand, self.buffers[operand.buffer])))
        elif name not in self.state:
            self.fault(f"copy_start {name} before the body wrote it", "the body first")
        else:
            write_block(place, operand, self.buffers[operand.buffer], self.state[name])
            channel.flight.append((place, self.state[name]))
        channel.started += 1

    def wait(self, name: str, ahead: int) -> None:
        channel = self.channels[name]
        if ahead < 0 and channel.started + ahead < channel.waited:
            return  # that output was waited for already, or there was none yet
        if not channel.flight:
            self.fault(f"copy_wait {name} would wait for ever: no copy is in flight", f"copy_start {name}")
        channel.slots[channel.waited % len(channel.slots)] = channel.flight.popleft()
        channel.waited += 1

    def body(self, place: _Place) -> None:
        for operand in self.kernel.inputs:
            self.state[operand.name] = self.block(place, operand)
        for operand in self.kernel.outputs:
            channel = self.channels.get(operand.name)
            if channel and len(channel.flight) == len(channel.slots):
                what = f"the body writes {operand.name} while it is being copied out"
                self.fault(what, f"copy_wait {operand.name}")
        run_body(place, self.state)
        for operand in self.kernel.outputs:
            if operand.name not in self.channels and operand.name in self.state:
                write_block(place, operand, self.buffers[operand.buffer], self.state[operand.name])

    def block(self, place: _Place, operand: Operand) -> np.ndarray:
        """The block that the body reads: the last one waited for, or straight from a resident buffer."""
        channel = self.channels.get(operand.name)
        if channel is None:
            return read_block(place, operand, self.buffers[operand.buffer])
        held = channel.slots[(channel.waited - 1) % len(channel.slots)]
        if isinstance(held, str):
            self.fault(f"the body reads {operand.name}, which {held}",
                       f"copy_start {operand.name} and copy_wait {operand.name} before the body")
        found, wanted = ({axis: one.point[axis] for axis in operand.axes} for one in (held[0], place))
        if found != wanted:
            self.fault(f"the body reads another block of {operand.name}", f"the one at {wanted}", found)
        return held[1]
