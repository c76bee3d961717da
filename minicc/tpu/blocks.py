"""Basic blocks of a program: what the instructions of one amount to, and which of them are alike.

    0x19: vld v4, [x + s14 + 0x0]  ;; vld v5, [x + s14 + 0x8] ;; ...      p0: two loads
    0x1b: vmax.f32 v4, v4, 1.0                                            p1: two maxima, of p0 and 1.0
    0x1c: vmax.f32 v5, v5, 1.0 ;; vst [y + s14 + 0x0], v4 ;; sadd ...     p2: two stores, of p1
    0x1d: vst [y + s14 + 0x8], v5 ;; sbr.rel s15, .loop

Goes in: the decoded bundles between two labels, branches or copies. Comes out: a Body, and its packs. Scalars
never depend on vectors here, so they become a text of their own, which runs first, iteration after iteration
of a loop. Then the vectors of all iterations are computed at once, on arrays of (iterations, members, 8,
128): like instructions whose operands are known at the same level are the members of one *pack*. What a loop
carries from one iteration to the next is computed one by one, from packs (`late`), if it is arithmetic; else
the block is no loop.

Invariants: a pack's members do not depend on each other, since a value's level is above those of all that it
reads, in registers, queues, or rows of VMEM that may be the same; that iterations do not depend on each
other through memory, the caller must see from the addresses. Where a rule here is in doubt it is NotABlock,
and the bundles are stepped. Compilers call packs superword-level parallelism (Larsen and Amarasinghe, 2000).
Read next: source.py, which writes the functions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from minicc.errors import MachineFault
from minicc.tpu.forms import Form
from minicc.tpu.isa import Address, Instr, Operand, Reg
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.stepping import Decoded
from minicc.tpu.vector import wrap


class NotABlock(Exception):
    """These bundles hold something that must be stepped."""


class Scalar(NamedTuple):
    """A scalar, as Python text; and the same as a variable of the text (or "") plus a number, if it is."""

    text: str
    root: str
    shift: int


class Number(NamedTuple):
    """An operand that is the same in all lanes, and known to the text."""

    value: int | float


class Place(NamedTuple):
    """Where a load or store goes: the number of a buffer. root: a scalar of the text, or "". rows, stride: as
    the op has them."""

    buffer: int
    root: str
    rows: int
    stride: int


@dataclass(eq=False)
class Value:
    """What an instruction computes. operands: Parts, registers at entry, Numbers, texts of scalars."""

    op: Instr
    operands: tuple[Any, ...]
    level: int
    late: bool = False
    place: Place | None = None
    offset: int = 0
    pack: Pack | None = None
    member: int = 0  # of the pack; of a pack of 16 results, the first

    @property
    def results(self) -> int:
        """How many registers it fills."""
        return LANES // SUBLANES if self.op.info.run == "transpose" else 1


class Part(NamedTuple):
    """One result of a value."""

    value: Value
    number: int = 0

    @property
    def member(self) -> int:
        """Which tile of its pack it is."""
        return self.value.member + self.number


@dataclass(eq=False)
class Pack:
    """Like values of one level."""

    name: str
    values: list[Value]

    @cached_property
    def size(self) -> int:
        """How many tiles it has for each iteration."""
        return sum(value.results for value in self.values)


class Spaces:
    """Which rows of VMEM were read and written so far, and at what level: what an access must come after.

    Rows are told apart by their address's root; of two roots nothing is known, but of two buffers that share
    no row. Rows are counted in tiles of 8. of: by buffer, as a Form has them.
    """

    def __init__(self, of: Sequence[tuple[int, int]]) -> None:
        self.of = of
        self.levels: dict[bool, dict[tuple, int]] = {False: defaultdict(int), True: defaultdict(int)}
        self.roots: dict[bool, dict[int, dict[str, int]]] = {
            False: defaultdict(dict), True: defaultdict(dict)}

    def access(self, place: Place, offset: int, writes: bool, level: int) -> int:
        """Note an access that comes at a level, or later. Returns: at which."""
        (group, base), root = self.of[place.buffer], place.root
        first = base + offset
        last = first + max(place.rows - 1, 0) * place.stride
        tiles = [(group, root, tile) for tile in range(first // SUBLANES, last // SUBLANES + 1)]
        for wrote in (True, False) if writes else (True,):
            others = (at for other, at in self.roots[wrote][group].items() if other != root)
            level = max(level, 1 + max((*(self.levels[wrote].get(tile, 0) for tile in tiles), *others)))
        for tile in tiles:
            self.levels[writes][tile] = max(level, self.levels[writes][tile])
        self.roots[writes][group][root] = max(level, self.roots[writes][group].get(root, 0))
        return level


@dataclass
class Body:
    """What the instructions of a block amount to. carried: the registers that a loop hands on to itself."""

    form: Form
    numbers: dict[str, int]  # of the buffers
    carried: frozenset[Reg] = frozenset()
    pushes: dict[tuple[str, int], int] = field(default_factory=dict)  # at what level an MXU is pushed to
    values: list[Value] = field(default_factory=list)
    registers: dict[Reg, Any] = field(default_factory=dict)  # written here -> what they hold
    entry: dict[Reg, None] = field(default_factory=dict)  # registers read before they are written
    lines: list[str] = field(default_factory=list)  # of the function of scalars
    functions: dict[str, Callable] = field(default_factory=dict)  # that these call
    condition: str = "False"  # of the branch

    def __post_init__(self) -> None:
        self.spaces = Spaces(self.form.spaces)
        self.queues: dict[tuple[str, int], list[Any]] = defaultdict(list)
        self.tiles: dict[int, list[Any]] = defaultdict(list)  # of transpositions under way, by XLU
        self.pops: dict[tuple[str, int], int] = {}
        self.same: dict[tuple, Value] = {}

    def read(self, bundles: Sequence[Decoded]) -> Body:
        """All instructions, each as of before its bundle. Raises: NotABlock."""
        for bundle in bundles:
            written: dict[Reg, Any] = {}
            for op in bundle.ops:
                result = self.instruction(op)
                if op.dst:
                    written[op.dst] = result
            self.registers |= written
        if any(self.queues.values()) or any(self.tiles.values()):
            raise NotABlock
        return self

    def instruction(self, op: Instr) -> Any:
        """One instruction. Returns: what it writes, if it does."""
        info = op.info
        if info.run == "branch":
            return self.branch(op)
        if info.slot == "scalar":
            return self.scalar_op(op)
        if info.memory:
            return self.access(op)
        if info.port == "pop":
            return self.pop(op)
        if info.queue == "mxu":
            return self.push(op)
        if info.run == "transpose":
            return self.transpose(op)
        operands = tuple(map(self.operand, info.srcs, op.srcs))
        made = operands[0] if op.op == "vmov" else Part(self.pure(op, operands))
        if info.queue:
            self.queues[info.queue, op.unit].append(made)
        return made

    # ---- scalars ----

    def scalar(self, operand: Operand) -> Scalar:
        """A register, or a number."""
        if isinstance(operand, Reg):
            if operand not in self.registers:
                self.entry[operand] = None
                return Scalar(str(operand), str(operand), 0)
            return self.registers[operand]
        if not isinstance(operand, int):
            raise NotABlock
        return Scalar(str(operand), "", operand)

    def scalar_op(self, op: Instr) -> Scalar:
        """The result of scalar arithmetic: now, if all is known, else as a new variable of the text."""
        args = [self.scalar(src) for src in op.srcs]
        if not any(arg.root for arg in args):
            try:
                value = wrap(op.info.run(*(arg.shift for arg in args)))  # type: ignore[operator]
                return Scalar(str(value), "", value)
            except MachineFault:
                raise NotABlock from None
        if op.op == "smov":
            return args[0]
        name, function = f"t{len(self.lines)}", op.op.replace(".", "_")
        self.functions[function] = op.info.run  # type: ignore[assignment]
        self.lines.append(f"{name} = wrap({function}({', '.join(arg.text for arg in args)}))")
        a, b, *_ = args
        if op.op in ("sadd.s32", "ssub.s32") and not b.root:
            return Scalar(name, a.root, a.shift + (b.shift if op.op == "sadd.s32" else -b.shift))
        if op.op == "sadd.s32" and not a.root:
            return Scalar(name, b.root, a.shift + b.shift)
        return Scalar(name, name, 0)

    def branch(self, op: Instr) -> None:
        """Whether it is taken."""
        self.condition = "True"
        if len(op.srcs) == 2:
            condition = self.scalar(op.srcs[0]).text
            self.condition = f"{condition} {'==' if op.attr('unless') else '!='} 0"

    # ---- vectors ----

    def operand(self, kind: str, operand: Operand) -> Any:
        """A Part, the Reg at entry, a Number, or the text of a scalar."""
        if kind in ("s", "n"):
            return f"float('{operand}')" if isinstance(operand, float) else self.scalar(operand).text
        if not isinstance(operand, Reg):
            return Number(operand)  # type: ignore[arg-type]
        if operand not in self.registers:
            self.entry[operand] = None
            return operand
        return self.registers[operand]

    def add(self, op: Instr, operands: tuple[Any, ...], level: int = 0, **more: Any) -> Value:
        """A new value, at a level above its operands'."""
        parts = [one.value for one in operands if isinstance(one, Part)]
        late = any(part.late for part in parts) or any(one in self.carried for one in operands)
        level = max([level, *(part.level + 1 for part in parts)])
        self.values.append(Value(op, operands, level, late, **more))
        return self.values[-1]

    def pure(self, op: Instr, operands: tuple[Any, ...]) -> Value:
        """A value that depends on its operands alone: the same for the same ones."""
        key = (op.op, *map(_key, operands))
        if key not in self.same:
            self.same[key] = self.add(op, operands)
        return self.same[key]

    def access(self, op: Instr) -> Part:
        """A load or store."""
        address, rows, stride = op.srcs[0], op.attr("rows", SUBLANES), op.attr("stride", 1)
        writes = op.info.memory == "write"
        assert isinstance(address, Address)
        if type(rows) is not int or type(stride) is not int or not 0 < rows <= SUBLANES or stride < 0 \
                or (writes and not stride and rows > 1):
            raise NotABlock
        base = self.scalar(address.base) if address.base else Scalar("0", "", 0)
        place = Place(self.numbers[address.buffer], base.root, rows, stride)
        offset = base.shift + address.offset
        operands = tuple(self.operand("v", src) for src in op.srcs[1:])
        made = self.add(op, operands, place=place, offset=offset)
        made.level = self.spaces.access(place, offset, writes, made.level)
        return Part(made)

    def push(self, op: Instr) -> None:
        """Rows or weights for an MXU."""
        if isinstance(op.attr("rows"), Reg):
            raise NotABlock
        unit = op.info.queue, op.unit
        made = self.add(op, tuple(self.operand("v", src) for src in op.srcs), self.pushes.get(unit, 0))
        self.pushes[unit] = made.level

    def pop(self, op: Instr) -> Any:
        """What was pushed to the EUP or an XLU; of an MXU, whatever comes out."""
        unit = op.info.queue, op.unit
        if op.info.queue != "mxu":
            if not self.queues[unit]:
                raise NotABlock
            return self.queues[unit].pop(0)
        made = self.add(op, (), max(self.pops.get(unit, 0), self.pushes.get(unit, 0) + 1))
        self.pops[unit] = made.level
        return Part(made)

    def transpose(self, op: Instr) -> None:
        """8 more rows of a tile, and at its end 16 results."""
        tile = self.tiles[op.unit]
        if bool(op.attr("begin")) != (not tile) or len(tile) == LANES // SUBLANES:
            raise NotABlock
        tile.append(self.operand("v", op.srcs[0]))
        if op.attr("end"):
            made = self.add(op, tuple(tile))
            self.queues[op.info.queue, op.unit] += [Part(made, number) for number in range(made.results)]
            tile.clear()


def understand(form: Form, numbers: dict[str, int], bundles: Sequence[Decoded], loop: bool) -> Body:
    """What a block's instructions amount to. loop: for many iterations at a time. Raises: NotABlock.

    The first look finds what is carried, and at which level an MXU has all that is pushed to it. In a loop
    this is where everything is pushed, and popped behind, since one iteration pops what another pushed.
    """
    first = Body(form, numbers).read(bundles)
    carried = frozenset(reg for reg in first.entry if reg in first.registers and reg.kind != "s")
    if not first.pushes and not (loop and carried):
        return first
    body = Body(form, numbers, carried if loop else frozenset(), dict(first.pushes)).read(bundles)
    if body.pushes != first.pushes:
        if loop:
            raise NotABlock
        return first
    if loop and any(value.op.info.port == "weights" or value.op.attr("swap") or (
            value.late and (value.place or value.op.info.queue == "mxu")) for value in body.values):
        raise NotABlock
    return body


def packs(body: Body) -> list[Pack]:
    """The values by level and likeness, in an order in which they can be computed."""
    found: list[Pack] = []
    levels: dict[int, list[Value]] = defaultdict(list)
    for value in body.values:
        levels[value.level].append(value)
    for level in sorted(levels):
        alike: dict[tuple, list[Value]] = defaultdict(list)
        for value in levels[level]:
            alike[_likeness(value)].append(value)
        for values in alike.values():
            if values[0].op.info.queue != "mxu":
                values.sort(key=_order)
            pack = Pack(f"p{len(found)}", values)
            found.append(pack)
            for number, value in enumerate(values):
                value.pack, value.member = pack, number
    return found


def _likeness(value: Value) -> tuple:
    """The same for values that one call can compute."""
    op = value.op
    if op.info.queue == "mxu":
        return ("mxu", op.unit, op.info.port == "pop")
    if op.info.run == "transpose":
        return (value,)
    operands = (one.value.pack if isinstance(one, Part) else _key(one) for one in value.operands)
    return (op.op, value.late, value.place, *operands)


def _key(operand: Any) -> Any:
    """An operand, to be compared: 0.0 and -0.0, or 1 and 1.0, are not the same."""
    return (type(operand.value), repr(operand.value)) if isinstance(operand, Number) else operand


def _order(value: Value) -> int:
    """Where it stands among its pack: where its first operand does, or by its address."""
    first = value.operands[0] if value.operands else None
    return first.member if isinstance(first, Part) else value.offset
