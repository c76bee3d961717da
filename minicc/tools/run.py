"""`minicc run`: run a program, and say what came out.

Goes in: a program. Comes out: one line per output: its type, and its smallest, mean and largest value. A
script is run as it is, with its own output; one function of it, on random inputs. Read next: programs.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from minicc.graph.dtypes import widen
from minicc.tools import programs
from minicc.tools.output import emit

EXAMPLE = "minicc run -c 'softmax(rand(4,10))' --device tpu --seed 1"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    programs.arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run the program and print its outputs."""
    programs.check(options)
    if (options.program or "").endswith(".py"):
        programs.run_script(Path(options.program), options.device)
        return 0
    rows = []
    pairs = [pair for loaded in programs.load(options)
             for pair in zip(loaded.compiled.graph.outputs, loaded.run(options.seed), strict=True)]
    for value, array in pairs:
        array = widen(array)
        least, mean, most = (float(f(array)) if array.size else None for f in (np.min, np.mean, np.max))
        rows.append({"type": str(value.type), "least": least, "mean": mean, "most": most})
    lines = [f"{row['type']}  least {row['least']:.6g}  mean {row['mean']:.6g}  most {row['most']:.6g}"
             if row["least"] is not None else f"{row['type']}  no elements" for row in rows]
    emit("\n".join(lines), rows, options)
    return 0
