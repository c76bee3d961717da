"""Memory planning: where each buffer between kernels lives, and from which byte on.

    Placement("h", f32[128,512], VMEM, offset 0, 262144 bytes)      made by one kernel, read by the next, never leaves

Goes in: a Module of tiled kernels, the target, and what each kernel needs for itself. Comes out: a MemoryPlan. Inputs, outputs and
constants live in HBM. A buffer between kernels lives in fast memory (VMEM) when every kernel that touches it sees the
same rows and columns of it and it fits beside the largest kernel's own blocks; else in HBM. Two buffers share bytes
only if the last kernel that reads the one comes before the kernel that writes the other.

XLA calls this buffer assignment; its memory-space assignment moves buffers into VMEM by a far richer cost-benefit
search. First-fit over live ranges is what most compilers ship. Read next: pipeline.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from minicc.graph.ir import Type


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
    """Every buffer of a module, placed. hbm_bytes, vmem_bytes: the highest byte used of each space, by buffers."""

    placements: Mapping[str, Placement]
    hbm_bytes: int
    vmem_bytes: int

    def resident(self, buffer: str) -> bool:
        """Whether the buffer stays in fast memory."""
        return self.placements[buffer].space is Space.VMEM
