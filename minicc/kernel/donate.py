"""Donation: what the caller gives away, and which result is written in its place.

    step(w, x), w donated     kernel 3: dx = dot(dy, w)
                              kernel 2: out1 = subtract(w, dot(x, dy))     ->  after kernel 3, onto w itself

Goes in: kernels and the names of inputs that nobody needs when the program is done. Comes out: the same
kernels in an order that lets go of these early, and Module.donated, which says of each input what becomes of
it: its own name if it is an output as it is, or updated in place, without the copy that an update starts
from; the output that is written onto it; or nothing, and then its bytes are free behind the last kernel that
reads it. Invariant: an output goes onto an input only if one
kernel writes the one from the other, each element from what lies at its own place, and all others that read
the input come before. A step writes its block after it has read it, and no other step reads that one.

XLA calls it an input-output alias; JAX asks for it by the same name, donate_argnums. Read next: memory.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from minicc.graph.ir import Type
from minicc.kernel.index import Lookup
from minicc.kernel.ir import Kernel, Module, Operand, on_buffers
from minicc.kernel.order import Dag
from minicc.trace import Step


def donate(module: Module, given: Collection[str], *, log: list[Step] | None = None) -> Module:
    """The module with these inputs given away. log: what becomes of each."""
    outputs = {name for name, _ in module.outputs}
    dag, donated = Dag(module.kernels, outputs, module.waits), dict[str, str]()
    wanted = [(name, type) for name, type in module.inputs if name in given]
    for name, type in sorted(wanted, key=lambda pair: -pair[1].elements):
        donated[name], why = name if name in outputs else "", "it is returned as it is"
        if name not in outputs:
            found = [(number, output) for number, output in _successors(module, name, type)
                     if output in outputs - {*donated.values()} and dag.can_come_last(name, number)]
            if found:
                number, donated[name] = found[0]
                dag.replaced(name, *found[0])
                kernel = module.kernels[number]
                why = ("it is changed in place" if _copies(kernel, name, donated[name]) else
                       f"{donated[name]} is written onto it, by {kernel.name}")
            else:
                dag.given(name, type)
                why = "its bytes are free behind the last kernel that reads it"
        if log is not None:
            log.append(Step(f"{name}: {type}", True, why))
    return _without_copies(replace(module, kernels=tuple(dag.best()), donated=donated))


def _without_copies(module: Module) -> Module:
    """The module in which what is donated and copied onto itself, for an update in place, is updated where
    it is."""
    copied = {new: old for new, old in module.onto.items() if any(
        _copies(kernel, old, new) for kernel in module.kernels)}

    kernels = [replace(kernel, inputs=on_buffers(kernel.inputs, copied),
                       outputs=on_buffers(kernel.outputs, copied),
                       scalars=on_buffers(kernel.scalars, copied)) for kernel in module.kernels
               if not any(_copies(kernel, old, new) for new, old in copied.items())]
    outputs = tuple((copied.get(name, name), type) for name, type in module.outputs)
    donated = {old: old if new in copied else new for old, new in module.donated.items()}
    return replace(module, kernels=tuple(kernels), outputs=outputs, donated=donated)


def _copies(kernel: Kernel, old: str, new: str) -> bool:
    """Whether a kernel does nothing but to copy one buffer into another."""
    buffers = [op.buffer for op in (*kernel.reads, *kernel.outputs)]
    return buffers == [old, new] and [one.value.op for one in kernel.body] == ["load"]


def _successors(module: Module, name: str, type: Type) -> Iterator[tuple[int, str]]:
    """The kernels that write a buffer from this one, element by element; and these buffers."""
    for number, kernel in enumerate(module.kernels):
        for output in kernel.outputs:
            if output.type.elements == type.elements and onto(kernel, name, output.buffer):
                yield number, output.buffer


def onto(kernel: Kernel, name: str, output: str) -> bool:
    """Whether a kernel may write an output onto an input: it reads of that only what lies where it writes."""
    read = [one for one in kernel.reads if one.buffer == name]
    written = [one for one in kernel.outputs if one.buffer == output and not one.in_place]
    if len(read) != 1 or len(written) != 1 or read[0] in kernel.scalars or read[0].fill is not None:
        return False
    return read[0].type.dtype == written[0].type.dtype and _places(read[0]) == _places(written[0])


def _places(operand: Operand) -> tuple[dict[str, int], int, list[Lookup]]:
    """Where a step's elements lie in the buffer: how far apart along each axis, and from where on."""
    apart, start, stride = dict[str, int](), 0, 1
    for index, size in zip(reversed(operand.index), reversed(operand.type.shape), strict=True):
        for axis, step in index.terms:
            apart[axis] = apart.get(axis, 0) + step * stride
        start += index.offset * stride
        stride *= size
    return apart, start, [lookup for index in operand.index for lookup in index.lookups]
