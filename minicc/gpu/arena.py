"""The memory of temporaries in vector mode: one arena, in which what lives at other times overlaps.

    t1 made by kernel 0, read by kernel 1; t2 made by 1, read by 2; t3 made by 2, read by 3
        ->   t1 and t3 in block 0, t2 in block 1: places {t1: 0, t2: 4096, t3: 0}, 8192 bytes

Goes in: the kernels, and what each of them needs beside its operands. Comes out: an Arena, whose arrays are
made once and lent to one run at a time. Memory that a process has touched is much faster than new memory,
which the system has to clear: on a GPT block a fifth of the time. So all programs share their arenas; a
larger one takes the place of a smaller. A GPU's framework keeps such a caching allocator too. Read next:
program.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from weakref import WeakKeyDictionary

import numpy as np

from minicc.graph.ir import Type
from minicc.kernel.ir import Kernel

ALIGNMENT_BYTES = 64
Arrays = dict[str, np.ndarray]
Lent = tuple[np.ndarray, "WeakKeyDictionary[Arena, Arrays]"]  # memory, and each arena's arrays in it
_spare: list[Lent] = []  # what no run uses at the moment


class Arena:
    """Where each temporary begins; what kernel 3 needs for itself is called "3.0", "3.1", ..."""

    def __init__(self, kernels: Sequence[Kernel], needs: Iterable[Sequence[Type]], kept: Collection[str]):
        """Place all buffers that kernels write, but those that are kept after the run."""
        last = {op.buffer: n for n, kernel in enumerate(kernels) for op in (*kernel.reads, *kernel.outputs)}
        self.blocks: dict[str, tuple[int, Type]] = {}
        self.sizes: list[int] = []
        free: list[int] = []
        for number, (kernel, own) in enumerate(zip(kernels, needs, strict=True)):
            wanted = {op.buffer: op.type for op in kernel.outputs if op.buffer not in {*kept, *self.blocks}}
            wanted |= {f"{number}.{i}": type for i, type in enumerate(own)}
            for name, type in wanted.items():
                self.blocks[name] = self._place(type, free), type
            free += {self.blocks[name][0] for name in {*wanted, *(op.buffer for op in kernel.reads)}
                     if name in self.blocks and last.get(name, number) == number}
        self.starts = list(accumulate(self.sizes, initial=0))

    def _place(self, type: Type, free: list[int]) -> int:
        """The free block that fits a type best, made larger if need be; or a new one."""
        size = -(-_bytes(type) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if not free:
            self.sizes.append(size)
            return len(self.sizes) - 1
        block = min(free, key=lambda one: (self.sizes[one] < size, abs(self.sizes[one] - size)))
        free.remove(block)
        self.sizes[block] = max(size, self.sizes[block])
        return block

    def take(self) -> tuple[Lent, Arrays]:
        """Memory for one run, to be given back, and the arrays in it."""
        try:
            lent = _spare.pop()
        except IndexError:  # another run has it, or this is the first
            lent = np.empty(0, np.uint8), WeakKeyDictionary()
        if len(lent[0]) < self.starts[-1]:
            lent = np.empty(self.starts[-1], np.uint8), WeakKeyDictionary()
        memory, known = lent
        if self not in known:
            known[self] = {
                name: memory[self.starts[block]:][:_bytes(type)].view(type.dtype.numpy).reshape(type.shape)
                for name, (block, type) in self.blocks.items()}
        return lent, known[self]

    def give(self, lent: Lent) -> None:
        """The run is over."""
        _spare.append(lent)


def _bytes(type: Type) -> int:
    return type.elements * type.dtype.itemsize
