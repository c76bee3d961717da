"""Kernels that differ in names and lines only are built once, and come out as if built anew."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernel_programs import PROGRAMS, TARGET, program
from random_graphs import random_graph

from minicc.errors import Loc
from minicc.graph.ir import Graph, Value
from minicc.graph.text import parse_graph
from minicc.kernel.alike import Workshop
from minicc.kernel.build import build_kernel
from minicc.kernel.fuse import fuse
from minicc.kernel.legalize import legalize
from minicc.kernel.update import UPDATES, build_update


def layers(count: int) -> Graph:
    """y = x * w + x, so many times over, each with a w of its own."""
    ins = ", ".join(f"w{number}: f32[8,16]" for number in range(count))
    lines, x = [], "x"
    for number in range(count):
        lines += [f"%{2 * number} = multiply({x}, w{number}) : f32[8,16]",
                  f"%{2 * number + 1} = add(%{2 * number}, {x}) : f32[8,16]"]
        x = f"%{2 * number + 1}"
    return parse_graph("\n".join([f"graph deep(x: f32[8,16], {ins}) {{", *lines, f"return {x}", "}"]))


def made(graph: Graph, *questions: tuple[int, tuple[int, ...]]):
    """The kernels of some roots, each with what is fused in it (by number), and how many were built.

    Node 5 has buffer n5 and line 5.
    """
    nodes = graph.nodes()
    locs = {node: (Loc("user.py", number),) for number, node in enumerate(nodes)}
    names = {node: f"n{number}" for number, node in enumerate(nodes)}
    shop = Workshop(replace(graph, locs=locs), names, TARGET)
    kernels = [shop.make([nodes[root]], (), {nodes[one] for one in fused}, None).kernel
               for root, fused in questions]
    return kernels, len(shop.known)


def test_two_layers_are_built_once_and_each_has_its_own_names_and_lines():
    graph = layers(4)  # the first reads what lies far away and the last writes there; those between are alike
    first_times, first, second_times, second = [
        number for number, node in enumerate(graph.nodes()) if node.op != "parameter"][2:6]
    kernels, built = made(graph, (first, (first_times,)), (second, (second_times,)))
    assert built == 1
    assert [op.buffer for op in kernels[1].outputs] == [f"n{second}"]
    assert {op.buffer for op in kernels[1].inputs} > {f"n{first}"}
    lines = {loc.line for loc in kernels[1].locs()}
    assert {second, second_times, first} < lines and first_times not in lines  # what it reads has lines too


@pytest.mark.parametrize("one, other", [
    ("multiply(x, x) : f32[8,16]", "multiply(x, y) : f32[8,16]"),  # which operands share a buffer
    ("multiply(x, 2.0) : f32[8,16]", "multiply(x, 3.0) : f32[8,16]"),
    ("multiply(x, 0.0) : f32[8,16]", "multiply(x, -0.0) : f32[8,16]"),
    ("reduce(x) kind=sum axes=[0] : f32[16]", "reduce(x) kind=sum axes=[1] : f32[8]"),
    ("add(x, y) : f32[8,16]", "add(z, z) : f32[16,8]"),
    ("convert(x) dtype=i32 : i32[8,16]", "convert(x) dtype=u32 : u32[8,16]"),
])
def test_what_differs_is_built_apart(one, other):
    graph = parse_graph(f"""graph two(x: f32[8,16], y: f32[8,16], z: f32[16,8]) {{
      %0 = {one}
      %1 = {other}
      return %0, %1
    }}""")
    numbers = [graph.nodes().index(value.node) for value in graph.outputs]
    assert made(graph, *((number, ()) for number in numbers))[1] == 2


def test_what_is_fused_is_part_of_the_question():
    graph = layers(1)
    last = graph.nodes().index(graph.outputs[0].node)
    kernels, built = made(graph, (last, ()), (last, (last - 1,)))
    assert built == 2 and len(kernels[1].blocks()) > len(kernels[0].blocks())


def compare(graph: Graph, monkeypatch) -> None:
    """Fuse with and without memory; kernels and their lines must be the same to the letter."""
    def anew(self, roots, sides, fused, also):
        known = make(self, roots, sides, fused, also)
        inside = {*fused, *sides, *([also] if also else ())}
        if roots[0].op in UPDATES:
            kernel = build_update(self.graph, roots[0], inside, self.buffers.__getitem__, self.target)
        else:
            kernel = build_kernel(self.graph, list(map(Value, roots)), inside, self.buffers.__getitem__,
                                  self.target, list(map(Value, sides)))
        assert str(known.kernel) == str(kernel)
        assert [block.locs for block in known.kernel.blocks()] == [block.locs for block in kernel.blocks()]
        return known

    make = Workshop.make
    monkeypatch.setattr(Workshop, "make", anew)
    locs = {node: (Loc("user.py", number),) for number, node in enumerate(graph.nodes())}
    fuse(legalize(replace(graph, locs=locs)), TARGET)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_comes_out_as_if_built_anew(name, monkeypatch):
    compare(program(name)[0], monkeypatch)


@pytest.mark.parametrize("seed", range(8))
def test_so_does_each_of_a_random_graph(seed, monkeypatch):
    compare(random_graph(seed, 30)[0], monkeypatch)
