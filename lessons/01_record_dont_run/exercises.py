"""Exercises of lesson 1: Record, don't run

How can y = x @ w return before anything was multiplied, and who pays for it? The page beside this file
says what to do; `minicc learn check 1` looks at what you wrote.
"""

# ruff: noqa: F401, I001  you will need what is imported here
from collections.abc import Callable, MutableMapping

import numpy as np

import minicc as mc

from minicc import Todo
from minicc.graph.ir import Node, Value


# ---- 1.1 predict: After five lines (8 minutes)
# x = mc.Tensor(images)                 images: f32[1797,64]; w and b are tensors with data, w: f32[64,128]
# h = (x @ w + b).relu()
# p = h.softmax(axis=-1)
# best = p.max(axis=-1)
# mean = best.mean()
# ran: kernels that ran by now. nodes: operations recorded for `mean`, inputs and constants among them.
# kernels: how many mean.numpy() runs on the gpu device. for_h: how many h.numpy() runs after that.
prediction = {"ran": None, "nodes": None, "kernels": None, "for_h": None}


# ---- 1.2 build: Memoised realise (20 minutes)
def realise(value: Value, known: MutableMapping[Node, np.ndarray],
            compute: Callable[[Node, list[np.ndarray]], np.ndarray]) -> np.ndarray:
    """The array of a value.

    known: node -> its array; the inputs are in it. What you compute, put there: nothing is computed twice, in
    this call or the next. compute(node, arrays) gives a node's array from those of its operands, in their
    order. value.node is the node to start from; node.operands are Values again. A program may be thousands of
    nodes long.
    """
    raise Todo("1.2", "realise is not written yet", hint="minicc learn hint 1.2")


# ---- 1.3 find: The write that was seen early (15 minutes)
def seen_late(make: Callable[[np.ndarray], mc.Tensor]) -> int:
    """The size of the smallest f32 vector that shows the bug; 0 if none of up to 128 elements does.

    `make` makes a tensor of an array, as mc.Tensor does. It has the bug if a write to the array shows in
    something that was recorded before the write and read after it.
    """
    raise Todo("1.3", "seen_late is not written yet", hint="minicc learn hint 1.3")


# ---- 1.4 beat: Look once (12 minutes)
def best_threshold(ink: mc.Tensor, is_one: mc.Tensor, thresholds: list[float]) -> float:
    """The threshold on a picture's mean ink that tells most ones from the rest; the first of equal ones.

    ink: f32[n], not computed yet. is_one: f32[n] of 0.0 and 1.0. A picture with more ink than the threshold
    is taken for a one. It is right as it stands, and runs a kernel for every threshold.
    """
    best, most = thresholds[0], -1.0
    for threshold in thresholds:
        right = ((ink > threshold).float() == is_one).float().mean()
        if right.item() > most:
            best, most = threshold, right.item()
    return best
