"""The Python text of a block, and what the emulator must know to call it.

    def scalars(s6, s13):                           def values(tiles, b, a, q, e):
        t0 = wrap(smul_u32(s13, 512))                   p0 = tiles.load(b[0], a[0], K0, 8, 1)
        t1 = wrap(sadd_s32(s6, t0))                     p1 = vmax_f_2(p0, K1)
        ...                                             c0 = e[0]
        return (t1,), (), t3 != 0, (t0, t1)             x0 = pick(p1, K2)
                                                        for i in range(tiles.count):
                                                            p2 = vadd_f_2(c0, at(x0, i))
                                                            c0 = p2
                                                        return (last(c0),)

Goes in: a Body. Comes out: a Block. `scalars` takes the scalar registers that the block reads and gives the
addresses, the other numbers that its vectors need, whether the branch is taken, and the scalar registers that
it writes. `values` takes the tiles of the machine, the names of its buffers, those addresses and numbers, and
the vector registers at entry, and gives those that somebody reads after it; it loads, stores, pushes and pops
on the way.

Invariants: the text is made of names and numbers of the machine alone, so that it fits all blocks of a form,
and no text of a user's is ever compiled; a pack is let go of when it was read for the last time, so that its
memory stays in cache. The gpu room's vector mode writes its kernels in the same way. Read next: tiles.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from minicc.tpu import tiles
from minicc.tpu.blocks import Body, Number, Pack, Part, Value, packs
from minicc.tpu.isa import Reg
from minicc.tpu.ops import form, form_name
from minicc.tpu.vector import Lanes, splat, wrap

INDENT = "    "
MOST_TILES = 96  # of the widest pack, over all iterations of a batch: what stays in cache


class Access(NamedTuple):
    """A pack of loads or stores. address: which of the block's, or -1 for none. rows: from a tile's first to
    its last."""

    buffer: Any  # its number; of a block in its place, its name
    address: int
    offsets: tuple[int, ...]
    rows: int
    writes: bool


class Reach(NamedTuple):
    """The rows that loads, or stores, of a buffer touch: from `first` to `last`, beyond an address."""

    buffer: Any  # its number; of a block in its place, its name
    address: int
    first: int
    last: int
    writes: bool


@dataclass(eq=False)
class Block:
    """A block, compiled: what all those of a form share."""

    scalar_reads: tuple[Reg, ...]
    scalar_writes: tuple[Reg, ...]
    vector_reads: tuple[Reg, ...]
    vector_writes: tuple[Reg, ...]
    accesses: tuple[Access, ...]
    reaches: tuple[Reach, ...]
    units: tuple[tuple[str, int], ...]  # the EUP and XLUs that it uses: they must be empty at entry
    exact: bool  # it makes no garbage, if there is none at entry and in what it loads
    most: int  # iterations at a time
    scalars: Callable
    values: Callable | None  # None if it has no vectors
    source: str


class _Writer:
    """The function of values under construction."""

    def __init__(self, body: Body) -> None:
        self.body, self.packs = body, packs(body)
        self.addresses: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.picked: list[str] = []  # lines before the loop, with what its lines need of packs
        self.names: dict[str, Any] = {name: getattr(tiles, name) for name in (
            "at", "pick", "last", "joined", "transposed", "HERE")}
        self.entry = [reg for reg in body.entry if reg.kind != "s"]
        self.exits = [reg for reg in body.registers if reg.kind != "s" and reg in body.form.exits]

    # ---- operands ----

    def constant(self, value: Any) -> str:
        """The name of an object."""
        name = f"K{len(self.names)}"
        self.names[name] = value
        return name

    def number(self, scalar: str) -> str:
        """A scalar, as the function gets it."""
        if scalar[0] not in "st":  # not a variable
            return scalar
        return f"q[{self.numbers.setdefault(scalar, len(self.numbers))}]"

    def register(self, reg: Reg) -> str:
        """A register at entry; of what a loop carries, at entry of the iteration."""
        number = self.entry.index(reg)
        return f"c{number}" if reg in self.body.carried else f"e[{number}]"

    def members(self, pack: Pack | None, numbers: list[int], late: bool) -> str:
        """Some members of a pack. late: of the iteration at hand."""
        assert pack is not None
        text = pack.name
        if pack.size > 1 and numbers != list(range(pack.size)):
            step, *others = {b - a for a, b in pairwise(numbers)} or {1}
            even = step > 0 and not others
            chosen = slice(numbers[0], numbers[-1] + 1, step) if even else np.array(numbers)
            text = f"pick({text}, {self.constant(chosen)})"
        if not late or pack.values[0].late:
            return text
        if text != pack.name:  # before the loop, not in each of its iterations
            self.picked.append(f"x{len(self.picked)} = {text}")
            text = f"x{len(self.picked) - 1}"
        return f"at({text}, i)"

    def operand(self, values: list[Value], place: int) -> str:
        """An operand of all the members of a pack."""
        first, late = values[0].operands[place], values[0].late
        if isinstance(first, Part):
            numbers = [value.operands[place].member for value in values]
            return self.members(first.value.pack, numbers[:1] if len({*numbers}) == 1 else numbers, late)
        return self.alone(first)

    def alone(self, operand: Any) -> str:
        """An operand that is no part of a pack."""
        if isinstance(operand, Reg):
            return self.register(operand)
        if isinstance(operand, Number):
            return self.constant(Lanes(splat(operand.value).data[:1, :1]))
        return self.number(operand)

    def tiles(self, operands: Sequence[Any], late: bool = False) -> str:
        """Any tiles beside one another."""
        runs: list[tuple[Pack | None, list[int], Any]] = []
        for one in operands:
            pack = one.value.pack if isinstance(one, Part) else None
            if runs and pack and runs[-1][0] is pack and pack.size > 1:
                runs[-1][1].append(one.member)
            else:
                runs.append((pack, [one.member] if pack else [], one))
        texts = [self.members(pack, numbers, late) if pack else self.alone(one)
                 for pack, numbers, one in runs]
        sizes = tuple(len(numbers) or 1 for _, numbers, _ in runs)
        return texts[0] if len(texts) == 1 else f"joined(({', '.join(texts)}), {sizes})"

    # ---- lines ----

    def lines(self, pack: Pack) -> list[str]:
        """The lines that compute a pack."""
        value, values = pack.values[0], pack.values
        op, info = value.op, value.op.info
        if info.queue == "mxu" and info.port != "pop":
            return self.pushes(values)
        if info.queue == "mxu":
            return [f"{pack.name} = tiles.pop({op.unit}, {len(values)})"]
        if info.run == "transpose":
            parts = "".join(f"{self.tiles([one], value.late)}, " for one in value.operands)
            return [f"{pack.name} = transposed(({parts}))"]
        operands = [self.operand(values, place) for place in range(len(value.operands))]
        if value.place:
            return [self.access(pack, operands)]
        function = f"{op.op.replace('.', '_').rstrip('0123456789')}_{len(op.srcs)}"
        self.names[function] = info.run
        return [f"{pack.name} = {function}({', '.join(operands)})"]

    def access(self, pack: Pack, operands: list[str]) -> str:
        """The line of a load or store."""
        value = pack.values[0]
        assert value.place
        buffer, root, rows, stride = value.place
        start = f"a[{self.addresses.setdefault(root, len(self.addresses))}]" if root else "HERE"
        offsets = self.constant(np.array([one.offset for one in pack.values]))
        arguments = ", ".join([f"b[{buffer}]", start, offsets, str(rows), str(stride), *operands])
        return f"{pack.name} = tiles.load({arguments})" if value.op.dst else f"tiles.store({arguments})"

    def pushes(self, values: list[Value]) -> list[str]:
        """The lines that push to an MXU: between two swaps, all rows, then all weights."""
        lines: list[str] = []
        segments: list[dict[tuple, list[Value]]] = [{}]
        for value in values:
            op, rows = value.op, value.op.info.port == "push"
            if op.attr("swap"):
                segments.append({})
            key = not rows, form_name(op.op), "xpose" in op.op, op.attr("rows", form(op.op).rows)
            segments[-1].setdefault(key, []).append(value)
        for segment in segments:
            for key in sorted(segment, key=lambda key: key[0]):
                (weights, name, transposed, count), some = key, segment[key]
                beside = "".join(f"{self.tiles(one)}, " for one in zip(
                    *(value.operands for value in some), strict=True))
                op = some[0].op
                flag = transposed if weights else bool(op.attr("swap"))
                lines.append(f"tiles.{'weights' if weights else 'rows'}({op.unit}, ({beside}), {len(some)}, "
                             f"{count}, {name!r}, {flag})")
        return lines

    def write(self) -> list[str]:
        """All lines of the function."""
        body, carried = self.body, [reg for reg in self.entry if reg in self.body.carried]
        early, late = ([p for p in self.packs if p.values[0].late is flag] for flag in (False, True))
        text = [line for pack in early for line in self.lines(pack)]
        straight = len(text)
        if carried:
            text += [f"{self.register(reg)} = e[{self.entry.index(reg)}]" for reg in carried]
            lines = [line for pack in late for line in self.lines(pack)]
            after = ", ".join(self.tiles([body.registers[reg]], True) for reg in carried)
            lines.append(f"{', '.join(map(self.register, carried))} = {after}")
            text += [*self.picked, "for i in range(tiles.count):", *(INDENT + line for line in lines)]
        exits = [self.register(reg) if reg in carried else self.tiles([body.registers[reg]])
                 for reg in self.exits]
        text.append(f"return ({''.join(f'last({one}), ' for one in exits)})")
        return _letting_go(text, straight, {pack.name for pack in early})


def _letting_go(text: list[str], straight: int, names: set[str]) -> list[str]:
    """The same lines, and among the first of them, behind the last that reads a pack, one that frees it."""
    needed = set().union(*map(_words, text[straight:]))
    found = text[straight:][::-1]
    for line in text[:straight][::-1]:
        gone = sorted(names & _words(line) - needed)
        needed |= _words(line)
        found += [*([f"{' = '.join(gone)} = None"] if gone else []), line]
    return found[::-1]


def _words(line: str) -> set[str]:
    return set(re.findall(r"\w+", line))


def compile_block(body: Body, loop: bool) -> Block:
    """The functions of a block."""
    writer = _Writer(body)
    lines = writer.write()
    reads = tuple(reg for reg in body.entry if reg.kind == "s")
    writes = tuple(reg for reg in body.registers if reg.kind == "s" and reg in body.form.exits)
    groups = (writer.addresses, writer.numbers, [body.registers[reg].text for reg in writes])
    addresses, numbers, after = (f"({''.join(f'{text}, ' for text in group)})" for group in groups)
    source = "\n".join([
        f"def scalars({', '.join(map(str, reads))}):", *(INDENT + line for line in body.lines),
        f"{INDENT}return {addresses}, {numbers}, {body.condition}, {after}", "",
        "def values(tiles, b, a, q, e):", *(INDENT + line for line in lines), ""])
    names = {**body.functions, "wrap": wrap, **writer.names}
    exec(compile(source, "<block>", "exec"), names)
    firsts = [pack.values[0] for pack in writer.packs]
    accesses = [Access(first.place.buffer, writer.addresses.get(first.place.root, -1),
                       tuple(value.offset for value in pack.values),
                       (first.place.rows - 1) * first.place.stride + 1, not first.op.dst)
                for pack, first in zip(writer.packs, firsts, strict=True) if first.place]
    queues = {(op.info.queue, op.unit) for op in (first.op for first in firsts)}
    units = [(queue, unit) for queue, unit in sorted(queues) if queue in ("eup", "xlu")]
    widest = max((pack.size for pack in writer.packs), default=1)
    return Block(reads, writes, tuple(writer.entry), tuple(writer.exits), tuple(accesses),
                 _reaches(accesses), tuple(units), not any(map(_makes_garbage, firsts)),
                 max(1, MOST_TILES // widest) if loop else 1, names["scalars"],
                 names["values"] if writer.packs or writer.exits else None, source)


def _makes_garbage(value: Value) -> bool:
    """Whether it may make garbage, or keep some that was there."""
    op, place = value.op, value.place
    if place:
        return bool(place.rows < 8 and op.dst) or len(value.operands) == 2
    if op.info.run == "transpose":
        return len(value.operands) < value.results
    most = form(op.op).rows
    return op.info.queue == "mxu" and op.attr("rows", most) != most


def _reaches(accesses: list[Access]) -> tuple[Reach, ...]:
    found: dict[tuple[int, int, bool], tuple[int, int]] = {}
    for buffer, address, offsets, rows, writes in accesses:
        low, high = found.get((buffer, address, writes), (min(offsets), max(offsets)))
        found[buffer, address, writes] = min(low, *offsets), max(high, max(offsets) + rows - 1)
    return tuple(Reach(buffer, address, low, high, writes)
                 for (buffer, address, writes), (low, high) in found.items())
