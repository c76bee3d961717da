"""`minicc fuzz`: random programs through every level, on both devices, against numpy in float64.

    $ minicc fuzz --n 2000 --seed 0
    2000 programs from seed 0, every level of tpu and gpu: all right
    covered: 44 ops, 9 dtypes, 272 pairs of the two
    not used: none

Goes in: how many programs, and the first seed. Comes out: what was tried, or the first failure, with the
file that holds the program and the commands that replay and reduce it. Each program is compiled with every
subset of the optional passes; with `--machines random`, for a TPU of its own that nobody sells. Invariant:
same seed, same programs, same inputs, same machines, however many processes share the work; nothing is
written while nothing fails.

Csmith and YARPGen do this to C compilers; NNSmith to deep learning compilers. Read next: random_graphs.py,
random_machines.py.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations, product
from multiprocessing import get_context
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from minicc.errors import CompileError
from minicc.graph.dtypes import DTYPES
from minicc.graph.infer import OPS
from minicc.graph.text import parse_graph
from minicc.tools.bisect import OPTIONAL, bisect, device_argument, devices_of
from minicc.tools.output import Progress, emit, write_file
from minicc.tools.random_graphs import random_graph
from minicc.tools.random_machines import random_machine

EXAMPLE = "minicc fuzz --n 200 --seed 0 --device tpu"
SUBSETS = [subset for count in range(len(OPTIONAL) + 1) for subset in combinations(OPTIONAL, count)]


class Outcome(NamedTuple):
    """What became of one program: the ops and dtypes in it, and what went wrong first, if anything did.

    words: the arguments that replay it, after the name of the file that is to hold the text.
    """

    seed: int
    used: frozenset[tuple[str, str]]
    found: str = ""
    words: str = ""
    text: str = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--n", type=int, default=100, help="how many programs (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the first one (default 0)")
    parser.add_argument("--machines", choices=["random"], help="each on another TPU that nobody sells")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one a CPU at most (default 1)")
    device_argument(parser)


def run(options: argparse.Namespace) -> int:
    """Try the programs one by one; stop at the first failure, and return 1."""
    for name, count in (("--n", options.n), ("--jobs", options.jobs)):
        if count < 1:
            raise CompileError("fuzz", "there is nothing to do", got=f"{name} {count}", need="1 or more")
    if options.machines and options.device:
        raise CompileError("fuzz", "a machine is random or named", got="--machines and --device")
    devices = () if options.machines else devices_of(options)
    progress, used = Progress(), set[tuple[str, str]]()
    seeds = range(options.seed, options.seed + options.n)
    with _shared_by(min(options.jobs, options.n, os.cpu_count() or 1)) as each:
        for outcome in each(partial(trial, devices=devices), seeds):
            progress.show(f"program {outcome.seed - options.seed + 1} of {options.n}")
            used |= outcome.used
            if outcome.found:
                progress.clear()
                return _report(outcome, options)
    progress.clear()
    known = {name for pair in used for name in pair}
    unused = ", ".join(name for name in (*OPS, *DTYPES) if name not in known) or "none"
    where = " and ".join(devices) or "a random TPU for each"
    text = f"{options.n} programs from seed {options.seed}, every level of {where}: all right"
    pairs = {op: sorted(dtype for other, dtype in used if other == op) for op, _ in sorted(used)}
    covered = f"covered: {len(pairs)} ops, {len(known) - len(pairs)} dtypes, {len(used)} pairs of the two"
    emit(f"{text}\n{covered}\n{fill(f'not used: {unused}', 100)}",
         {"programs": options.n, "covered": pairs, "unused": unused}, options)
    return 0


def trial(seed: int, devices: tuple[str, ...]) -> Outcome:
    """One program at every level of every device, with every subset of the passes that it can do without.

    devices: none for a random machine.
    """
    graph, inputs = random_graph(seed)
    graph = parse_graph(text := str(graph))  # what a file of it would hold
    used = frozenset((node.op, str(node.types[0].dtype)) for node in graph.nodes() if node.op != "parameter")
    for device, skip in product(devices or (random_machine(seed),), SUBSETS):
        if found := bisect(graph, inputs, device, skip):
            where = found.device if devices else device  # one's own machine by its numbers
            words = " ".join(["--device", where, *(f"--skip {name}" for name in skip)])
            return Outcome(seed, used, str(found), words, f"// goes wrong with {words}\n{text}")
    return Outcome(seed, used)


@contextmanager
def _shared_by(jobs: int) -> Iterator:
    """A map that keeps the order; its processes leave Ctrl-C to this one, and end when it ends."""
    if jobs == 1:
        yield map
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # what begins now begins so
    pool = get_context("spawn").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    signal.signal(signal.SIGINT, before)
    with pool:
        yield partial(pool.imap, chunksize=4)


def _report(outcome: Outcome, options: argparse.Namespace) -> int:
    """Write down the program that failed, and say how to go on; returns the exit code."""
    path = write_file(Path(f"fuzz-{outcome.seed}.graph"), outcome.text)
    replay, reduce = (f"minicc {command} {path} {outcome.words}" for command in ("bisect", "reduce"))
    emit(f"{outcome.found}\nreplay: {replay}\nreduce: {reduce}",
         {"seed": outcome.seed, "found": outcome.found, "replay": replay, "reduce": reduce}, options)
    return 1
