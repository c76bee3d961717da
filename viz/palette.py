"""One palette for every picture, so that a colour means the same thing wherever it appears.

    fill("dot_general") -> "#ffdcb8"      orange: the matrix unit's work

Goes in: the op or the role of a thing. Comes out: its colour. Invariants: text is always near-black on a
tint, so it reads in print and on a projector; hues come from the Okabe-Ito set, which people with
colour-blindness can tell apart; no other file of viz/ spells a colour. Profilers paint by a hash of the name,
so a colour means nothing from one picture to the next. Read next: graph.py.
"""

from __future__ import annotations

INK = "#1f2933"  # names
SOFT = "#52606d"  # types, sizes
FAINT = "#7b8794"  # user lines, grid lines
PAPER = "#ffffff"
RULE = "#d9dee4"  # hair lines behind a timeline
EDGE = "#7b8794"
CLUSTER = "#f4f6f9"  # a kernel
CLUSTER_EDGE = "#9aa5b1"

SANS = "Helvetica"
MONO = "Courier"

# role -> (fill, border)
ROLES: dict[str, tuple[str, str]] = {
    "input": ("#fff3c4", "#c99a06"),  # what the user hands in
    "output": ("#ffe3ec", "#c2255c"),  # what the user gets back
    "temp": ("#ffffff", "#7b8794"),  # between kernels, in HBM
    "vmem": ("#e3f8ec", "#2f9e5f"),  # between kernels, never leaves the chip
    "matrix": ("#ffdcb8", "#d9730d"),  # dots and convolutions
    "vector": ("#d6e8fb", "#2f76c0"),  # elementwise
    "reduce": ("#d5f2e3", "#1f8f5f"),  # reductions
    "shape": ("#eceff3", "#8a96a3"),  # moves elements, computes nothing
    "copy_in": ("#c8ecec", "#147c83"),
    "copy_in_other": ("#93d5d6", "#147c83"),  # the second buffer of two
    "copy_out": ("#f5c6d6", "#c2255c"),
    "copy_out_other": ("#eb9ab7", "#c2255c"),
    "body": ("#ffdcb8", "#d9730d"),
    "scalar": ("#eceff3", "#8a96a3"),
}

SHAPE_OPS = {
    "broadcast_in_dim", "reshape", "transpose", "slice", "pad", "concatenate", "reverse", "iota", "constant",
    "convert", "gather", "scatter", "dynamic_slice", "dynamic_update_slice",
}


def role_of(op: str) -> str:
    """Which role an op of the graph or kernel level plays.

    >>> role_of("dot"), role_of("tanh"), role_of("reshape")
    ('matrix', 'vector', 'shape')
    """
    if op in ("dot_general", "dot", "convolution"):
        return "matrix"
    if op == "reduce":
        return "reduce"
    return "shape" if op in SHAPE_OPS else "vector"


def fill(op: str) -> str:
    """The tint of an op."""
    return ROLES[role_of(op)][0]
