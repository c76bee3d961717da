"""A small dot on the vector ALU: a sum of outer products, a column times a row.

    acc[m, n] += lhs[m, k] @ rhs[k, n], k of 3     for each k: lhs[:, k] in all lanes (vbcast.lane) times
                                                   rhs[k, :] in all sublanes (a load of stride 0), added up

Goes in: a dot, and where its result lies. Comes out: instructions. Weights for a matrix unit are always 128
rows, which take it 768 cycles of f32, however few there are of k; the first layer of a convolution, with its
3 colours, is done here by then. XLA chooses between its dot emitters by such a rule, too. Read next:
matmul.py, for every other dot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minicc.kernel.ir import Block
from minicc.tpu.assembly import At
from minicc.tpu.isa import Operand
from minicc.tpu.layout import Frame, Home
from minicc.tpu.machine import LANES, SUBLANES
from minicc.tpu.recipes import RECIPES

if TYPE_CHECKING:
    from minicc.tpu.body import Body, Place

DEEPEST = 16  # of k, at most: it is unrolled
MOST_PRODUCTS = 256  # of registers, at most: about what a matrix unit does meanwhile
BATCH = 8  # registers of the result that grow side by side


def small(body: Body, block: Block, home: Home) -> bool:
    """Whether a dot is done sooner on the vector ALU."""
    (k,) = body.layout.big(block.attrs["contract"])
    depth, frame = body.layout.sizes[k], home.frame
    products = depth * body.count(frame.rows, SUBLANES)[0] * body.count(frame.cols, LANES)[0]
    whole = isinstance(body.extents[k], int)
    matrices = all(len(body.layout.big(arg.axes)) == 2 for arg in block.args)
    return whole and matrices and depth <= DEEPEST and products <= MOST_PRODUCTS


def outer(body: Body, block: Block, home: Home, accumulate: bool) -> Home:
    """Compute a dot into its home; accumulate: add to what is there."""
    write, frame, dtype = body.write, home.frame, block.dtype
    (k,) = body.layout.big(block.attrs["contract"])
    lhs, rhs = sorted(block.args, key=lambda arg: frame.cols in arg.axes)
    columns, rows = Frame(frame.rows, k), Frame(k, frame.cols)
    body.prepare(lhs, columns)
    body.prepare(rhs, rows)
    if rhs.op != "load":
        body.keep(rhs, rows)
    source = body.made.get((rhs, rows)) or body.refs[rhs.attrs["ref"]]

    def some(places: list[Place]) -> None:
        nest, left, right = body.at(frame), body.at(columns), body.at(rows)
        totals: list[Operand | None] = [
            nest.load(home, *place, block) if accumulate else None for place in places]
        for number in range(body.layout.sizes[k]):
            for index, (row, panel) in enumerate(places):
                column = write.xlu("vbcast.lane", left.value(lhs, row, At(0, number // LANES)), number)
                line = right.line(source, number, panel)
                product = RECIPES["multiply"](write, dtype, column, line)
                total = totals[index]
                totals[index] = product if total is None else RECIPES["add"](write, dtype, total, product)
        for place, total in zip(places, totals, strict=True):
            assert total is not None
            nest.store(home, place, total)

    body.nest(frame, some, BATCH)
    return home
