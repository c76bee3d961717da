"""Checks that a kernel is what ir.py says a kernel is; a pass that breaks a rule is caught before it
miscompiles.

    verify(kernel.tiled({"n": 5}))      CompileError: verify softmax: axis n is whole but has 2 steps

Goes in: a Kernel, a Module or a PipelinedKernel. Comes out: nothing, or a CompileError that names the
kernel, what is wrong and the user's lines. Every pass of minicc passes it; it is there for the passes that
people write. MLIR verifies every operation after every pass; XLA has an HloVerifier between passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from minicc.errors import CompileError
from minicc.kernel.donate import onto
from minicc.kernel.ir import Axis, AxisKind, Block, Guard, Kernel, Module, Operand
from minicc.kernel.memory import MemoryPlan
from minicc.kernel.pipeline import PipelinedKernel, Verb

ORDER = [AxisKind.PARALLEL, AxisKind.WHOLE, AxisKind.SEQUENTIAL]


def verify(level: Kernel | Module | PipelinedKernel) -> None:
    """Raises: CompileError for the first rule that the level breaks."""
    if isinstance(level, Module):
        made = {name for name, _ in level.inputs} | set(level.constants)
        for kernel in level.kernels:
            verify(kernel)
            in_place = [op for op in kernel.outputs if op.in_place]
            if missing := [op.buffer for op in (*kernel.reads, *in_place) if op.buffer not in made]:
                raise CompileError(f"verify {kernel.name}", f"nothing made {missing[0]} before it is read")
            made |= {operand.buffer for operand in kernel.outputs}
        if missing := [name for name, _ in level.outputs if name not in made]:
            raise CompileError(f"verify {level.name}", f"no kernel makes its output {missing[0]}")
        return
    kernel = level.kernel if isinstance(level, PipelinedKernel) else level
    for problem in problems(kernel):
        raise CompileError(f"verify {kernel.name}", problem, at=kernel.locs())
    if isinstance(level, PipelinedKernel):
        names = {operand.name for operand in level.kernel.operands}
        for command in (*level.prologue, *level.steady, *level.epilogue):
            if command.verb is not Verb.BODY and command.operand not in names & set(level.depths):
                raise CompileError(f"verify {level.kernel.name}", f"`{command}` copies what has no buffers",
                                   need=", ".join(level.depths), at=level.kernel.locs())


def verify_plan(plan: MemoryPlan, module: Module) -> None:
    """Raises: CompileError for a buffer that has no place when a kernel needs it, or two that are in one."""
    for problem in _plan_problems(plan, module):
        raise CompileError(f"verify plan of {module.name}", problem)


def _plan_problems(plan: MemoryPlan, module: Module) -> Iterator[str]:
    end, needed = len(module.kernels), dict[str, set[int]]()
    for name in (*(name for name, _ in module.inputs), *module.constants):
        needed[name] = {0} if name in module.donated else {0, end}  # else they are there for the next run
    for number, kernel in enumerate(module.kernels):
        for operand in (*kernel.reads, *kernel.outputs):
            needed.setdefault(operand.buffer, set()).add(number)
    for name, _ in module.outputs:
        needed.setdefault(name, set()).add(end)
    for name, times in needed.items():
        if not (place := plan.placements.get(name)):
            yield f"buffer {name} has no place"
        elif min(times) < place.first or place.last < max(times):
            yield (f"{name} is live in kernels {place.first} to {place.last}, "
                   f"and needed from {min(times)} to {max(times)}")
    for name, copy in plan.fetched.items():
        times = {number for number, kernel in enumerate(module.kernels)
                 if name in {operand.buffer for operand in kernel.reads}}
        if min(times) < copy.first or copy.last < max(times):
            yield f"the copy of {name} is there in kernels {copy.first} to {copy.last}, and read in {times}"
    for one, other in combinations((*plan.placements.values(), *plan.fetched.values()), 2):
        begin, start = max(one.first, other.first), max(one.offset_bytes, other.offset_bytes)
        if one.meets(other) and begin <= min(one.last, other.last) and not (
                one.last == begin == other.first and onto(module.kernels[begin], one.buffer, other.buffer)):
            yield (f"{one.buffer} and {other.buffer} have bytes of {one.space.value} in common, from {start} "
                   f"on, and both are live in kernel {begin}")


def problems(kernel: Kernel) -> Iterator[str]:
    """Everything that is wrong with a kernel, in words."""
    names = [axis.name for axis in kernel.axes]
    targets = [operand.name for operand in (*kernel.operands, *kernel.scalars)]
    targets += [scratch.name for scratch in kernel.scratch]
    for what, found in (("axis", names), ("operand", targets)):
        twice = {name for name in found if found.count(name) > 1}
        yield from (f"two are called {what} {name}" for name in sorted(twice))
    for axis in kernel.axes:
        yield from _axis_problems(axis)
    if [axis.kind for axis in kernel.axes] != sorted((axis.kind for axis in kernel.axes), key=ORDER.index):
        yield "its axes are not in the order parallel, whole, sequential"
    for operand in kernel.operands:
        yield from _operand_problems(kernel, operand)
        yield from _lookup_problems(kernel, operand)
    for block in kernel.blocks():
        yield from _block_problems(block, targets, names)
    yield from _statement_problems(kernel)


def _axis_problems(axis: Axis) -> Iterator[str]:
    if not 1 <= axis.block <= axis.size:
        yield f"axis {axis.name} has blocks of {axis.block}, not of 1 to {axis.size}"
    elif axis.kind is AxisKind.WHOLE and axis.steps != 1:
        yield f"axis {axis.name} is whole but has {axis.steps} steps"


def _operand_problems(kernel: Kernel, operand: Operand) -> Iterator[str]:
    sizes = {axis.name: axis.size for axis in kernel.axes}
    if len(operand.index) != len(operand.type.shape):
        yield f"{operand.name} has {len(operand.index)} indices for {operand.type}"
        return
    for index, size in zip(operand.index, operand.type.shape, strict=True):
        if unknown := set(index.axes) - set(sizes):
            yield f"{operand.name} moves along {', '.join(sorted(unknown))}, which is no axis"
            continue
        spans = [stride * (sizes[name] - 1) for name, stride in index.terms]
        low, high = (index.offset + sum(edge(span, 0) for span in spans) for edge in (min, max))
        high += sum(lookup.clamp or 0 for lookup in index.lookups)
        anywhere = any(lookup.clamp is None for lookup in index.lookups)
        inside = operand.in_place if anywhere else 0 <= low <= high < size
        if operand.fill is None and not inside:
            yield f"{operand.name} is read at {index}, from {low} to {high}, outside of 0 to {size - 1}"


def _lookup_problems(kernel: Kernel, operand: Operand) -> Iterator[str]:
    known = {one.name: one for one in kernel.scalars}
    for lookup in (lookup for index in operand.index for lookup in index.lookups):
        if lookup.scalars not in known:
            yield f"{operand.name} looks up {lookup.scalars}, which is not in scalar memory"
        elif len(lookup.index) != len(known[lookup.scalars].type.shape):
            yield f"{operand.name} looks up {lookup}, of {known[lookup.scalars].type}"
    for axis in kernel.axes:
        if axis.name in {name for index in operand.index for name in index.walked} and axis.block != 1:
            yield f"{operand.name} looks up its place along {axis.name}, which has blocks of {axis.block}"


def _block_problems(block: Block, targets: list[str], names: list[str]) -> Iterator[str]:
    if block.op == "load" and block.attrs["ref"] not in targets:
        yield f"it loads {block.attrs['ref']}, which is no operand"
    reduced = set(block.reduced)
    if unknown := (set(block.axes) | reduced) - set(names):
        yield f"{block.op} runs along {', '.join(sorted(unknown))}, which is no axis"
    below = {name for arg in block.args for name in arg.axes}
    if block.args and set(block.axes) != below - reduced:
        yield f"{block} varies over ({', '.join(block.axes)}), its operands over ({', '.join(sorted(below))})"


def _statement_problems(kernel: Kernel) -> Iterator[str]:
    outputs, scratch = {operand.name for operand in kernel.outputs}, {one.name for one in kernel.scratch}
    in_place = {operand.name for operand in kernel.outputs if operand.in_place}
    for statement in kernel.body:
        if statement.target not in outputs | scratch:
            yield f"it writes {statement.target}, which is no output"
        elif statement.target in in_place:
            if statement.guard is not Guard.ALWAYS:
                yield f"it writes {statement.target}, which is in place, at some steps only"
        elif statement.target in outputs and kernel.sequential and statement.guard is not Guard.LAST:
            yield f"it writes {statement.target} before the last step of {kernel.sequential[-1].name}"
    for name in outputs - {statement.target for statement in kernel.body}:
        yield f"nothing writes its output {name}"
    moving = {axis.name for axis in kernel.axes if axis.kind is AxisKind.SEQUENTIAL}
    for operand in kernel.outputs:
        if moving & set(operand.axes) and not operand.in_place:
            yield f"its output {operand.name} moves along a sequential axis"
