"""Pipelining: a kernel with its data movement made explicit.

    pipelined dot_maximum, 56 steps
      buffers   x[2] w[2] b[2] y[2]
      prologue
        copy_start x[t]
        copy_start w[t]
        copy_start b[t]
      steady  t = 0 .. 55
        copy_start x[t+1]
        copy_start w[t+1]
        copy_start b[t+1]   at k first
        copy_wait  x[t]
        copy_wait  w[t]
        copy_wait  b[t]     at k first
        copy_wait  y[-2]    at k first
        body
        copy_start y[t]     at k last
      epilogue
        copy_wait  y[-2]
        copy_wait  y[-1]

Goes in: a tiled Kernel, and how many buffers each operand gets (its depth). Comes out: a PipelinedKernel,
three lists of commands that code generation follows literally. A block is copied in only at the steps where
it changes, and out after its last step; the guard of a command names the grid axes that must be at their
first (or last) step then. `x[t+1]` is the block of the next step, `y[-2]` the one written two blocks ago,
whose buffer comes round again.

Why guards are this simple: from one step to the next, one axis advances and every axis inside it wraps to
zero. So an operand's block changed exactly if its innermost axis moved, that is, if all axes inside that
one stand at zero.

An output in place has one buffer, and its last copy out is waited for before the next block comes in.
Operands that lie in fast memory as the body wants them (`resident`) are read and written in place, never
copied; other buffers there have their blocks copied as those of slow memory have, which takes less time.
`evaluate_pipelined` (evaluate.py) runs this level with poisoned buffers, so a wrong pipeline fails at once.
Mosaic emits the same loop from a Pallas BlockSpec, with the guards as comparisons of block indices; Triton
and CUTLASS call it multistage (`num_stages` is the depth). Read next: tpu/lower.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from minicc.errors import CompileError
from minicc.kernel.ir import Kernel, Operand
from minicc.trace import Step


class Verb(Enum):
    """What a command does."""

    START = "copy_start"
    WAIT = "copy_wait"
    BODY = "body"


@dataclass(frozen=True)
class Command:
    """One command of a pipeline.

    operand: whose block; empty for the body. ahead: for an input, how many steps ahead of t the block is
    needed; for the wait on an output, how many of its blocks ago (negative). first / last: the axes that
    must stand at their first / last step, at the step the block belongs to, for the command to run at all.
    """

    verb: Verb
    operand: str = ""
    ahead: int = 0
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()

    def runs_at(self, point: Mapping[str, int], kernel: Kernel) -> bool:
        """Whether the guard holds at this step of the grid."""
        last = all(point[name] == kernel.axis(name).steps - 1 for name in self.last)
        return last and all(point[name] == 0 for name in self.first)

    def __str__(self) -> str:
        if self.verb is Verb.BODY:
            return "body"
        place = f"{self.ahead}" if self.ahead < 0 else "t" + (f"+{self.ahead}" if self.ahead else "")
        guards = [f"{name} first" for name in self.first] + [f"{name} last" for name in self.last]
        text = f"{self.verb.value:10} {self.operand}[{place}]"
        return f"{text:20} at {', '.join(guards)}" if guards else text


@dataclass(frozen=True)
class PipelinedKernel:
    """A kernel and the commands that move its blocks.

    depths: operand -> buffers; an operand that is not there is resident. prologue runs once before the
    first step, with t = 0; steady at every step; epilogue once after the last.
    """

    kernel: Kernel
    depths: Mapping[str, int]
    prologue: tuple[Command, ...]
    steady: tuple[Command, ...]
    epilogue: tuple[Command, ...]

    @property
    def ahead(self) -> int:
        """How many steps ahead of the body inputs are fetched."""
        return max((command.ahead for command in self.steady), default=0)

    def __str__(self) -> str:
        lines = [f"pipelined {self.kernel.name}, {self.kernel.steps} steps"]
        buffers = [f"{name}[{depth}]" for name, depth in self.depths.items()]
        resident = [op.name for op in self.kernel.operands if op.name not in self.depths]
        lines.append(f"  buffers   {' '.join(buffers)}")
        if resident:
            lines.append(f"  resident  {' '.join(resident)}")
        parts = (("prologue", self.prologue), (f"steady  t = 0 .. {self.kernel.steps - 1}", self.steady),
                 ("epilogue", self.epilogue))
        for title, commands in parts:
            lines += [f"  {title}", *(f"    {command}" for command in commands)]
        return "\n".join(lines)


def axes_inside(kernel: Kernel, operand: Operand) -> tuple[str, ...]:
    """The axes of more than one step that turn faster than every axis the operand moves along.

    With a grid m, n, k: x at (m, k) has none, b at (n) has k, an operand that never moves has all three.
    """
    inside: list[str] = []
    for axis in reversed(kernel.axes):
        if axis.steps == 1:
            continue
        if axis.name in operand.axes:
            break
        inside.insert(0, axis.name)
    return tuple(inside)


def blocks_of(kernel: Kernel, operand: Operand) -> int:
    """How many times the operand's block changes over the whole grid, the first time included."""
    inside = axes_inside(kernel, operand)
    inner = 1
    for name in inside:
        inner *= kernel.axis(name).steps
    return kernel.steps // inner


def pipeline(
    kernel: Kernel, *, resident: Collection[str] = (), depth: int = 2, log: list[Step] | None = None
) -> PipelinedKernel:
    """Make the kernel's copies explicit, with `depth` buffers for each operand that has more than one block.

    resident: names of operands that are used in place. depth 1 copies and computes in turn; 2 overlaps
    them. Raises: CompileError for a depth below 1.
    """
    if depth < 1:
        raise CompileError("pipeline", "a pipeline needs buffers", got=f"depth {depth}", need="1 or more")
    inputs = [op for op in kernel.inputs if op.name not in resident]
    outputs = [op for op in kernel.outputs if op.name not in resident]
    if any(op.in_place for op in outputs):
        depth = 1  # the next step may read what this one writes
    ahead = min(depth, kernel.steps) - 1
    depths = {op.name: min(ahead + 1, blocks_of(kernel, op)) for op in inputs}
    depths |= {op.name: min(depth, blocks_of(kernel, op)) for op in outputs}
    guard = {op.name: axes_inside(kernel, op) for op in inputs + outputs}
    start, wait, body = Verb.START, Verb.WAIT, Verb.BODY

    prologue = tuple(
        Command(start, op.name, step, first=guard[op.name]) for step in range(ahead) for op in inputs
    )
    fetch = tuple(Command(start, op.name, ahead, first=guard[op.name]) for op in inputs)
    fetch += tuple(Command(wait, op.name, 0, first=guard[op.name]) for op in inputs)
    drain = tuple(Command(wait, op.name, -depths[op.name], first=guard[op.name]) for op in outputs)
    steady = (*drain, *fetch) if any(op.in_place for op in outputs) else (*fetch, *drain)
    steady += (Command(body),)
    steady += tuple(Command(start, op.name, 0, last=guard[op.name]) for op in outputs)
    epilogue = tuple(Command(wait, op.name, -ago) for op in outputs for ago in range(depths[op.name], 0, -1))
    if log is not None:
        for op in inputs + outputs:
            why = f"blocks {blocks_of(kernel, op)}, steps {kernel.steps}, buffers {depths[op.name]}"
            log.append(Step(f"copy {op.name}", True, why))
    return PipelinedKernel(kernel, depths, prologue, steady, epilogue)
