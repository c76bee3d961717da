"""A plan to look at: which buffer lies where, from when to when; what that takes, and what it must.

    hbm: 4.5 MiB at most; 4.2 MiB live at once, in kernel 2 dot
           at      bytes  buffer                       kernels 1 to 4
            0    1.0 MiB  x       f32[512,512]  input  ####
      1048576  512.0 KiB  t3      f32[256,512]  temp   ##..

Goes in: a Module and its MemoryPlan. Comes out: text, and figures. Invariants: bars run over kernels in the
order in which they run, each column one of them, or several if there are many; the lower bound is what is
live in the fullest kernel, which no plan of this order goes below, and a good one comes near. XLA's buffer
assignment prints the same table; PyTorch draws it from recorded runs. Read next: memory.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from minicc.kernel.ir import Module
from minicc.kernel.memory import MemoryPlan, Placement, Role, Space, size_text

BAR_COLUMNS = 32
LIVE, DEAD = "#", "."


@dataclass(frozen=True)
class MemoryMap:
    """A module's buffers and where they lie. Prints as a table for each memory."""

    module: Module
    plan: MemoryPlan

    def buffers(self, space: Space) -> list[Placement]:
        """What lies in a memory, from its first byte on, and copies that are fetched there."""
        every = (*self.plan.placements.values(), *self.plan.fetched.values())
        found = [place for place in every if place.space is space]
        return sorted(found, key=lambda place: (place.offset_bytes, place.first))

    def peak_bytes(self, space: Space) -> int:
        """The highest byte used."""
        return max((place.offset_bytes + place.bytes for place in self.buffers(space)), default=0)

    def lower_bound(self, space: Space) -> tuple[int, int]:
        """The most bytes that are live at once, and the number of the kernel that runs then."""
        onto = self.module.onto  # what begins where something else lies
        lives = [(place.first + (place.buffer in onto), place.last, place.bytes)
                 for place in self.buffers(space)]
        sums = [(sum(size for first, last, size in lives if first <= number <= last), -number)
                for number in range(max(1, len(self.module.kernels)))]
        most, number = max(sums)
        return most, -number

    def bar(self, place: Placement) -> str:
        """When a buffer is live, as a bar over the kernels."""
        count = len(self.module.kernels)
        columns = min(count, BAR_COLUMNS)
        starts = [column * count // columns for column in range(columns)]
        edges = zip(starts, [start - 1 for start in (*starts[1:], count)], strict=True)
        return "".join(LIVE if place.first <= end and begin <= place.last else DEAD for begin, end in edges)

    def __str__(self) -> str:
        tables = [list(self._table(space)) for space in Space if self.buffers(space)]
        tables += [list(rows) for rows in (self._donated(), self._again())]
        text = "\n\n".join("\n".join(table) for table in tables if table)
        return text or f"{self.module.name} has no buffers"

    def _again(self) -> Iterator[str]:
        """What is computed again, and what that takes."""
        for name, again in self.module.again.items():
            if again.cycles:
                size, cycles = size_text(self.plan.placements[name].bytes), f"{again.cycles:,.0f} cycles"
                yield f"computed again: {again.buffer} as {name}, {size} for {cycles}"

    def _donated(self) -> Iterator[str]:
        """What lies where something donated was, and what was donated in vain."""
        for name in self.module.donated:
            place = self.plan.placements[name]
            later = [one.buffer for one in self.plan.sharing(place)]
            if place.role is Role.UPDATED:
                yield f"donated: {name} is changed in place"
            elif name in dict(self.module.outputs):
                yield f"donated: {name} is returned as it is"
            else:
                yield f"donated: {name}, and its bytes hold {', '.join(later) or 'nothing else'} later"

    def _word(self, place: Placement) -> str:
        """What a buffer is, in a word."""
        if place is self.plan.fetched.get(place.buffer):
            return "fetched"
        if place.buffer in self.module.again:
            return "again"
        return "donated" if place.buffer in self.module.donated else place.role.value

    def _table(self, space: Space) -> Iterator[str]:
        least, number = self.lower_bound(space)
        where = f", in kernel {number + 1} {self.module.kernels[number].name}" if self.module.kernels else ""
        yield (f"{space.value}: {size_text(self.peak_bytes(space))} at most; "
               f"{size_text(least)} live at once{where}")
        rows = [(str(place.offset_bytes), size_text(place.bytes), place.buffer, str(place.type),
                 self._word(place),
                 self.bar(place)) for place in self.buffers(space)]
        rows.insert(0, ("at", "bytes", "buffer", "", "", f"kernels 1 to {len(self.module.kernels)}"))
        at, size, name, type, role, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
        for row in rows:
            yield (f"  {row[0]:>{at}}  {row[1]:>{size}}  {row[2]:{name}}  {row[3]:{type}}  {row[4]:{role}}  "
                   f"{row[5]}")
