"""What crosses lanes or sublanes: reductions and transpositions, from and to VMEM.

    reduce(sum) of [64 rows, 300 columns] over columns      3 panels added lane by lane, then vadd.xlane:
                                                            a register for 8 rows, their sums in all lanes
    transposition of a tile of 128 x 128                    16 loads, pushes of vxpose, pops and stores

Goes in: a value and the frame it is wanted in. Comes out: its Home, a temporary, and the loops that fill
it. A reduction adds whole registers as long as it can (the vector ALU has four slots), and crosses lanes
once at the end: over rows by three rotations along the sublanes, over columns by a cross-lane unit. Either
leaves the result everywhere, so that broadcasting it again costs nothing. A vector of one row is transposed
like a matrix with all its rows alike.

Mosaic splits reductions the same way; on a GPU the last steps are warp shuffles. Read next: matmul.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from minicc.graph.elementwise import neutral_value
from minicc.graph.ir import I32
from minicc.kernel.ir import COMBINE, Block
from minicc.tpu.assembly import At, Writer
from minicc.tpu.isa import Operand, Reg
from minicc.tpu.layout import Frame, Home
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.recipes import RECIPES
from minicc.tpu.words import SUFFIX, flipped

if TYPE_CHECKING:
    from minicc.tpu.body import Body, Place

REDUCE_BATCH = 8  # results that grow side by side
TILE_REGISTERS = LANES // SUBLANES  # of 8 rows, in a tile of 128 x 128
ACROSS = {"sum": "vadd", "max": "vmax", "min": "vmin"}  # what the cross-lane units can do


def reduce_block(body: Body, block: Block, frame: Frame) -> Home:
    """Reduce a value over one or both of its axes, into a temporary."""
    arg, write = block.args[0], body.write
    inner = body.layout.of(arg)
    if inner.only(block.axes) not in (Frame(), frame):  # what is kept stays where it is wanted
        inner = inner.swapped
    over, kept = inner.only(block.attrs["axes"]), inner.only(block.axes)
    body.prepare(arg, inner)
    home = body.temp(block, frame)
    neutral = neutral_value(block.attrs["kind"], block.dtype).item()

    def combine(a: Operand, b: Operand) -> Operand:
        return RECIPES[COMBINE[block.attrs["kind"]]](write, block.dtype, a, b)

    def reduce_some(places: list[Place]) -> None:
        totals = [write.op("vsplat", neutral, into=write.register("v")) for _ in places]

        def add(inside: list[Place]) -> None:
            nest = body.at(inner)
            for total, (row, panel) in zip(totals, places, strict=True):
                spots = [(r if over.rows else row, p if over.cols else panel) for r, p in inside]
                values = [nest.masked(arg, spot, neutral) for spot in spots]
                while len(values) > 1:  # a tree, not a chain: half the latency at each level
                    values = [combine(*values[i:i + 2]) if i + 1 < len(values) else values[i]
                              for i in range(0, len(values), 2)]
                write.op("vmov", combine(total, values[0]), into=total)  # for the next round to read

        body.nest(over, add, max(1, 2 * REDUCE_BATCH // len(places)))
        nest = body.at(home.frame)
        for total, place in zip(totals, places, strict=True):
            result = _across(write, block, over, total, combine)
            nest.store(home, place, result)

    body.nest(kept, reduce_some, REDUCE_BATCH)
    return home


def _across(write: Writer, block: Block, over: Frame, total: Reg,
            combine: Callable[[Operand, Operand], Operand]) -> Operand:
    """Combine the sublanes of a register, or its lanes, or both; the result stands in all of them."""
    result: Operand = total
    if over.rows or over.dense:
        for distance in (4, 2, 1):
            result = combine(result, write.op("vrot.slane", result, distance))
    if over.cols and block.attrs["kind"] in ACROSS:
        name, dtype = ACROSS[block.attrs["kind"]], I32 if block.attrs["kind"] == "sum" else block.dtype
        result = write.xlu(f"{name}.xlane.{SUFFIX[block.dtype.kind]}", flipped(write, dtype, result))
        result = flipped(write, dtype, result)  # of u32: the sum of words needs no order, an extreme does
    elif over.cols:
        for power in range(7):
            result = combine(result, write.xlu("vrot.lane", result, 1 << power))
    return result


def transpose_block(body: Body, block: Block, frame: Frame) -> Home:
    """Bring a block of memory that lies the other way round into this frame, tile by tile, through the
    cross-lane units."""
    write, home = body.write, body.temp(block, frame)
    source = replace(body.refs[block.attrs["ref"]], lane0=False)  # its first lane becomes the first row

    def tile(row: At, panel: At) -> None:
        """row, panel: which tile of the target, both counted in tiles of 128."""
        nest, out, unit = body.at(source.frame), body.at(frame), write.next_xlu()
        count = _registers(body, frame.cols, panel) if frame.cols else TILE_REGISTERS
        for number in range(count):
            value = nest.load(source, write.scaled(panel, LANES, number * SUBLANES), row, block)
            write.op(f"vxpose.xlu{unit}", value, begin=number == 0, end=number == count - 1)
        wanted = _registers(body, frame.rows, row) if frame.rows else 1
        for number in range(TILE_REGISTERS):
            popped = write.op(f"vpop.xlu{unit}")
            if number < wanted:
                out.store(home, (write.scaled(row, LANES, number * SUBLANES), panel), popped)

    def tiles(axis: str | None, some: Callable[[list[At]], None]) -> None:
        block = body.layout.sizes[axis] if axis else 1
        write.loop(-(-block // LANES), block // LANES, 1, 1, some)

    tiles(frame.rows, lambda rows: tiles(frame.cols, lambda panels: tile(rows[0], panels[0])))
    return home


def _registers(body: Body, axis: str, tile: At) -> int:
    """Registers of 8 rows in a tile; fewer in the last one, which is never in a loop."""
    left = body.layout.sizes[axis] - tile.offset * LANES
    return TILE_REGISTERS if tile.counter else min(TILE_REGISTERS, -(-left // SUBLANES))
