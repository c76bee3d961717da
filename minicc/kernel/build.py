"""Building a kernel: pull a value and all that is fused with it into one body, then decide how its axes are
walked.

    maximum(add(dot(x, w), bias), 0.0) at (m, n)
        ->  first: acc = 0.0    always: acc = add(acc, dot(x, w))    last: out = maximum(add(acc, bias), 0.0)

Goes in: a graph, a root, and the set of nodes fused into their users. Comes out: an untiled Kernel, or
`Illegal` with the reason in words. What makes an axis *whole*: the output or a later op has it, and a
reduction runs over it (a softmax row), or a reduction over it depends on another one. What is reduced and
not whole is *sequential*: it gets an accumulator, and what follows the reduction runs at the last step.
Read next: collapse.py, which merges axes that are contiguous everywhere, and tile.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from math import prod

from minicc.graph.elementwise import neutral_value
from minicc.graph.ir import Graph, Node, Type, Value
from minicc.kernel.collapse import collapse
from minicc.kernel.cost import Target
from minicc.kernel.index import AxisKind, Crossing, Index
from minicc.kernel.ir import COMBINE, Block, Guard, Kernel, Operand, Scratch, Statement, post_order
from minicc.kernel.limits import check
from minicc.kernel.online import in_forms
from minicc.kernel.positions import Position
from minicc.kernel.pull import Illegal, Pull, axes_of

Store = tuple[Value, Position, Block]  # what a kernel writes: a value, where it is walked, what computes it


def build_kernel(
    graph: Graph, roots: Sequence[Value], fused: Collection[Node], buffer: Callable[[Node], str],
    target: Target, sides: Sequence[Value] = (),
) -> Kernel:
    """The kernel that computes the roots from whatever is not fused; all walk the axes of the first.

    sides: values that the roots need anyway, and that the kernel stores too.
    Raises: Illegal, with the reason, if its axes cannot be walked by one grid or would not fit the target.
    """
    return with_splits(lambda splits: _kernel(Pull(fused, graph, buffer, splits), roots, sides, target))


def with_splits(make: Callable[[Mapping[str, int]], Kernel]) -> Kernel:
    """The kernel, made with as few axes split in two as its reshapes need."""
    splits: dict[str, int] = {}
    while True:
        try:
            return make(splits)
        except Crossing as crossing:
            if not crossing.axis:
                raise Illegal(str(crossing)) from None
            splits[crossing.axis] = crossing.inner


def _kernel(body: Pull, roots: Sequence[Value], sides: Sequence[Value], target: Target) -> Kernel:
    position = body.position(roots[0].shape)
    stores = [(roots[0], position, body.compute(roots[0], position, ()))]
    for root in roots[1:]:
        body, store = _alongside(body, root)
        stores.append(store)
    stores += [(side, *body.found(side)) for side in sides]
    kinds = _axis_kinds([block for *_, block in stores], {axis for _, p, _ in stores for axis in axes_of(p)},
                        body.sizes)
    outputs = []
    for value, position, _ in stores:
        kept = [dim for dim, size in enumerate(value.shape) if size != 1]
        view, index = body.viewed(Type(value.dtype, tuple(value.shape[dim] for dim in kept)),
                                  tuple(position[dim] for dim in kept))
        outputs.append(Operand(name := body.buffer(value.node), name, view, index))
    results = [(op.name, block) for op, (*_, block) in zip(outputs, stores, strict=True)]
    statements, scratch = _statements(results, kinds)
    name, inputs = kernel_name(stores[0][2]), tuple(body.operands.values())
    kernel = Kernel(name, body.grid(kinds), inputs, tuple(outputs), scratch, statements,
                    tuple(body.scalars.values()))
    return finished(kernel, target)


def _alongside(body: Pull, root: Value) -> tuple[Pull, Store]:
    """One more root, along the axes that are there, and so that it reads the fewest operands more.

    Raises: Illegal if it needs other axes.
    """
    found: list[tuple[Pull, Store]] = []
    walks = [[index for index, size in body.walks if size == wanted] if wanted > 1 else [Index()]
             for wanted in root.shape]
    for position in product(*walks):
        names = axes_of(position)
        if len(set(names)) == len(names):
            trial = body.copy()
            block = trial.compute(root, position, ())
            if trial.sizes == body.sizes:
                found.append((trial, (root, position, block)))
    if not found:
        raise Illegal("they do not walk the same axes")
    return min(found, key=lambda pair: len(pair[0].operands))


def finished(kernel: Kernel, target: Target) -> Kernel:
    """The kernel in its final form: online, if the target can run it in no other. Raises: Illegal, if it
    cannot run it at all."""
    return in_forms(collapse(kernel), target, lambda form: check(form, target), Illegal)[0][0]


def _axis_kinds(
    roots: Sequence[Block], outputs: Collection[str], sizes: Mapping[str, int]
) -> dict[str, AxisKind]:
    """Decide how each axis is walked; see the module's docstring for the rule."""
    blocks = post_order(*roots)
    behind: dict[Block, set[str]] = {}  # axes reduced somewhere below a block
    whole: set[str] = set()
    for block in blocks:
        below = set[str]().union(*[behind[arg] for arg in block.args])
        if below:
            whole |= below.intersection(block.axes + block.reduced)
        behind[block] = below.union(block.reduced)
    whole |= {name for root in roots for name in behind[root]} & set(outputs)
    sequential = [b for b in blocks if b.reduced and not set(b.reduced) & whole]
    groups = dict.fromkeys(frozenset(b.reduced) for b in sequential)  # no set: its order varies
    main = max(groups, key=lambda group: prod(sizes[name] for name in group), default=frozenset())
    for block in sequential:
        below = set().union(*(behind[arg] for arg in block.args))
        if frozenset(block.reduced) != main or main & below:
            whole |= set(block.reduced)
    for block in blocks:  # a reduction over both kinds is over whole axes only
        if whole.intersection(block.reduced):
            whole |= set(block.reduced)
    walked = {name: AxisKind.PARALLEL if name in outputs else AxisKind.SEQUENTIAL for name in sizes}
    return {name: AxisKind.WHOLE if name in whole else kind for name, kind in walked.items()}


def _statements(
    stores: Sequence[tuple[str, Block]], kinds: Mapping[str, AxisKind]
) -> tuple[tuple[Statement, ...], tuple[Scratch, ...]]:
    """The guarded statements: an accumulator for each reduction over sequential axes."""
    accumulators: dict[Block, Scratch] = {}
    new: dict[Block, Block] = {}
    first: list[Statement] = []
    always: list[Statement] = []
    for block in post_order(*[root for _, root in stores]):
        copy = block.on([new[arg] for arg in block.args])
        if not any(kinds[name] is AxisKind.SEQUENTIAL for name in block.reduced):
            new[block] = copy
            continue
        name = "acc" if not accumulators else f"acc{len(accumulators) + 1}"
        accumulators[block] = Scratch(name, block.dtype, block.axes)
        kind = block.attrs.get("kind", "sum")
        load = Block("load", (), {"ref": name}, block.dtype, block.axes, block.locs)
        scalar = {"value": neutral_value(kind, block.dtype)}
        neutral = Block("constant", (), scalar, block.dtype, (), block.locs)
        first.append(Statement(Guard.FIRST, name, neutral))
        update = Block(COMBINE[kind], (load, copy), {}, block.dtype, block.axes, block.locs)
        always.append(Statement(Guard.ALWAYS, name, update))
        new[block] = load
    guard = Guard.LAST if any(kind is AxisKind.SEQUENTIAL for kind in kinds.values()) else Guard.ALWAYS
    last = [Statement(guard, output, new[root]) for output, root in stores]
    if moving := [name for _, root in stores for name in root.axes if kinds[name] is AxisKind.SEQUENTIAL]:
        raise Illegal(f"a result would be stored at each step of {moving[0]}, along which another is summed")
    return (*first, *always, *last), tuple(accumulators.values())


def kernel_name(root: Block) -> str:
    """The ops of the body in order, each run of equal ones once, four at most."""
    blocks = [block for block in post_order(root) if block.op not in ("load", "constant")]
    ops = list(dict.fromkeys(block.attrs.get("kind", block.op) for block in blocks))
    return "_".join(ops[:4]) or "copy"
