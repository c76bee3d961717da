"""The rules that every TPU program keeps, and the error that names the first one broken.

    verify(program)                 raises CompileError, or returns None
    0x4: vadd.f32 v1, v2, 1         ->  source 2 does not fit. got 1; need a vector register or a float.

Checked here, once, so that the emulator need not: operands and attributes against the table of ops, slots of
a bundle, one push and one pop per unit, one writer per register and bundle, names of buffers, semaphores and
labels, and what the machine has of VMEM rows, registers and instruction memory. What depends on values
(bounds, races, waits) is checked as the program runs.

`problems` yields them all; the assembler uses it to name the line of the text. LLVM keeps such rules in its
MachineVerifier, and runs it after every pass of a debug build. What to read next: emulator.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from minicc.errors import CompileError
from minicc.tpu.isa import KERNEL_LABEL, Address, HbmBuffer, Instr, Program, Reg, SmemBuffer, VmemBuffer
from minicc.tpu.machine import LANES, ROW_BYTES, TPUSpec
from minicc.tpu.ops import ATTRS, KINDS, form

Facts = tuple[str, object, object]  # what is wrong, got, need
Names = dict[str, str]  # of buffers, semaphores and labels -> "hbm", "vmem", "smem", "sem", "label"


class Problem(NamedTuple):
    """One broken rule. instr is None when the bundle as a whole breaks it."""

    pc: int
    instr: Instr | None
    what: str
    got: object = ""
    need: object = ""


def kind_of(value: object, names: Names) -> str:
    """The kind of a value, in the words of `ops.KINDS`."""
    match value:
        case Reg(kind=kind):
            return kind
        case Address(buffer=name) | str(name):
            return names.get(name, "unknown")
        case tuple():
            return "list" if {kind_of(item, names) for item in value} <= {"s", "int"} else "other list"
        case True:
            return "flag"
    return "none" if value is None else type(value).__name__


def _operands(instr: Instr, names: Names) -> Iterator[Facts]:
    """Each operand or attribute that does not fit the table's line."""
    info, kinds = instr.info, instr.info.srcs
    if len(instr.srcs) < len(kinds):
        kinds = tuple(kind for kind in kinds if not kind.endswith("?"))
    if len(instr.srcs) != len(kinds):
        yield "wrong number of sources", len(instr.srcs), len(kinds)
    wanted: list[tuple[str, str, object]] = [("the destination", info.dst, instr.dst)]
    wanted += [(f"source {number}", kind.rstrip("?"), source)
               for number, (kind, source) in enumerate(zip(kinds, instr.srcs, strict=False), 1)]
    wanted += [(f"attribute {name}", ATTRS[name], value) for name, value in instr.attrs if name in info.attrs]
    for name, attr in instr.attrs:
        if name not in info.attrs:
            yield f"unknown attribute {name}", attr, " or ".join(info.attrs) or "none"
    for what, kind, value in wanted:
        fits, need = KINDS[kind]
        if kind_of(value, names) not in fits.split():
            yield f"{what} does not fit", value, need


def _ranges(instr: Instr) -> Iterator[Facts]:
    """Rows of a push, load or store, and dimensions of a DMA."""
    for value in instr.srcs:
        if type(value) is int and not -2**31 <= value < 2**32:
            yield "the number has more than 32 bits", value, "-2147483648 to 4294967295"
    rows, most = instr.attr("rows", 1), form(instr.op).rows
    if type(rows) is int and not 1 <= rows <= most:
        yield "rows out of range", rows, f"1 to {most}"
    if instr.info.memory == "dma":
        lists = [instr.attr(name, ()) for name in ("shape", "strides", "steps")]
        shape, strides, steps = (len(value) if type(value) is tuple else 0 for value in lists)
        if instr.info.srcs[0] == "smem" and shape > 1:
            yield "a DMA to scalar memory has one dimension", f"{shape} sizes", ""
        if not 1 <= shape <= 4 or strides != shape or (steps != shape - 1 and (shape, steps) != (2, 0)):
            what = "a DMA wants 1 to 4 dimensions, a stride for each and a step in rows for each but the last"
            yield what, f"{shape} sizes, {strides} strides, {steps} steps", ""


def _limits(instr: Instr, machine: TPUSpec, virtual: bool) -> Iterator[Facts]:
    """Registers and units that the machine lacks."""
    for kind, index in () if virtual else (*instr.reads(), *instr.writes()):
        if index >= machine.registers[kind]:
            yield f"register {kind}{index} does not exist", index, f"below {machine.registers[kind]}"
    queue = instr.info.queue
    beside = machine.mxu_side // LANES
    if queue == "mxu" and instr.info.port != "pop":
        if len(instr.srcs) != beside:
            yield "rows are as long as the matrix unit is wide", f"{len(instr.srcs)} registers", beside
        if form(instr.op).kind == "int8" and not machine.int8_rows:
            yield "its matrix units take no int8", instr.op, "bf16"
    if queue and instr.unit >= machine.units(queue):
        yield "no such unit", instr.unit, f"below {machine.units(queue)}"


def _shares(op: Instr, machine: TPUSpec) -> Iterator[tuple[str, int]]:
    """What an instruction takes of its bundle, and how many may take the same."""
    yield f"ops in the {op.info.slot} slots", machine.slots[op.info.slot]
    if op.info.queue:
        yield f"{'pops from' if op.info.port == 'pop' else 'pushes to'} {op.info.queue}{op.unit}", 1
    if op.dst:
        yield f"writes of {op.dst}", 1


def _names(program: Program) -> Names:
    """name -> what it is. Raises: CompileError if a name is declared twice."""
    spaces = {HbmBuffer: "hbm", VmemBuffer: "vmem", SmemBuffer: "smem"}
    declared = [(buffer.name, spaces[type(buffer)]) for buffer in program.buffers]
    declared += [(s.name, "sem") for s in program.semaphores]
    declared += [(name, "label") for name, _ in program.labels]
    for semaphore in program.semaphores:
        if semaphore.count < 1:
            raise CompileError("tpu program", f"semaphore {semaphore.name} counts nothing",
                               got=semaphore.count, need="1 or more")
    for name, count in Counter(name for name, _ in declared).items():
        if count > 1:
            raise CompileError("tpu program", f"{name} is declared twice", got=f"{count} things of that name")
    return dict(declared)


def problems(program: Program, virtual: bool = False) -> Iterator[Problem]:
    """Every broken rule of every bundle, in order. virtual: registers beyond the machine's are allowed."""
    names, machine = _names(program), program.machine
    for label, pc in program.labels:
        if not 0 <= pc < len(program.bundles):
            yield Problem(pc, None, f"label {label} stands behind the last bundle", pc)
    for pc, bundle in enumerate(program.bundles):
        for op in bundle.ops:
            for facts in (*_operands(op, names), *_ranges(op), *_limits(op, machine, virtual)):
                yield Problem(pc, op, *facts)
        shares = Counter(share for op in bundle.ops for share in _shares(op, machine))
        for (what, most), count in shares.items():
            if count > most:
                yield Problem(pc, None, f"too much for one bundle: {what}", count, f"at most {most}")


def check_memory(program: Program) -> None:
    """VMEM, SMEM and instruction memory hold the program. Raises: CompileError, with a table of buffers."""
    machine, rows = program.machine, program.machine.vmem_rows
    for buffer in program.vmem:
        if buffer.base_row < 0 or buffer.rows < 1 or buffer.base_row + buffer.rows > rows:
            raise CompileError(
                "tpu memory", "VMEM overflow: buffers do not fit" + _table(program.vmem),
                got=f"{buffer.name} from row {buffer.base_row:#x} on, {buffer.rows} rows",
                need=f"rows 0x0 to {rows:#x} ({machine.vmem_mib} MiB on {machine.name})",
                hint="smaller tiles, or fewer buffers in flight")
    words = machine.smem_kib * 256
    for one in program.smem:
        if one.base_word < 0 or one.words < 1 or one.base_word + one.words > words:
            raise CompileError("tpu memory", "scalar memory overflow", got=one,
                               need=f"words 0x0 to {words:#x} ({machine.smem_kib} KiB on {machine.name})")
    starts = [pc for label, pc in program.labels if label.startswith(KERNEL_LABEL)]
    ends = [*starts, len(program.bundles)]  # a kernel's code comes in while the one before it runs
    for first, last in pairwise([0, *ends]):
        if last - first > machine.instruction_bundles:
            raise CompileError(
                "tpu memory", "instruction memory overflow", got=f"{last - first} bundles in one kernel",
                need=f"at most {machine.instruction_bundles} on {machine.name}",
                hint="loops, not unrolled code")


def _table(buffers: tuple[VmemBuffer, ...]) -> str:
    biggest = sorted(buffers, key=lambda buffer: -buffer.rows)
    rows = [f"\n    {b.name:<24}{b.rows:>9} rows{b.rows * ROW_BYTES / 2**20:>9.2f} MiB at {b.base_row:#x}"
            for b in biggest[:12]]
    return "".join(rows) + (f"\n    and {len(biggest) - 12} more" if len(biggest) > 12 else "") + "\n "


def verify(program: Program, virtual: bool = False) -> None:
    """Check a program against the rules. Raises: CompileError for the first that is broken."""
    program.machine.check_emulated()
    check_memory(program)
    for pc, op, what, got, need in problems(program, virtual):
        at = op.locs if op else ()
        raise CompileError(f"{pc:#x}: {op or 'bundle'}", what, got=got, need=need, at=at)
