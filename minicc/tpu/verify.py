"""The rules that every TPU program keeps, and the error that names the first one broken.

    verify(program)                 raises CompileError, or returns None
    0x4: vadd.f32 v1, v2, 1         ->  operand 2 is an int. got 1; need a vector register or a float.

Checked here, once, so that the emulator need not: ops and operand kinds, slots of a bundle, one push and
one pop per unit, one writer per register and bundle, names of buffers, semaphores and labels, and what the
machine has of VMEM rows, registers and instruction memory. What depends on values (bounds, races, waits) is
checked as the program runs.

`problems` yields them all; the assembler uses it to name the line of the text. LLVM keeps such rules in its
MachineVerifier, and runs it after every pass of a debug build. What to read next: emulator.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from minicc.errors import CompileError
from minicc.tpu.isa import Address, HbmBuffer, Instr, Program, Reg, VmemBuffer
from minicc.tpu.machine import ROW_BYTES, SUBLANES


class Problem(NamedTuple):
    """One broken rule. instr is None when the bundle as a whole breaks it."""

    pc: int
    instr: Instr | None
    what: str
    got: object = ""
    need: object = ""


_NEEDS = {
    "s": "a scalar register or an integer",
    "n": "a scalar register or a number",
    "v": "a vector register",
    "m": "a mask register",
    "x": "a vector register or a number of the op's type",
    "vmem": "[name + s0 + 0x0] of a VMEM buffer",
    "hbm": "[name + s0 + 0x0] of an HBM buffer",
    "sem": "[name + s0 + 0x0] of a semaphore",
    "label": "a label of the program",
}


_FLAG, _LIST = "no value", "a list in parentheses of scalar registers or integers"
_ATTRS = dict.fromkeys(("begin", "end", "swap", "unless"), _FLAG)
_ATTRS |= dict.fromkeys(("shape", "strides", "steps"), _LIST)  # the others: one number


def _fits(kind: str, value: object, op: str, names: dict[str, str]) -> bool:
    match kind, value:
        case ("s" | "v" | "m", Reg(kind=register)):
            return register == kind
        case ("n", Reg(kind="s")) | ("x", Reg(kind="v")) | ("s", int()) | ("n", int() | float()):
            return True
        case ("x", int() | float()):
            wanted = {"f32": float, "s32": int, "u32": int}.get(op.rsplit(".", 1)[-1])
            return wanted is None or type(value) is wanted
        case ("vmem" | "hbm" | "sem", Address(buffer=name)):
            return names.get(name) == kind
        case ("label", str()):
            return names.get(value) == "label"
    return False


def _operands(instr: Instr, names: dict[str, str]) -> Iterator[tuple[str, object, object]]:
    """(what, got, need) for each operand or attribute that does not fit the table's line."""
    info = instr.info
    if (instr.dst.kind if instr.dst else "") != info.dst:
        yield "wrong destination", instr.dst, _NEEDS.get(info.dst, "none")
    kinds = info.srcs
    if len(instr.srcs) < len(kinds):
        kinds = tuple(kind for kind in kinds if not kind.endswith("?"))
    if len(instr.srcs) != len(kinds):
        yield "wrong number of sources", len(instr.srcs), len(kinds)
    for number, (kind, source) in enumerate(zip(kinds, instr.srcs, strict=False), 1):
        if not _fits(kind.rstrip("?"), source, instr.op, names):
            yield f"source {number} does not fit", source, _NEEDS[kind.rstrip("?")]
    for name, attr in instr.attrs:
        if name not in info.attrs:
            yield f"unknown attribute {name}", attr, " or ".join(info.attrs) or "none"
        elif not _attr_fits(name, attr):
            yield f"attribute {name} does not fit", attr, _ATTRS.get(name, _NEEDS["s"])
    yield from _ranges(instr)


def _attr_fits(name: str, value: object) -> bool:
    wanted = _ATTRS.get(name)
    if wanted == _FLAG:
        return value is True
    if wanted == _LIST:
        return type(value) is tuple and all(_fits("s", item, "", {}) for item in value)
    return value is not True and _fits("s", value, "", {})


def _ranges(instr: Instr) -> Iterator[tuple[str, object, object]]:
    rows = instr.attr("rows", 1)
    most = 2 * SUBLANES if "bf16" in instr.op else SUBLANES
    if isinstance(rows, int) and not 1 <= rows <= most:
        yield "rows out of range", rows, f"1 to {most}"
    if "rows" not in instr.info.attrs and instr.info.memory == "dma":
        lists = [instr.attr(name, ()) for name in ("shape", "strides", "steps")]
        sizes = [len(values) if isinstance(values, tuple) else 0 for values in lists]
        if not 1 <= sizes[0] <= 4 or sizes[1] != sizes[0]:
            yield "a DMA wants a shape and a stride for each of its dimensions", sizes[:2], "1 to 4 of each"
        elif sizes[2] != sizes[0] - 1 and not (sizes[2] == 0 and sizes[0] == 2):
            yield "a DMA wants a step in rows for each dimension but the last", sizes[2], sizes[0] - 1


def _registers(instr: Instr, program: Program) -> Iterator[tuple[str, object, object]]:
    has = program.machine.registers
    for register in (*instr.reads(), *instr.writes()):
        if register.index >= has[register.kind]:
            limit = f"below {register.kind}{has[register.kind]}"
            yield f"register {register} does not exist", register, limit


def _bundle(pc: int, program: Program) -> Iterator[Problem]:
    """Slots, units and destinations within one bundle."""
    ops, machine = program.bundles[pc].ops, program.machine
    for slot, count in Counter(op.info.slot for op in ops).items():
        if count > machine.slots[slot]:
            most = f"at most {machine.slots[slot]}"
            yield Problem(pc, None, f"too many ops for the {slot} slots", count, most)
    ports = Counter((op.info.queue, op.unit, op.info.port == "pop") for op in ops if op.info.queue)
    for (queue, unit, pops), count in ports.items():
        if count > 1:
            yield Problem(pc, None, f"more than one {'pop' if pops else 'push'} of {queue}{unit}", count, 1)
    for register, count in Counter(reg for op in ops for reg in op.writes()).items():
        if count > 1:
            yield Problem(pc, None, f"{register} is written {count} times in one bundle", count, 1)


def _names(program: Program) -> dict[str, str]:
    """name -> what it is. Raises: CompileError if a name is declared twice."""
    names: dict[str, str] = {}
    declared = [(b.name, "hbm" if isinstance(b, HbmBuffer) else "vmem") for b in program.buffers]
    declared += [(s.name, "sem") for s in program.semaphores]
    declared += [(name, "label") for name, _ in program.labels]
    for name, kind in declared:
        if name in names:
            raise CompileError("tpu program", f"{name} is declared twice", got=f"{names[name]} and {kind}")
        names[name] = kind
    return names


def check_memory(program: Program) -> None:
    """VMEM and instruction memory hold the program. Raises: CompileError, with a table of buffers."""
    machine, rows = program.machine, program.machine.vmem_rows
    beyond = [b for b in program.vmem if b.base_row < 0 or b.rows < 1 or b.base_row + b.rows > rows]
    if beyond:
        raise CompileError(
            "tpu memory", "VMEM overflow: buffers do not fit" + _table(program.vmem),
            got=f"{beyond[0].name} from row {beyond[0].base_row:#x} on, {beyond[0].rows} rows",
            need=f"rows 0x0 to {rows:#x} ({machine.vmem_mib} MiB on {machine.name})",
            hint="smaller tiles, or fewer buffers in flight")
    if len(program.bundles) > machine.instruction_bundles:
        raise CompileError(
            "tpu memory", "instruction memory overflow", got=f"{len(program.bundles)} bundles",
            need=f"at most {machine.instruction_bundles} on {machine.name}", hint="loops, not unrolled code")


def _table(buffers: tuple[VmemBuffer, ...]) -> str:
    biggest = sorted(buffers, key=lambda buffer: -buffer.rows)
    rows = [f"\n    {b.name:<24}{b.rows:>9} rows{b.rows * ROW_BYTES / 2**20:>9.2f} MiB at {b.base_row:#x}"
            for b in biggest[:12]]
    return "".join(rows) + (f"\n    and {len(biggest) - 12} more" if len(biggest) > 12 else "") + "\n "


def problems(program: Program, virtual: bool = False) -> Iterator[Problem]:
    """Every broken rule of every bundle, in order. virtual: registers beyond the machine's are allowed."""
    names = _names(program)
    for label, pc in program.labels:
        if not 0 <= pc < len(program.bundles):
            yield Problem(pc, None, f"label {label} stands behind the last bundle", pc)
    for pc, bundle in enumerate(program.bundles):
        for instr in bundle.ops:
            found = list(_operands(instr, names))
            found += [] if virtual else list(_registers(instr, program))
            if instr.info.queue and instr.unit >= program.machine.units(instr.info.queue):
                found.append(("no such unit", instr.unit, f"below {program.machine.units(instr.info.queue)}"))
            yield from (Problem(pc, instr, *facts) for facts in found)
        yield from _bundle(pc, program)


def verify(program: Program, virtual: bool = False) -> None:
    """Check a program against the rules. Raises: CompileError for the first that is broken."""
    check_memory(program)
    for problem in problems(program, virtual):
        at = problem.instr.locs if problem.instr else ()
        raise CompileError(f"{problem.pc:#x}: {problem.instr or 'bundle'}", problem.what, got=problem.got,
                           need=problem.need, at=at)
