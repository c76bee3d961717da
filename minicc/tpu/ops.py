"""The table of instructions: what each op takes, where it goes, how long it lasts and what it does.

    "vadd.f32": _op("vector", "v = v xf", lanewise(np.add, "f32"))
                     class     operands    meaning

One line says all that is known of an op. Printing and parsing read its operands, verify.py checks them, the
scheduler reads its slot, its latency, its effect on memory and its queue, and core.py runs its meaning: a
function of its operands, or the name of the method that has what a function lacks (memory, time, a unit).
The spelling follows published dumps of real TPU programs. The real encoding packs a bundle into a few
hundred bits and is not public; LLVM keeps such a table in TableGen. What to read next: isa.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from minicc.tpu import vector
from minicc.tpu.vector import Lanes, fault, lanewise

# class of an op: which of `TPUSpec.slots` it takes; the TPUSpec field that says after how many cycles its
# result can be read (a push: popped, and for the mxu, its rows more); its queue, and the port of that
CLASSES = {
    "scalar": ("scalar", "scalar_latency", "", ""),
    "scalar.load": ("scalar", "load_latency", "", ""),
    "misc": ("misc", "scalar_latency", "", ""),  # control, DMA and semaphores
    "load": ("load", "load_latency", "", ""),
    "store": ("store", "store_latency", "", ""),
    "vector": ("vector", "vector_latency", "", ""),
    "eup": ("eup", "eup_latency", "eup", "push"),  # transcendentals
    "eup.pop": ("eup.pop", "pop_latency", "eup", "pop"),
    "xlu": ("xlu", "xlu_latency", "xlu", "push"),  # across lanes
    "xlu.pop": ("xlu", "pop_latency", "xlu", "pop"),
    "mxu": ("mxu", "mxu_fill_cycles", "mxu", "push"),  # matrix units
    "mxu.weights": ("mxu", "mxu_fill_cycles", "mxu", "weights"),
    "mxu.pop": ("mxu.pop", "pop_latency", "mxu", "pop"),
}

# kind of an operand or attribute: the kinds of value that fit, as `verify.kind_of` names them; in words
KINDS = {
    "": ("none", "none"),
    "s": ("s int", "a scalar register or an integer"),
    "n": ("s int float", "a scalar register or a number"),
    "v": ("v", "a vector register"),
    "m": ("m", "a mask register"),
    "x": ("v int float", "a vector register or a number"),
    "xf": ("v float", "a vector register or a float"),
    "xi": ("v int", "a vector register or an integer"),
    "smem": ("smem", "[name + s0 + 0x0] of an SMEM buffer"),
    "vmem": ("vmem", "[name + s0 + 0x0] of a VMEM buffer"),
    "hbm": ("hbm", "[name + s0 + 0x0] of an HBM buffer"),
    "line": ("vmem", "[name + s0 + 0x0] of a VMEM buffer, counted in elements"),
    "sem": ("sem", "[name + s0 + 0x0] of a semaphore"),
    "label": ("label", "a label of the program"),
    "flag": ("flag", "no value"),
    "list": ("list", "a list in parentheses of scalar registers or integers"),
}
ATTRS = dict.fromkeys(("begin", "end", "swap", "unless"), "flag") | dict.fromkeys(
    ("shape", "strides", "steps"), "list") | dict.fromkeys(("stride", "rows", "panel", "lane"), "s")


class OpInfo(NamedTuple):
    """A line of the table.

    dst, srcs: kinds of its operands; a `?` marks one that may be left out. attrs: names of what it takes
    besides. memory: "read", "write" (VMEM, or SMEM), "dma", "wait", "signal", or "". run: its meaning.
    """

    slot: str
    latency: str
    queue: str  # "mxu", "xlu", "eup" or ""
    port: str  # "push", "weights" (a push too), "pop" or ""
    dst: str
    srcs: tuple[str, ...]
    run: Callable | str
    attrs: tuple[str, ...]
    memory: str


def _op(kind: str, operands: str, run: Callable | str, attrs: str = "", memory: str = "") -> OpInfo:
    dst, _, srcs = operands.rpartition("=")
    return OpInfo(*CLASSES[kind], dst.strip(), tuple(srcs.split()), run, tuple(attrs.split()), memory)


def _ops(kind: str, operands: str, functions: Mapping[str, Callable]) -> dict[str, OpInfo]:
    return {name: _op(kind, operands, function) for name, function in functions.items()}


def _lanewise(kind: str, operands: str, dtype: str, functions: Mapping[str, Callable]) -> dict[str, OpInfo]:
    """Ops on each lane alone; of those on numbers, the name ends in the dtype."""
    suffix = f".{dtype}" if kind == "vector" and dtype != "mask" else ""
    return _ops(kind, operands, {name + suffix: lanewise(f, dtype) for name, f in functions.items()})


def _divide(a: int, b: int) -> int:
    """a / b towards zero."""
    if b == 0:
        raise fault("division by zero")
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    """What _divide leaves: it has the sign of a."""
    return a - _divide(a, b) * b


def _shift(way: Callable) -> Callable:
    """A shift of words to the left or right; beyond 31 places nothing is left."""
    return lambda x, n: np.where(n < 32, way(x, n & 31), 0)


_DMA = "shape strides steps panel lane"
_COMPARE = {name: getattr(operator, name) for name in ("lt", "le", "eq", "ne", "ge", "gt")}
_VCMP = {f"vcmp.{name}": compare for name, compare in _COMPARE.items()}
_BITS: dict[str, Callable] = {
    "vand": np.bitwise_and, "vor": np.bitwise_or, "vxor": np.bitwise_xor,
    "vshll": _shift(np.left_shift), "vshrl": _shift(np.right_shift)}
_EXTREME = {"vmax": np.maximum, "vmin": np.minimum}
_ARITHMETIC = {"vadd": np.add, "vsub": np.subtract, "vmul": np.multiply} | _EXTREME
_NARROWED: dict[str, tuple[int, Callable]] = {  # floats to the nearest, halfway the even one; the low bits
    "bf16": (16, lambda words: vector.round_bf16(words.view(np.float32))),
    "f16": (16, lambda words: words.view(np.float32).astype(np.float16).view(np.uint16).astype(np.uint32)),
    "b16": (16, lambda words: words & np.uint32(0xFFFF)), "b8": (8, lambda words: words & np.uint32(0xFF))}
_WIDENED: dict[str, tuple[int, Callable]] = {
    "bf16": (16, lambda words: (words << 16).view(np.float32)), "f16": (16, vector.from_f16),
    "s16": (16, vector.signed(16)), "s8": (8, vector.signed(8)), "u8": (8, lambda words: words)}



class Form(NamedTuple):
    """How rows lie in what is pushed to a matrix unit: how many, and as f32. kind: of arithmetic."""

    kind: str
    rows: int
    numbers: Callable[[np.ndarray], np.ndarray]


FORMS = {"": Form("f32", 8, lambda data: data.view(np.float32)),
         ".bf16": Form("bf16", 16, vector.packed_rows),
         ".s8": Form("int8", 32, vector.packed_bytes(np.int8)),
         ".u8": Form("int8", 32, vector.packed_bytes(np.uint8))}

OPS: dict[str, OpInfo] = {
    # the scalar core, on integers of 32 bits
    **_ops("scalar", "s = n", {"smov": lambda a: a}),
    **_ops("scalar", "s = s s", {"sadd.s32": operator.add, "ssub.s32": operator.sub}),
    **_ops("scalar", "s = s s", {"smul.u32": operator.mul, "smin.s32": min, "smax.s32": max}),
    **_ops("scalar", "s = s s", {"sdiv.s32": _divide, "srem.s32": _remainder}),
    **_ops("scalar", "s = s s", {"sand.u32": operator.and_, "sor.u32": operator.or_}),
    **_ops("scalar", "s = s s", {f"scmp.{name}.s32": test for name, test in _COMPARE.items()}),  # 1 or 0
    **_ops("scalar", "s = s s s", {"ssel": lambda condition, a, b: a if condition else b}),
    "sld": _op("scalar.load", "s = smem", "load_word", memory="read"),
    # control, DMA and semaphores
    "sbr.rel": _op("misc", "s? label", "branch", "unless"),  # always; if s != 0; or, as `!s`, if s == 0
    "shalt": _op("misc", "", "halt"),
    "dma.hbm_to_vmem": _op("misc", "vmem hbm sem", "copy", _DMA, "dma"),  # destination first
    "dma.vmem_to_hbm": _op("misc", "hbm vmem sem", "copy", _DMA, "dma"),
    "dma.hbm_to_smem": _op("misc", "smem hbm sem", "copy", "shape strides", "dma"),
    "dma.line_to_vmem": _op("misc", "vmem line sem", "copy", _DMA, "dma"),  # within the chip: see isa.py
    "dma.vmem_to_line": _op("misc", "line vmem sem", "copy", _DMA, "dma"),
    "dma.line_to_smem": _op("misc", "smem line sem", "copy", "shape strides", "dma"),
    "dma.done.wait": _op("misc", "sem", "wait", "", "wait"),  # until it counts 1 or more, then takes 1
    "vsyncadd": _op("misc", "sem s", "signal", "", "signal"),
    # loads and stores: 8 rows, `stride` apart (0: one row to all sublanes), or only the first `rows` of them
    "vld": _op("load", "v = vmem", "load", "stride rows", "read"),
    "vst": _op("store", "vmem v", "store", "stride rows", "write"),
    "vst.msk": _op("store", "vmem v m", "store", "stride rows", "write"),
    # the vector ALU, lane by lane
    **_lanewise("vector", "v = v xf", "f32", _ARITHMETIC),
    **_lanewise("vector", "v = v xi", "s32", _ARITHMETIC),
    **_lanewise("vector", "m = v xf", "f32", _VCMP),
    **_lanewise("vector", "m = v xi", "s32", _VCMP),
    **_lanewise("vector", "v = v xi", "u32", _BITS),
    **_lanewise("vector", "v = v xi", "s32", {"vshra": lambda x, n: x >> np.where(n & ~31, 31, n)}),
    **_lanewise("vector", "v = v", "f32", {"vabs": np.abs, "vfloor": np.floor, "vceil": np.ceil}),
    "vcvt.s32.f32": _op("vector", "v = v", lanewise(lambda x: x.astype(np.float32), "s32")),
    "vcvt.f32.s32": _op("vector", "v = v", lanewise(vector.to_int, "f32")),  # FROM.TO; to s32 towards zero
    **_lanewise("vector", "m = m m", "mask", {
        "vmand": np.logical_and, "vmor": np.logical_or, "vmxor": np.logical_xor}),
    **_lanewise("vector", "m = m", "mask", {"vmnot": np.logical_not}),
    # the vector ALU, registers as a whole
    "vmov": _op("vector", "v = v", lambda a: a),
    "vsplat": _op("vector", "v = n", vector.splat),
    "vlaneseq": _op("vector", "v =", lambda: Lanes(np.indices(vector.TILE, np.int32)[1])),  # a lane's number
    "vsubseq": _op("vector", "v =", lambda: Lanes(np.indices(vector.TILE, np.int32)[0])),  # a sublane's
    "vrot.slane": _op("vector", "v = v s", vector.rotate(-2)),  # sublane i goes to i + s, around the end
    # rows 0-7, 8-15, ... of a tile to one register, two or four rows to a sublane; and 8 rows of it back
    **{f"vpack.{name}": _op("vector", "v =" + 32 // bits * " v", vector.pack(narrowed, bits))
       for name, (bits, narrowed) in _NARROWED.items()},
    **{f"vunpack.{name}": _op("vector", "v = v s", vector.unpack(widened, bits))
       for name, (bits, widened) in _WIDENED.items()},
    "vcvt.f16.f32": _op("vector", "v = v", lanewise(vector.from_f16, "u32")),  # of the low half of a word
    "vsel": _op("vector", "v = m x x", vector.select),  # mask ? second : third
    "vcmask": _op("vector", "m = s s", vector.rectangle),  # sublane < first and lane < second
    "vcmask.linear": _op("vector", "m = s", vector.prefix),  # sublane * 128 + lane < first
    # transcendentals
    **_lanewise("eup", "v", "f32", {"vpow2": np.exp2, "vlog2": np.log2, "vtanh": np.tanh}),
    **_lanewise("eup", "v", "f32", {"vrcp": np.reciprocal, "vrsqrt": lambda x: np.float32(1) / np.sqrt(x)}),
    "vpop.eup": _op("eup.pop", "v =", "pop"),
    # across lanes: a row's total in all its lanes; lane i to i + s; lane s to all. A transposition of a tile:
    # 16 pushes of 8 rows (fewer: the rest is garbage), marked begin and end, then 16 pops of 8 rows
    **{f"{name}.xlane.{t}.xlu": _op("xlu", "v", vector.across(f.reduce, t))
       for name, f in ({"vadd": np.add} | _EXTREME).items() for t in ("f32", "s32")},
    "vrot.lane.xlu": _op("xlu", "v s", vector.rotate(-1)),
    "vbcast.lane.xlu": _op("xlu", "v s", vector.broadcast),
    "vxpose.xlu": _op("xlu", "v", "transpose", "begin end"),
    "vpop.xlu": _op("xlu.pop", "v =", "pop"),
    # matrix units: 128 rows of weights go to the shadow copy (16 pushes; 8 or 4 when packed), `swap` makes
    # them active, and each row pushed meets all of them. One pop per 8 rows pushed. Rows of a unit of 256 x
    # 256 are two registers side by side, and so are its results
    **{f"vmatpush{xpose}{form}.mxu": _op("mxu.weights", "v v?", "multiply")
       for xpose in ("", ".xpose") for form in FORMS},
    **{f"vmatmul{form}.mxu": _op("mxu", "v v?", "multiply", "rows swap") for form in FORMS},
    "vpop.mrf.mxu": _op("mxu.pop", "v =", "pop"),
}


@cache
def form_name(op: str) -> str:
    """Which of FORMS a push to a matrix unit has.

    >>> form_name("vmatpush.xpose.bf16.mxu3"), form_name("vmatmul.mxu0")
    ('.bf16', '')
    """
    return next((name for name in FORMS if name and f"{name}." in op), "")


def form(op: str) -> Form:
    """How rows lie in what an instruction pushes; 8 words, if it is no push."""
    return FORMS[form_name(op)]


@cache
def lookup(op: str) -> tuple[OpInfo | None, int]:
    """The table's line for an op and the number of its unit: "vpop.mrf.mxu3" is ("vpop.mrf.mxu", 3).

    >>> lookup("vmatmul.mxu3")[1], lookup("vpow2")[1]
    (3, 0)
    """
    if op in OPS:
        info = OPS[op]
        return (None, 0) if info.queue in ("mxu", "xlu") else (info, 0)  # these need a unit's number
    name = op.rstrip("0123456789")
    return (OPS.get(name), int(op[len(name):])) if op != name else (None, 0)
