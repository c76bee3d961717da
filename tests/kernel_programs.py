"""Graphs, a target and a comparison that the tests of the kernel room share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minicc.graph.evaluate import evaluate as evaluate_graph
from minicc.graph.ir import Graph
from minicc.graph.text import parse_graph
from minicc.kernel.cost import Target
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Module
from minicc.kernel.tile import tile

# a machine made for tests: registers of 8 x 128, 1 MiB of fast memory, round numbers
TARGET = Target(
    name="test", fast_bytes=1 << 20, slow_bytes=1 << 30, rows=8, lanes=128, largest_block=2048,
    most_operands=12, max_block_axes=2, keeps_temps=True, one_core=True, bytes_per_cycle=500.0,
    latency_cycles=400, near_bytes_per_cycle=4000.0, near_latency_cycles=100,
    launch_cycles=100, dot_flops_per_cycle=20000.0, dot_units=4, dot_row_cycles=6,
    dot_fill_cycles=1000, vector_ops_per_cycle=4000.0)

ONE_DOT = replace(TARGET, one_core=False)  # ... and one whose kernels end with their dot

MLP = """
graph mlp(x: f32[200,300], w: f32[300,130], b: f32[130]) {
  %0 = dot_general(x, w) contract=[1]x[0] batch=[]x[] : f32[200,130]
  %1 = broadcast_in_dim(b) shape=[200,130] dims=[1] : f32[200,130]
  %2 = add(%0, %1) : f32[200,130]
  %3 = maximum(%2, 0.0) : f32[200,130]
  return %3
}"""

SOFTMAX = """
graph softmax(x: f32[37,10]) {
  %0 = reduce(x) kind=max axes=[1] : f32[37]
  %1 = broadcast_in_dim(%0) shape=[37,10] dims=[0] : f32[37,10]
  %2 = subtract(x, %1) : f32[37,10]
  %3 = exp(%2) : f32[37,10]
  %4 = reduce(%3) kind=sum axes=[1] : f32[37]
  %5 = broadcast_in_dim(%4) shape=[37,10] dims=[0] : f32[37,10]
  %6 = divide(%3, %5) : f32[37,10]
  return %6
}"""

MOVES = """
graph moves(x: f32[7,129], y: f32[129,7]) {
  %0 = slice(x) start=[0,1] limit=[7,128] stride=[1,2] : f32[7,64]
  %1 = pad(%0, 0.5) low=[1,0] high=[0,2] interior=[0,0] : f32[8,66]
  %2 = transpose(y) perm=[1,0] : f32[7,129]
  %3 = add(x, %2) : f32[7,129]
  %4 = reshape(%3) shape=[903] : f32[903]
  %5 = iota() axis=0 shape=[903] dtype=f32 : f32[903]
  %6 = multiply(%4, %5) : f32[903]
  %7 = reduce(%6) kind=sum axes=[0] : f32[]
  %8 = reduce(%1) kind=max axes=[0] : f32[66]
  return %7, %1, %8, %4
}"""

TWO_DOTS = """
graph two_dots(x: f32[129,65], w: f32[65,257], v: f32[257,10]) {
  %0 = dot_general(x, w) contract=[1]x[0] batch=[]x[] : f32[129,257]
  %1 = maximum(%0, 0.0) : f32[129,257]
  %2 = dot_general(%1, v) contract=[1]x[0] batch=[]x[] : f32[129,10]
  return %2
}"""

BATCHED = """
graph batched(q: f32[3,5,7,16], k: f32[3,5,9,16]) {
  %0 = dot_general(q, k) contract=[3]x[3] batch=[0,1]x[0,1] : f32[3,5,7,9]
  %1 = reduce(%0) kind=max axes=[3] : f32[3,5,7]
  return %0, %1
}"""

PROGRAMS = {"mlp": MLP, "softmax": SOFTMAX, "moves": MOVES, "two_dots": TWO_DOTS, "batched": BATCHED}


def inputs_of(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Random arrays for a graph of f32 inputs."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(value.shape).astype(np.float32) for value in graph.inputs]


def tiled_module(graph: Graph, target: Target = TARGET) -> Module:
    """The graph as tiled kernels."""
    module = fuse(graph, target)
    return replace(module, kernels=tuple(tile(kernel, target) for kernel in module.kernels))


def program(name: str) -> tuple[Graph, list[np.ndarray], list[np.ndarray]]:
    """A graph of PROGRAMS, inputs for it, and its outputs in float64."""
    graph = parse_graph(PROGRAMS[name])
    inputs = inputs_of(graph)
    return graph, inputs, evaluate_graph(graph, inputs, dtype64=True)


def named(module: Module, inputs: list[np.ndarray]) -> dict[str, np.ndarray]:
    """The inputs by the names of the module's buffers."""
    return {name: array for (name, _), array in zip(module.inputs, inputs, strict=True)}


def error(got: np.ndarray, want: np.ndarray) -> float:
    """The largest difference, relative to the largest value wanted; infinite for a NaN that should not be."""
    if got.size == 0:
        return 0.0
    difference = np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64))
    return float(np.inf if np.isnan(difference).any() else difference.max() / max(np.abs(want).max(), 1e-30))
