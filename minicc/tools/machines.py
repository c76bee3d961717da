"""`minicc machines`: the emulated machines and the numbers they are made of, each with its source.

    machine           v4        v5e
    clock_ghz     1.05 N      1.5 S   GHz
    vregs           32 S       64 A   vector registers

Goes in: nothing. Comes out: a table per family, a letter behind each number, and what the letters stand for.
A number without one is a default, whose source ends its line. Read next: tpu/machine.py and gpu/machine.py,
where all of it is written down.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, fields

from minicc.gpu.machine import SPECS as GPUS
from minicc.tools.output import emit
from minicc.tpu.machine import SOURCES, TPUSpec
from minicc.tpu.machine import SPECS as TPUS

EXAMPLE = "minicc machines --json"
LETTERS = {
    "J": "JAX's TPU info table", "S": "How to Scale Your Model, the scaling book",
    "C": "the vendor's cloud documentation", "N": "third-party notes",
    "U": "utilisation dumps of real v5e programs, as a third party describes them",
    "X": "XLA's dot algorithm of six bf16 passes, which is its highest precision",
    "F": "fitted to published times of matmuls in 128^3 tiles on a v5e",
    "D": "derived from the published peak",
    "A": "an assumption of ours; so is every default on a chip that is no v5e",
}
DERIVED = {"peak_bf16_tflops": "1e12/s, from the units", "peak_int8_tops": "1e12/s, from the units"}
PER_GPU = "the vendor's whitepaper of that generation; the comments in minicc/gpu/machine.py say more"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes: nothing of its own."""


def run(options: argparse.Namespace) -> int:
    """Print every number of every machine."""
    tpus = {name: {**asdict(spec), **{peak: getattr(spec, peak) for peak in DERIVED},
                   "sources": SOURCES[name]} for name, spec in TPUS.items()}
    gpus = {name: asdict(spec) for name, spec in GPUS.items()}
    text = [table(tpus, {f.name: f.metadata.get("says", "") for f in fields(TPUSpec)} | DERIVED),
            "\n".join(f"[{letter}] {source}" for letter, source in LETTERS.items()),
            table(gpus, {}), f"sources: {PER_GPU}"]
    data = {**{f"tpu:{name}": spec for name, spec in tpus.items()},
            **{f"gpu:{name}": spec for name, spec in gpus.items()}}
    emit("\n\n".join(text), data, options)
    return 0


def table(machines: dict[str, dict], says: dict[str, str]) -> str:
    """A row per number, a column per machine, and what the number is."""
    kept = [key for key, value in next(iter(machines.values())).items() if isinstance(value, int | float)]
    rows = [["emulated machine", *machines, ""]]
    for key in kept:
        cells = [f"{m[key]:g} {m.get('sources', {}).get(key, ' ')}" for m in machines.values()]
        rows.append([key, *cells, says.get(key, "")])
    return "\n".join(f"{key:20}{''.join(f'{cell:>10}' for cell in cells)}  {what}".rstrip()
                     for key, *cells, what in rows)
