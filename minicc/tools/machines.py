"""`minicc machines`: the emulated machines and the numbers they are made of.

Goes in: nothing. Comes out: a table per family; where each number comes from is said beside it in
tpu/machine.py and gpu/machine.py. Read next: those two.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from minicc.gpu.machine import SPECS as GPUS
from minicc.tools.output import emit
from minicc.tpu.machine import SPECS as TPUS

EXAMPLE = "minicc machines --json"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes: nothing of its own."""


def run(options: argparse.Namespace) -> int:
    """Print every field of every machine."""
    data = {f"{family}:{name}": asdict(spec) for family, specs in (("tpu", TPUS), ("gpu", GPUS))
            for name, spec in specs.items()}
    tables = []
    for family in ("tpu", "gpu"):
        machines = {name: spec for name, spec in data.items() if name.startswith(family)}
        first = next(iter(machines.values()))
        fields = [name for name, value in first.items() if isinstance(value, int | float)]
        rows = [["emulated machine", *machines]]
        rows += [[field, *(f"{spec[field]:g}" for spec in machines.values())] for field in fields]
        tables += ["\n".join(f"{name:24}" + "".join(f"{cell:>12}" for cell in rest) for name, *rest in rows)]
    tables.append("sources: the comments in minicc/tpu/machine.py and minicc/gpu/machine.py")
    emit("\n\n".join(tables), data, options)
    return 0
