"""Kernels written by hand, as fusion and tiling would make them: what code generation is tested on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minicc.errors import Loc
from minicc.graph.ir import BOOL, F32, I32, U32, DType, Type
from minicc.kernel.ir import Axis, AxisKind, Block, Guard, Index, Kernel, Module, Operand, Scratch, Statement
from minicc.kernel.memory import MemoryPlan, Placement, Role, Space
from minicc.kernel.pipeline import pipeline
from minicc.tpu.emulator import run
from minicc.tpu.isa import Program
from minicc.tpu.lower import lower
from minicc.tpu.machine import V5E, TPUSpec
from minicc.tpu.registers import allocate
from minicc.tpu.schedule import schedule

KINDS = {"p": AxisKind.PARALLEL, "s": AxisKind.SEQUENTIAL, "w": AxisKind.WHOLE}
HERE = (Loc("train.py", 12, "h = relu(x @ w + b)"),)


def axes(**sizes: tuple[int, int, str]) -> tuple[Axis, ...]:
    """axes(m=(200, 64, "p")): size, block, and parallel, sequential or whole."""
    return tuple(Axis(name, size, block, KINDS[kind]) for name, (size, block, kind) in sizes.items())


def operand(name: str, dtype: DType, shape: tuple[int, ...], *index: str | Index, fill: float | None = None,
            buffer: str = "") -> Operand:
    """An operand whose index is, per dimension, an axis name or an Index."""
    walked = tuple(Index.axis(part) if isinstance(part, str) else part for part in index)
    return Operand(name, buffer or name, Type(dtype, shape), walked, fill)


def load(source: Operand | Scratch) -> Block:
    """A block of an operand or scratch."""
    dtype = source.type.dtype if isinstance(source, Operand) else source.dtype
    return Block("load", (), {"ref": source.name}, dtype, tuple(dict.fromkeys(source.axes)), HERE)


def constant(value: float | int | bool) -> Block:
    """A scalar."""
    array = np.array(value)
    dtype = {"f": F32, "i": I32, "u": U32, "b": BOOL}[array.dtype.kind]
    return Block("constant", (), {"value": array.astype(dtype.numpy)}, dtype, (), HERE)


def op(name: str, *args: Block | float | int, dtype: DType | None = None, **attrs: Any) -> Block:
    """An op on blocks or numbers; it varies over all axes of its operands, or all but those it reduces."""
    blocks = tuple(arg if isinstance(arg, Block) else constant(arg) for arg in args)
    gone = (*attrs.get("axes", ()), *attrs.get("contract", ()))
    left = dict.fromkeys(axis for block in blocks for axis in block.axes if axis not in gone)
    attrs |= {"dtype": dtype} if name == "convert" else {}
    given = attrs["index"].axes if name == "iota" else tuple(left)
    return Block(name, blocks, attrs, dtype or blocks[-1].dtype, given, HERE)


def kernel(name: str, grid: tuple[Axis, ...], output: Operand, value: Block, *inputs: Operand) -> Kernel:
    """A kernel without accumulators."""
    return Kernel(name, grid, inputs, (output,), (), (Statement(Guard.ALWAYS, output.name, value),))


def accumulating(name: str, grid: tuple[Axis, ...], output: Operand, scratch: Scratch, start: float,
                 update: Block, value: Block, *inputs: Operand) -> Kernel:
    """first: acc = start; always: acc = update; last: output = value."""
    body = (Statement(Guard.FIRST, scratch.name, constant(start)),
            Statement(Guard.ALWAYS, scratch.name, update), Statement(Guard.LAST, output.name, value))
    return Kernel(name, grid, inputs, (output,), (scratch,), body)


def module(*kernels: Kernel, outputs: Sequence[str] = ()) -> Module:
    """A module of kernels: what no kernel writes is an input, and the last one's output is the module's."""
    written = {o.buffer: o.type for k in kernels for o in k.outputs}
    read = {o.buffer: o.type for k in kernels for o in k.inputs if o.buffer not in written}
    last = [(o.buffer, o.type) for o in kernels[-1].outputs]
    return Module("test", kernels, tuple(read.items()), (*((n, written[n]) for n in outputs), *last))


def in_hbm(mod: Module) -> MemoryPlan:
    """A plan that keeps every buffer in HBM."""
    outputs = {name for name, _ in mod.outputs}
    found = {name: (type, Role.INPUT) for name, type in mod.inputs}
    found |= {o.buffer: (o.type, Role.OUTPUT if o.buffer in outputs else Role.TEMP)
              for k in mod.kernels for o in k.outputs}
    places = {name: Placement(name, type, role, Space.HBM, 0, 0, 0, 0)
              for name, (type, role) in found.items()}
    return MemoryPlan(places, 0, 0)


def assembled(mod: Module, plan: MemoryPlan | None = None, depth: int = 2, spec: TPUSpec = V5E) -> Program:
    """A module, pipelined and lowered."""
    plan = plan or in_hbm(mod)
    steps = [pipeline(k, resident=[o.name for o in k.operands if plan.in_place(o.buffer)], depth=depth)
             for k in mod.kernels]
    return lower(steps, mod, plan, spec)


def compiled(mod: Module, plan: MemoryPlan | None = None, depth: int = 2, spec: TPUSpec = V5E) -> Program:
    """A module, down to bundles over the machine's registers."""
    return allocate(schedule(assembled(mod, plan, depth, spec), spec), spec)


def outputs(
    mod: Module, plan: MemoryPlan | None = None, depth: int = 2, **inputs: np.ndarray
) -> list[np.ndarray]:
    """What the emulator makes of a module, with all checks on; each cycle has one cause."""
    result = run(compiled(mod, plan, depth), inputs)
    assert sum(result.cause_units.values()) == result.cycles * result.mxus
    return [result.outputs[name].reshape(type.shape) for name, type in mod.outputs]
