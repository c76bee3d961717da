"""Arrays: what kernels meet in, and how it is named, addressed and brought into VMEM.

    t2  VMEM, in place     vld v1, [t2 + s3 + 0x0]                           no copy at all
    t3  VMEM, as a line    dma.line_to_vmem [dot.t3 + s4 + 0x0], [t3 + s5 + 0x0]   blocks, within the chip
    x   HBM                dma.hbm_to_vmem [dot.x + s4 + 0x0], [x + s5 + 0x0]      the same, from HBM
    w   HBM, and fetched   dma.hbm_to_vmem [w.near + 0x0], [w + 0x0]          once, whole; then as t2 or t3

Goes in: the plan of a program's memory. Comes out: its buffers, and for each array the names that copies use.
Invariants: an array that is fetched has a VMEM buffer and a semaphore of its own; its copy is started in the
kernel that the plan says, or later, behind what is needed before it, and waited for in the first kernel that
reads it, so that it flies while others compute. XLA prints the same pair as copy-start and copy-done. Read
next: windows.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from minicc.kernel.ir import Kernel
from minicc.kernel.memory import NOWHERE, MemoryPlan, Placement, Role, Space
from minicc.tpu.assembly import Writer
from minicc.tpu.isa import Address, HbmBuffer, Semaphore, VmemBuffer
from minicc.tpu.layout import round_up
from minicc.tpu.machine import ROW_BYTES, SUBLANES

ROLES = {Role.INPUT: "input", Role.CONSTANT: "input", Role.OUTPUT: "output", Role.UPDATED: "updated",
         Role.TEMP: "temp"}


class Arrays:
    """The arrays of a program. buffers, semaphores: what it must declare for them."""

    def __init__(self, plan: MemoryPlan, kernels: Sequence[Kernel]) -> None:
        self.plan = plan
        self.buffers = [_declared(place, place.buffer) for place in plan.placements.values()]
        self.buffers += [_declared(place, self.name(name)) for name, place in plan.fetched.items()]
        self.semaphores = [Semaphore(f"{self.name(name)}.sem") for name in plan.fetched]
        self.started: set[str] = set()  # of what is fetched
        self.readers: dict[str, int] = {}  # of what is fetched, the first kernel
        for number, kernel in enumerate(kernels):
            for operand in kernel.reads:
                if operand.buffer in plan.fetched:
                    self.readers.setdefault(operand.buffer, number)

    def name(self, buffer: str) -> str:
        """What the program calls an array, as kernels meet it."""
        return f"{buffer}.near" if buffer in self.plan.fetched else buffer

    def kind(self, buffer: str) -> str:
        """The kind of memory that a copy finds it in, as in the names of DMAs."""
        return "line" if self.plan.resident(buffer) else "hbm"

    def late(self, buffer: str, number: int) -> bool:
        """Whether a kernel must wait before it can copy from an array, as its first reader, or before it."""
        return self.readers.get(buffer, -1) >= number

    def over(self, buffer: str, number: int) -> bool:
        """Whether others may have an array's bytes by the time of a kernel."""
        return self.plan.placements[buffer].last < number

    def bring(self, write: Writer, number: int, during: int) -> bool:
        """Start to fetch, in one kernel, what another is the first to read. Returns: whether all has started.
        """
        wanted = {name: place for name, place in self.plan.fetched.items()
                  if self.readers.get(name) == number and name not in self.started}
        for buffer, place in wanted.items():
            if place.first <= during:
                self.started.add(buffer)
                rows, columns = place.view
                shape: tuple[int, ...] = (place.type.elements,)
                strides: tuple[int, ...] = (1,)
                panel = 1
                if self.plan.in_place(buffer):
                    fit = SUBLANES * place.type.dtype.per_word
                    shape, strides, panel = place.view, (columns, 1), round_up(rows, fit)
                write.op("dma.hbm_to_vmem", Address(self.name(buffer)), Address(buffer),
                         self._semaphore(buffer), shape=shape, strides=strides, panel=panel)
        return self.started.issuperset(wanted)

    def wait(self, write: Writer, number: int) -> None:
        """Wait for what a kernel is the first to read."""
        for buffer in self.plan.fetched:
            if self.readers.get(buffer) == number:
                write.op("dma.done.wait", self._semaphore(buffer))

    def _semaphore(self, buffer: str) -> Address:
        return Address(f"{self.name(buffer)}.sem")


def _declared(place: Placement, name: str) -> HbmBuffer | VmemBuffer:
    """A buffer for the whole program."""
    dtype = place.type.dtype.name
    if place.space is Space.HBM:
        return HbmBuffer(name, dtype, place.type.shape, ROLES[place.role])
    if place.view == NOWHERE:  # a line has a word for each element
        dtype = "i32" if place.type.dtype.per_word > 1 else dtype
    return VmemBuffer(name, place.bytes // ROW_BYTES, place.offset_bytes // ROW_BYTES, dtype)
