"""`minicc profile`: where the cycles of a program go, on a machine as it is or as it might be.

    $ minicc profile -c 'relu(rand(512,512) @ rand(512,512))' --sweep mxus=1,2,4,8
    mxus    cycles       us  faster  pays  bound by     where the cycles go
    1        58634    39.09                mxu  84%     mxu 84%, dma 8%, mxu wait 7%
    2        31990    21.33   1.83x   87%  mxu  77%     mxu 77%, dma 14%, mxu wait 6%
    ...
    mxus pays all the way

Goes in: a program, and up to two numbers of the machine with the values to try. Comes out: the profile, or a
table and a chart of a point for each value (of two, for each pair), each compiled anew and emulated; on a
TPU, unless a device is named. A step pays if time falls by at least a quarter of what the number changes by,
both as logarithms: twice the number must make it 1.19 times as fast. Nothing is extrapolated; a machine for
which the program does not compile says why. Chip architects sweep closed forms, as Timeloop does; here the
compiler adapts to each chip. Read next: report.py, and tpu/machine.py for the numbers.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import log
from pathlib import Path

from minicc.compiler import Compiled, compile_graph
from minicc.devices import find
from minicc.errors import CompileError
from minicc.report import TPUProfile, gathered
from minicc.tools import commands, programs
from minicc.tools.output import Progress, emit, write_file
from minicc.tpu.machine import TPUSpec

EXAMPLE = "minicc profile -c 'relu(rand(512,512) @ rand(512,512))' --sweep mxus=1,2,4,8 --chart sweep.svg"
PAYS = 0.25  # of what the number changes by, as logarithms
SHOWN_CAUSES = 3


@dataclass(frozen=True)
class Point:
    """One machine of a sweep: the numbers in which it differs, as they were written, and what came of it."""

    values: Mapping[str, str]
    profile: TPUProfile | None
    refused: str = ""

    @property
    def us(self) -> float:
        """How long the program runs, in microseconds; infinitely if not at all."""
        profile = self.profile
        return profile.cycles / profile.spec.clock_ghz / 1e3 if profile else float("inf")

    @property
    def bound(self) -> str:
        """What works longest, and how much of the time: HBM, the MXUs, or bundles of vector work."""
        if self.profile is None:
            return ""
        vector = ("vector", self.profile.causes.get("vector", 0.0))
        name, cycles = max(self.profile.bound, vector, key=lambda pair: pair[1])
        return f"{name} {cycles / self.profile.cycles:4.0%}"

    def causes(self) -> dict[str, float]:
        """cause -> cycles, the waits for all DMAs together, most first."""
        return gathered(self.profile.causes if self.profile else {})


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    programs.arguments(parser)
    parser.add_argument("--device", metavar="D", help="tpu (the default), tpu:v5e, gpu, gpu:a100, ...")
    parser.add_argument("--sweep", action="append", default=[], metavar="NUMBER=V,V,...",
                        help="try these values of a number of `minicc machines`; once or twice")
    parser.add_argument("--no-values", dest="values", action="store_false",
                        help="count cycles and compute nothing, so that it is quick at any size; tpu only")
    parser.add_argument("--chart", metavar="FILE", help="draw the sweep, as .svg or .png")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for chrome://tracing, without --sweep")


def run(options: argparse.Namespace) -> int:
    """Print the profile of each compile of the program, or the sweep of its only one."""
    options.device = options.device or os.environ.get("MINICC_DEVICE") or "tpu"
    sweeps = read_sweeps(options.sweep)
    _check_files(options, sweeps)
    loaded = programs.load(options)
    if not sweeps:
        return _profiles(loaded, options)
    if len(loaded) > 1:
        raise CompileError("profile", "a sweep is of one program", got=f"{len(loaded)} compiles",
                           hint="FILE.py:function picks one")
    spec = find(options.device).spec
    if not isinstance(spec, TPUSpec):
        raise CompileError("profile", "only a TPU is swept", got=options.device, hint="--device tpu")
    points = list(sweep(loaded[0], spec, sweeps, options.values))
    lines = [f"{loaded[0].compiled.graph.name} on {loaded[0].compiled.device}, emulated"]
    lines += (grid if len(sweeps) > 1 else table)(points, sweeps)
    data = [{**point.values, "us": point.us, "cycles": point.profile and point.profile.cycles,
             "bound": point.bound, "causes": point.causes(), "refused": point.refused} for point in points]
    if options.chart:
        lines += ["", str(chart(points, lines[0], Path(options.chart)))]
    emit("\n".join(lines), data, options)
    return 0


def _check_files(options: argparse.Namespace, sweeps: Mapping[str, list[str]]) -> None:
    """Raises: CompileError for a file that this command would not write."""
    if options.chart and not sweeps:
        raise CompileError("profile", "a chart is of a sweep", got="no --sweep", hint=EXAMPLE)
    if options.chart and not options.chart.endswith((".svg", ".png")):
        raise CompileError("profile", "a chart is a picture", got=options.chart, need="FILE.svg or FILE.png")
    if options.trace and sweeps:
        raise CompileError("profile", "a trace is of one machine", got="--sweep and --trace")


def _profiles(loaded: Sequence[programs.Loaded], options: argparse.Namespace) -> int:
    """Print the profiles, and save the trace of the only one."""
    found = [profile_of(each.compiled, each, options.values) for each in loaded]
    text = "\n\n".join(f"{each.compiled.graph.name}\n{profile}" if len(loaded) > 1 else str(profile)
                       for each, profile in zip(loaded, found, strict=True))
    data = [{"name": each.compiled.graph.name, "cycles": profile.cycles, "causes": dict(profile.causes),
             "bound": profile.bound, "bound_cycles": round(profile.least.cycles),
             "hbm_bytes": profile.hbm_bytes} if isinstance(profile, TPUProfile)
            else {"name": each.compiled.graph.name, "text": str(profile)}
            for each, profile in zip(loaded, found, strict=True)]
    if options.trace:
        only = found[0]
        if len(found) > 1 or not isinstance(only, TPUProfile):
            raise CompileError("profile", "a trace is of one program on a TPU", got=f"{len(found)} compiles "
                               f"on {options.device}", hint="FILE.py:function, --device tpu")
        only.save(options.trace)
    emit(text, data, options)
    return 0


def profile_of(compiled: Compiled, loaded: programs.Loaded, values: bool) -> object:
    """The profile of a run on the program's own arrays, where it has some; or of one without values."""
    if values and loaded.arrays is not None:
        compiled.run(list(loaded.arrays))
    return compiled.profile(values)


# ---- sweeps ----

def read_sweeps(words: Sequence[str]) -> dict[str, list[str]]:
    """["mxus=1,2,4"] -> {"mxus": ["1", "2", "4"]}

    Raises: CompileError for another form, or for more than two.
    """
    sweeps = {}
    for word in words:
        name, _, values = word.partition("=")
        if name in sweeps:
            raise CompileError("profile", "a number is swept twice", got=name, hint=f"--sweep {name}=V,V,...")
        sweeps[name] = [value for value in values.split(",") if value]
        if not sweeps[name]:
            raise CompileError("profile", "a sweep has no values", got=repr(word), need="mxus=1,2,4,8")
    if len(sweeps) > 2:
        raise CompileError("profile", "a table has two sides", got=", ".join(sweeps), need="--sweep twice")
    return sweeps


def sweep(loaded: programs.Loaded, spec: TPUSpec, sweeps: Mapping[str, list[str]],
          values: bool = True) -> Iterator[Point]:
    """Compile and run the program for every combination of values.

    Raises: CompileError for a number that no machine has, or a value that it cannot have.
    """
    machines = [(chosen, spec.changed(chosen)) for chosen in
                (dict(zip(sweeps, numbers, strict=True)) for numbers in product(*sweeps.values()))]
    progress = Progress()
    for chosen, machine in machines:
        progress.show(", ".join(f"{name}={value}" for name, value in chosen.items()))
        try:
            profile = profile_of(compile_graph(loaded.compiled.raw_graph, machine), loaded, values)
            assert isinstance(profile, TPUProfile)
            yield Point(chosen, profile)
        except CompileError as error:
            yield Point(chosen, None, f"{error.stage}: {error.what}")
    progress.clear()


def elasticity(before: Point, after: Point, name: str) -> float | None:
    """How much of the change of a number arrives as speed: 1 if twice of it is twice as fast, 0 if it is
    useless; None if that has no meaning."""
    old, new = float(before.values[name]), float(after.values[name])
    if before.profile is None or after.profile is None or old == new or min(old, new) <= 0:
        return None
    return log(before.us / after.us) / abs(log(new / old))


def verdict(points: Sequence[Point], name: str) -> str:
    """Where a number stops paying, along points that differ in it alone."""
    steps = [(before, after, elasticity(before, after, name)) for before, after in pairwise(points)]
    if all(share is None for _, _, share in steps):
        return f"{name}: no two machines to compare"
    for before, after, share in steps:
        if share is not None and share < PAYS:
            return (f"{name} stops paying at {after.values[name]}: {before.us / after.us:.2f} times as fast "
                    f"as {before.values[name]}")
    return f"{name} pays all the way"


def table(points: Sequence[Point], sweeps: Mapping[str, list[str]]) -> list[str]:
    """A line for each value of one number, and the verdict."""
    name, = sweeps
    width = max(len(name), *map(len, sweeps[name]))
    lines = [f"{name:{width}}{'cycles':>10}{'us':>9}  faster  pays  {'bound by':12} where the cycles go"]
    for before, point in zip([None, *points], points, strict=False):
        if point.profile is None:
            lines.append(f"{point.values[name]:{width}}  {point.refused}")
            continue
        share = elasticity(before, point, name) if before else None
        faster = f"{before.us / point.us:5.2f}x" if before and share is not None else ""
        pays = f"{share:4.0%}" if share is not None else ""
        parts = [f"{cause} {cycles / point.profile.cycles:.0%}" for cause, cycles in point.causes().items()]
        spent = f"{point.profile.cycles:10}{point.us:9.2f}{faster:>8}{pays:>6}  {point.bound:12}"
        lines.append(f"{point.values[name]:{width}}{spent} {', '.join(parts[:SHOWN_CAUSES])}")
    return [*lines, verdict(points, name)]


def grid(points: Sequence[Point], sweeps: Mapping[str, list[str]]) -> list[str]:
    """A cell for each pair of values, with what binds, and the verdicts along both sides."""
    (down, rows), (across, columns) = sweeps.items()
    cells = {tuple(point.values.values()): point for point in points}
    corner = f"us, bound; {down} \\ {across}"
    lines = [f"{corner:24}" + "".join(f"{column:>22}" for column in columns)]
    for row in rows:
        line = [cells[row, column] for column in columns]
        shown = [f"{cell.us:.2f}  {cell.bound:>11}" if cell.profile else "does not compile" for cell in line]
        lines.append(f"{row:24}" + "".join(f"{text:>22}" for text in shown))
    for row in rows:
        lines.append(f"{down} {row}: {verdict([cells[row, column] for column in columns], across)}")
    for column in columns:
        lines.append(f"{across} {column}: {verdict([cells[row, column] for row in rows], down)}")
    return lines + sorted({point.refused for point in points if point.refused})


def chart(points: Sequence[Point], title: str, path: Path) -> Path:
    """Draw the points as bars of where the time goes; returns the path."""
    bars = []
    for point in points:
        us = point.us / point.profile.cycles if point.profile else 0.0
        label = ", ".join(f"{name} {value}" for name, value in point.values.items())
        bars.append((label, {cause: cycles * us for cause, cycles in point.causes().items()}))
    drawing = commands.open_viz().draw_sweep(title, "us", bars)
    return write_file(path, drawing.svg() if path.suffix == ".svg" else drawing.png())
