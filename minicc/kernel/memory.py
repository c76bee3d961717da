"""Memory planning: where each buffer lives, and from which byte on.

    t1  f32[128,512]    VMEM, in place      two kernels see the same rows and columns of it: no copies at all
    t2  f32[4,128,24]   VMEM, as a line     blocks are copied within the chip, as they are from and to HBM
    w   f32[512,512]    HBM, fetched to VMEM during kernel 0 since kernels 1 and 5 both read it

Goes in: a Module of tiled kernels and the target. Comes out: a MemoryPlan. Inputs, outputs and constants live
in HBM. A buffer between kernels lives in fast memory (VMEM), and so does a copy of an input that would be
read more than once, where that pays by the cost model; as long as they fit beside the largest kernel's own
blocks, those first that save most bytes to and from HBM. One that every kernel sees by the same rows and
columns is used in place, without blocks. Two buffers share bytes only if the last kernel that reads the one
comes before the kernel that writes the other, or if the one is donated and the other written onto it
(donate.py); what is fetched lives from the kernel during which it comes in.

XLA calls this buffer assignment; its memory-space assignment moves buffers into VMEM, and prefetches weights
there, by a far richer cost-benefit search. Largest first, each at the lowest place that is free while it
lives, is what TensorFlow Lite ships; it comes within a percent of what is live at once on a GPT-2's training.
Source: Y. Pisarchyk and J. Lee, "Efficient memory management for deep neural net inference", arXiv
2001.03288. Read next: pipeline.py.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NoReturn

from minicc.errors import CompileError
from minicc.graph.ir import Type
from minicc.kernel.cost import Target, cost, operand_bytes
from minicc.kernel.ir import Index, Kernel, Module, Operand
from minicc.kernel.tile import fast_bytes
from minicc.trace import Step

WORD_BYTES = 4  # an element of a line in VMEM takes a 32-bit word
ALIGNMENT_BYTES = 512
HBM_WORTH = 0.5  # cycles of the program that a cycle of HBM is worth, which others can use [an assumption]
FETCH_AHEAD = 8  # kernels before the first that reads an array, at the most, in which it may come in
NOWHERE = (0, 0)  # the view of a buffer that is not used in place
Live = tuple["Role", Type, int, int]  # a buffer's role and type, the first and the last kernel it lives for
_Touch = tuple[Kernel, Operand]  # a kernel, and how it sees a buffer


class Space(Enum):
    """The memories a buffer can be planned into."""

    HBM = "hbm"
    VMEM = "vmem"


class Role(Enum):
    """What a buffer is to the program."""

    INPUT = "input"
    OUTPUT = "output"
    UPDATED = "updated"  # an input that is changed in place, and an output
    CONSTANT = "constant"
    TEMP = "temp"


FETCHED = (Role.INPUT, Role.CONSTANT)  # what may be fetched: it stays as it is


@dataclass(frozen=True)
class Placement:
    """One buffer and its bytes. first, last: the kernels (by number) between which it is live, both included.

    view: (rows, columns) that kernels see of a VMEM buffer which they use in place, and which lies there in
    panels of 128 columns; else NOWHERE, and it lies as in HBM, row by row.
    """

    buffer: str
    type: Type
    role: Role
    space: Space
    offset_bytes: int
    bytes: int
    first: int
    last: int
    view: tuple[int, int] = NOWHERE

    def meets(self, other: Placement) -> bool:
        """Whether two have bytes in common."""
        return (self.space is other.space and self.offset_bytes < other.offset_bytes + other.bytes
                and other.offset_bytes < self.offset_bytes + self.bytes)


@dataclass(frozen=True)
class MemoryPlan:
    """Every buffer of a module, placed. hbm_bytes, vmem_bytes: the highest byte used of each space, by
    buffers.

    fetched: of some that live in HBM, the copy in VMEM that all kernels read instead. It is brought in while
    kernel `first` runs, or before it, if that is the first to read it.
    """

    placements: Mapping[str, Placement]
    hbm_bytes: int
    vmem_bytes: int
    fetched: Mapping[str, Placement] = field(default_factory=dict)

    def at(self, buffer: str) -> Placement:
        """Where kernels meet a buffer. Raises: CompileError if the plan forgot it."""
        if buffer not in self.placements:
            raise CompileError("plan", f"buffer {buffer} has no place", need="a placement for every buffer")
        return self.fetched.get(buffer, self.placements[buffer])

    def resident(self, buffer: str) -> bool:
        """Whether kernels find a buffer in fast memory. Raises: CompileError if the plan forgot it."""
        return self.at(buffer).space is Space.VMEM

    def in_place(self, buffer: str) -> bool:
        """Whether kernels work on a buffer where it lies. Raises: CompileError if the plan forgot it."""
        return self.at(buffer).view != NOWHERE

    def sharing(self, place: Placement) -> list[Placement]:
        """The other placements that have bytes in common with this one."""
        return [one for one in (*self.placements.values(), *self.fetched.values())
                if one is not place and one.meets(place)]


@dataclass(frozen=True)
class _Wish:
    """What would better be in VMEM: where, but for the offset; how many bytes to and from HBM that saves.

    apart: why it cannot be used in place; empty if it can.
    """

    place: Placement
    saved_bytes: int
    gain: str
    apart: str


def plan(module: Module, target: Target, *, log: list[Step] | None = None) -> MemoryPlan:
    """Place every buffer of a module.

    Raises: CompileError if what must lie in HBM does not fit; the error lists the largest buffers.
    """
    live = _live_ranges(module)
    room = max(0, target.fast_bytes - max((fast_bytes(k, target) for k in module.kernels), default=0))
    near: dict[str, Placement] = {}
    taken: list[Placement] = []
    for wish in sorted(_wishes(module, live, target), key=lambda wish: -wish.saved_bytes):
        spot, why = _in_vmem(wish, taken, room, target)
        if spot:
            near[spot.buffer] = spot
            insort(taken, spot, key=_offset)
        if log is not None:
            where = f"{wish.place.buffer}: {wish.place.type} in {'vmem' if spot else 'hbm'}"
            log.append(Step(where, spot is not None, why))
    placed = {name: near.pop(name) for name, (role, *_) in live.items() if role is Role.TEMP and name in near}
    onto = module.onto
    far = [Placement(name, type, role, Space.HBM, 0, _line_bytes(type), first, last)
           for name, (role, type, first, last) in live.items() if name not in {*placed, *onto}]
    taken = []
    for place in sorted(far, key=lambda place: -place.bytes):
        placed[place.buffer] = _fit(place, taken)
        insort(taken, placed[place.buffer], key=_offset)
    for new, old in onto.items():
        role, type, first, last = live[new]
        placed[new] = replace(placed[old], buffer=new, type=type, role=role, first=first)
        placed[old] = replace(placed[old], last=first)
    placed = {name: placed[name] for name in live}
    tops = {space: max((p.offset_bytes + p.bytes for p in (*placed.values(), *near.values())
                        if p.space is space), default=0) for space in Space}
    if tops[Space.HBM] > target.slow_bytes:
        _too_large(module, placed, tops[Space.HBM], target)
    return MemoryPlan(placed, tops[Space.HBM], tops[Space.VMEM], near)


def _wishes(module: Module, live: Mapping[str, Live], target: Target) -> Iterator[_Wish]:
    """The buffers between kernels, and the inputs and constants that would cross from HBM more than once."""
    moved, readers, touching = Counter[str](), dict[str, list[int]](), dict[str, list[_Touch]]()
    for number, kernel in enumerate(module.kernels):
        for op in kernel.operands:
            moved[op.buffer] += operand_bytes(kernel, op)
            touching.setdefault(op.buffer, []).append((kernel, op))
        for op in kernel.reads:
            readers.setdefault(op.buffer, []).append(number)
    looked_up = {one.buffer for kernel in module.kernels for one in kernel.scalars}
    for name, (role, type, first, last) in live.items():
        once, gain = type.bytes, "it fits, and its bytes never leave the chip"
        saved = moved[name] + once * (name in looked_up)
        if role is not Role.TEMP:
            again = once < moved[name] and role in FETCHED and name not in looked_up
            if not (again and target.keeps_temps and
                    _pays(module, name, readers[name], moved[name], once, target)):
                continue
            saved, gain = moved[name] - once, f"fetched once: it would cross {moved[name] / once:.3g} times"
            first, last = max(0, readers[name][0] - FETCH_AHEAD), readers[name][-1]
        view, apart = NOWHERE, "its numbers are looked up, so they go to scalar memory"
        if name not in looked_up:
            view, apart = _common_view(touching[name], target)
        yield _Wish(Placement(name, type, role, Space.VMEM, 0, 0, first, last, view), saved, gain, apart)


def _pays(module: Module, name: str, readers: list[int], moved: int, once: int, target: Target) -> bool:
    """Whether to fetch an array whole pays, by the time of the kernels that read it, of which the program's
    first has to wait for all of it, and for what HBM is free to do instead."""
    kernels = [module.kernels[number] for number in dict.fromkeys(readers)]
    waiting = target.latency_cycles + once / target.bytes_per_cycle if readers[0] == 0 else 0.0
    before, after = (sum(cost(kernel.nearer(near), target).cycles for kernel in kernels)
                     for near in ((), (name,)))
    freed = (moved - once) / target.bytes_per_cycle
    return waiting + after <= before + HBM_WORTH * freed


def _in_vmem(wish: _Wish, near: list[Placement], room: int, target: Target) -> tuple[Placement | None, str]:
    """The lowest place in VMEM that a wish fits in, and why; or none, and why not."""
    if not target.keeps_temps:
        return None, f"{target.name} has no memory between kernels but its main one"
    type = wish.place.type
    line = _round_up(max(1, type.elements) * WORD_BYTES, ALIGNMENT_BYTES * target.rows)
    forms = [(NOWHERE, line, f"{wish.gain}; in blocks: {wish.apart or 'panels would not fit'}")]
    if wish.place.view != NOWHERE:
        rows, columns = map(_round_up, wish.place.view, (target.rows * type.dtype.per_word, target.lanes))
        forms.insert(0, (wish.place.view, type.dtype.itemsize * rows * columns, wish.gain))
    for view, size, why in forms:
        spot = _fit(replace(wish.place, view=view, bytes=size), near)
        if spot.offset_bytes + size <= room:
            return spot, why
    return None, f"{size} bytes at {spot.offset_bytes}: {room} are left beside the kernels' blocks"


def _live_ranges(module: Module) -> dict[str, Live]:
    """Buffer -> its role, type, and the first and last kernel that touches it; all but a TEMP, and what is
    donated, live to the end."""
    end = len(module.kernels)
    live = {name: (Role.INPUT, type, 0, end if module.donated.get(name, name) else 0)
            for name, type in module.inputs}
    live |= {name: (Role.CONSTANT, Type.of(value), 0, end) for name, value in module.constants.items()}
    outputs = {name for name, _ in module.outputs}
    for number, kernel in enumerate(module.kernels):
        for operand in kernel.outputs:
            role = Role.OUTPUT if operand.buffer in outputs else Role.TEMP
            old, type, first, _ = live.get(operand.buffer, (role, operand.type, number, 0))
            role = role if old is role else Role.UPDATED  # what was there is changed in place
            live[operand.buffer] = (role, type, first, number if role is Role.TEMP else end)
        for operand in kernel.reads:
            role, type, first, last = live[operand.buffer]
            live[operand.buffer] = (role, type, first, max(last, number))
    return live


def _common_view(touching: list[_Touch], target: Target) -> tuple[tuple[int, int], str]:
    """The rows and columns by which every kernel sees a buffer; or NOWHERE, and who sees it otherwise."""
    type = touching[0][1].type
    shape, registers = type.shape, (target.rows * type.dtype.per_word, target.lanes)
    if len(shape) != 2 or any(operand.type.shape != shape for _, operand in touching):
        return NOWHERE, "the kernels that touch it do not see the same rows and columns"
    for kernel, operand in touching:
        if any(index.terms[1:] for other in kernel.inputs for index in other.index):
            return NOWHERE, f"{kernel.name} walks it as a line of pixels"
        sides = zip(kernel.block_shape(operand), shape, registers, strict=True)
        if not all(block == size or block % multiple == 0 for block, size, multiple in sides):
            return NOWHERE, f"{kernel.name} has blocks that are not whole registers"
        plain = all(len(index.axes) == 1 and index == Index.axis(index.axes[0]) for index in operand.index)
        if not plain or operand.fill is not None:
            return NOWHERE, f"{kernel.name} reads it at ({', '.join(map(str, operand.index))})"
    return (shape[0], shape[1]), ""


def _fit(place: Placement, others: list[Placement]) -> Placement:
    """A placement at the lowest offset at which it overlaps none that is live at the same time.

    others: those of the same memory, in the order of their offsets.
    """
    offset, first, last = 0, place.first, place.last
    for other in others:
        if other.first <= last and first <= other.last:
            if offset + place.bytes <= other.offset_bytes:
                break
            offset = max(offset, other.offset_bytes + other.bytes)
    return replace(place, offset_bytes=offset)


def _offset(place: Placement) -> int:
    return place.offset_bytes


def _line_bytes(type: Type) -> int:
    """Bytes of an array, row by row, that the next one does not begin in."""
    return _round_up(type.bytes, ALIGNMENT_BYTES)


def _round_up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _too_large(module: Module, placed: Mapping[str, Placement], total: int, target: Target) -> NoReturn:
    largest = sorted(placed.values(), key=lambda p: -p.bytes)[:4]
    table = ", ".join(f"{p.buffer} {p.type} {size_text(p.bytes)}" for p in largest)
    locs = [loc for kernel in module.kernels for loc in kernel.locs()]
    raise CompileError(
        "memory", f"the buffers do not fit the memory of {target.name}",
        got=f"{size_text(total)}: {table}", need=f"at most {size_text(target.slow_bytes)}",
        at=tuple(dict.fromkeys(locs)), hint="memory_limit, donate_argnums, checkpoint, a smaller batch")


def size_text(bytes: int) -> str:
    """Bytes as people write them: 1.5 MiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if bytes >= unit:
            return f"{bytes / unit:.1f} {name}"
    return f"{bytes} bytes"
