"""Exercises of lesson 1: Twice the answer

How little does it take to change a compiler? The page beside this file says what to do; `minicc learn
check 1` looks at what you wrote.
"""

# ruff: noqa: F401, I001  you will need what is imported here
import minicc as mc
from minicc.graph.infer import build
from minicc.graph.ir import Builder, Graph

from minicc import Todo


# ---- 1.1 predict: Kernels and bytes (5 minutes)
# How many kernels does (x + x).relu() become, and how many bytes must move, for 8 floats?
prediction = {"kernels": None, "bytes": None}


# ---- 1.2 build: Double it (10 minutes)
def double(graph: Graph) -> Graph:
    """The same graph, with twice its output."""
    raise Todo("1.2", "double is not written yet", hint="minicc learn hint 1.2")


# ---- 1.3 beat: Few products (10 minutes)
def squares(count: int) -> tuple[list[int], float]:
    """The squares of 0 to `count` - 1, and how many multiplications they took you."""
    return [n * n for n in range(count)], count
