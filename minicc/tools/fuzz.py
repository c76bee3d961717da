"""`minicc fuzz`: random programs through every level, on both devices, against numpy in float64.

    $ minicc fuzz --n 2000 --seed 0
    2000 programs from seed 0, every level of tpu and gpu: all right
    ops not used: none

Goes in: how many programs, and the first seed. Comes out: what was tried, or the first failure, with the
file that holds the program and the commands that replay and reduce it. Each program is compiled with every
subset of the optional passes. Invariant: same seed, same programs, same inputs; nothing is written while
nothing fails.

Csmith and YARPGen do this to C compilers; NNSmith to deep learning compilers. Read next: random_graphs.py.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

from minicc.errors import CompileError
from minicc.graph.infer import OPS
from minicc.graph.text import parse_graph
from minicc.tools.bisect import OPTIONAL, bisect, devices_of
from minicc.tools.output import Progress, emit, write_file
from minicc.tools.random_graphs import random_graph

EXAMPLE = "minicc fuzz --n 200 --seed 0 --device tpu"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--n", type=int, default=100, help="how many programs (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (default 0)")


def run(options: argparse.Namespace) -> int:
    """Try the programs one by one; stop at the first failure, and return 1."""
    if options.n < 1:
        raise CompileError("fuzz", "there is nothing to do", got=f"--n {options.n}", need="1 or more")
    progress, used, devices = Progress(), set[str](), devices_of(options)
    for seed in range(options.seed, options.seed + options.n):
        progress.show(f"program {seed - options.seed + 1} of {options.n}")
        graph, inputs = random_graph(seed)
        graph = parse_graph(str(graph))  # what a file of it would hold
        used |= {node.op for node in graph.nodes()}
        for device, skip in product(devices, ((), OPTIONAL)):
            if found := bisect(graph, inputs, device, skip):
                progress.clear()
                path = write_file(Path(f"fuzz-{seed}.graph"), str(graph))
                words = " ".join([str(path), "--device", found.device, *(f"--skip {name}" for name in skip)])
                text = f"{found}\nreplay: minicc bisect {words}\nreduce: minicc reduce {words}"
                emit(text, {"seed": seed, "found": str(found), "replay": f"minicc bisect {words}"}, options)
                return 1
    progress.clear()
    unused = ", ".join(op for op in OPS if op not in used) or "none"
    text = f"{options.n} programs from seed {options.seed}, every level of {' and '.join(devices)}: all right"
    emit(f"{text}\nops not used: {unused}", {"programs": options.n, "unused": unused}, options)
    return 0
