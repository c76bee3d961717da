"""Memory planning: where each buffer between kernels lives, and from which byte on.

    Placement("h", f32[128,512], VMEM, offset 0, 262144 bytes)      made by one kernel, read by the next

Goes in: a Module of tiled kernels and the target. Comes out: a
MemoryPlan. Inputs, outputs and constants live in HBM. A buffer between kernels lives in fast memory (VMEM)
when every kernel that touches it sees the same rows and columns of it and it fits beside the largest
kernel's own blocks; else in HBM. Two buffers share bytes only if the last kernel that reads the one comes
before the kernel that writes the other.

XLA calls this buffer assignment; its memory-space assignment moves buffers into VMEM by a far richer
cost-benefit search. First-fit over live ranges is what most compilers ship. Read next: pipeline.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import NoReturn

from minicc.errors import CompileError
from minicc.graph.ir import Type
from minicc.kernel.cost import Target
from minicc.kernel.ir import Index, Module
from minicc.kernel.tile import fast_bytes
from minicc.trace import Step

WORD_BYTES = 4  # every element takes one 32-bit word of a device's memory; a bool is stored wide
ALIGNMENT_BYTES = 512


class Space(Enum):
    """The memories a buffer can be planned into."""

    HBM = "hbm"
    VMEM = "vmem"


class Role(Enum):
    """What a buffer is to the program."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    TEMP = "temp"


@dataclass(frozen=True)
class Placement:
    """One buffer and its bytes. first, last: the kernels (by number) between which it is live, both included.

    view: (rows, columns) that kernels see of a VMEM buffer, which lies there in panels of 128 columns.
    """

    buffer: str
    type: Type
    role: Role
    space: Space
    offset_bytes: int
    bytes: int
    first: int
    last: int
    view: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class MemoryPlan:
    """Every buffer of a module, placed. hbm_bytes, vmem_bytes: the highest byte used of each space, by
    buffers."""

    placements: Mapping[str, Placement]
    hbm_bytes: int
    vmem_bytes: int

    def resident(self, buffer: str) -> bool:
        """Whether the buffer stays in fast memory. Raises: CompileError if the plan forgot it."""
        if buffer not in self.placements:
            raise CompileError("plan", f"buffer {buffer} has no place", need="a placement for every buffer")
        return self.placements[buffer].space is Space.VMEM

    def sharing(self, buffer: str) -> list[str]:
        """The other buffers that have bytes in common with this one."""
        spot = self.placements[buffer]
        return [p.buffer for p in self.placements.values() if p.space is spot.space and p is not spot
                and p.offset_bytes < spot.offset_bytes + spot.bytes
                and spot.offset_bytes < p.offset_bytes + p.bytes]


def plan(module: Module, target: Target, *, log: list[Step] | None = None) -> MemoryPlan:
    """Place every buffer of a module.

    Raises: CompileError if what must lie in HBM does not fit; the error lists the largest buffers.
    """
    live = _live_ranges(module)
    room = max(0, target.fast_bytes - max((fast_bytes(k, target) for k in module.kernels), default=0))
    placed: dict[str, Placement] = {}
    for name, (role, type, first, last) in live.items():
        view, why = (0, 0), role.value
        if role is Role.TEMP:
            view, why = _vmem_view(module, name, target)
        spot = _place(placed, name, role, type, first, last, view, target)
        if spot.space is Space.VMEM and spot.offset_bytes + spot.bytes > room:
            why = f"{spot.bytes} bytes at {spot.offset_bytes}: {room} are left beside the kernels' blocks"
            spot = _place(placed, name, role, type, first, last, (0, 0), target)
        placed[name] = spot
        if log is not None and role is Role.TEMP:
            log.append(Step(f"{name}: {type} in {spot.space.value}", spot.space is Space.VMEM, why))
    tops = {space: max((p.offset_bytes + p.bytes for p in placed.values() if p.space is space), default=0)
            for space in Space}
    if tops[Space.HBM] > target.slow_bytes:
        _too_large(module, placed, tops[Space.HBM], target)
    return MemoryPlan(placed, tops[Space.HBM], tops[Space.VMEM])


def _place(
    placed: Mapping[str, Placement], name: str, role: Role, type: Type, first: int, last: int,
    view: tuple[int, int], target: Target,
) -> Placement:
    """A placement at the lowest free offset: in VMEM if there is a view, else in HBM."""
    space = Space.VMEM if view != (0, 0) else Space.HBM
    size = -(-type.elements * WORD_BYTES // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    if space is Space.VMEM:
        sides = zip(view, (target.rows, target.lanes), strict=True)
        size = WORD_BYTES * prod(-(-side // multiple) * multiple for side, multiple in sides)
    offset = _first_fit([p for p in placed.values() if p.space is space], size, first, last)
    return Placement(name, type, role, space, offset, size, first, last, view)


def _live_ranges(module: Module) -> dict[str, tuple[Role, Type, int, int]]:
    """Buffer -> its role, type, and the first and last kernel that touches it; only a TEMP dies before the
    end."""
    end = len(module.kernels)
    live = {name: (Role.INPUT, type, 0, end) for name, type in module.inputs}
    live |= {name: (Role.CONSTANT, Type.of(value), 0, end) for name, value in module.constants.items()}
    outputs = {name for name, _ in module.outputs}
    for number, kernel in enumerate(module.kernels):
        for operand in kernel.outputs:
            role = Role.OUTPUT if operand.buffer in outputs else Role.TEMP
            _, type, first, _ = live.get(operand.buffer, (role, operand.type, number, 0))  # perhaps in place
            live[operand.buffer] = (role, type, first, end if role is Role.OUTPUT else number)
        for operand in kernel.reads:
            role, type, first, last = live[operand.buffer]
            live[operand.buffer] = (role, type, first, max(last, number))
    return live


def _vmem_view(module: Module, name: str, target: Target) -> tuple[tuple[int, int], str]:
    """The rows and columns by which every kernel sees a buffer, and why it stays; or (0, 0) and why not."""
    nowhere = (0, 0)
    if not target.keeps_temps:
        return nowhere, f"{target.name} has no memory between kernels but its main one"
    if any(one.buffer == name for kernel in module.kernels for one in kernel.scalars):
        return nowhere, "its numbers are looked up, so they go to scalar memory"
    touching = [(kernel, op) for kernel in module.kernels for op in kernel.operands if op.buffer == name]
    shape = touching[0][1].type.shape
    if len(shape) != 2 or any(operand.type.shape != shape for _, operand in touching):
        return nowhere, "the kernels that touch it do not see the same rows and columns"
    for kernel, operand in touching:
        sides = zip(kernel.block_shape(operand), shape, (target.rows, target.lanes), strict=True)
        if not all(block == size or block % multiple == 0 for block, size, multiple in sides):
            return nowhere, f"{kernel.name} has blocks that are not whole registers"
        plain = all(len(index.axes) == 1 and index == Index.axis(index.axes[0]) for index in operand.index)
        if not plain or operand.fill is not None:
            return nowhere, f"{kernel.name} reads it at ({', '.join(map(str, operand.index))})"
    return (shape[0], shape[1]), "it fits, and its bytes never leave the chip"


def _first_fit(others: list[Placement], size: int, first: int, last: int) -> int:
    """The lowest offset at which `size` bytes overlap no placement that is live at the same time."""
    offset = 0
    for other in sorted(others, key=lambda p: p.offset_bytes):
        apart = other.last < first or last < other.first
        if not apart and offset < other.offset_bytes + other.bytes and other.offset_bytes < offset + size:
            offset = other.offset_bytes + other.bytes
    return offset


def _too_large(module: Module, placed: Mapping[str, Placement], total: int, target: Target) -> NoReturn:
    largest = sorted(placed.values(), key=lambda p: -p.bytes)[:4]
    table = ", ".join(f"{p.buffer} {p.type} {size_text(p.bytes)}" for p in largest)
    locs = [loc for kernel in module.kernels for loc in kernel.locs()]
    raise CompileError(
        "memory", f"the buffers do not fit the memory of {target.name}",
        got=f"{size_text(total)}: {table}", need=f"at most {size_text(target.slow_bytes)}",
        at=tuple(dict.fromkeys(locs)))


def size_text(bytes: int) -> str:
    """Bytes as people write them: 1.5 MiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if bytes >= unit:
            return f"{bytes / unit:.1f} {name}"
    return f"{bytes} bytes"
