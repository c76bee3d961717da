"""Draws time from left to right: one row per track, one bar per thing that happens on it.

    draw_pipeline(pipelined)          what a pipeline means: copies beside bodies, in steps
    draw_events(events, "matmul")     what a machine did: its own events, in cycles
    draw_memory(compiled.memory)      which buffer is live from when to when, in kernels

Goes in: a PipelinedKernel, events of an emulator, or a MemoryMap. Comes out: a Drawing whose boxes are placed
here, not laid out by dot. Invariants: time has one scale over all rows; in the pipeline picture a darker bar
is the second buffer of two, so double buffering shows as alternating shades; bars narrower than a hair are
merged with their neighbours. Profilers (Perfetto, the TensorBoard profiler) show the second kind.
Read next: the pipeline level, kernel/pipeline.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

import graphviz

from minicc.kernel.memory import Space
from minicc.kernel.memory_map import MemoryMap
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb
from minicc.trace import Event
from minicc.viz.label import bytes_text
from minicc.viz.palette import FAINT, INK, PAPER, ROLES, RULE, SANS, SOFT
from minicc.viz.render import Drawing

POINTS = 72.0  # per inch
ROW, BAR = 30.0, 20.0  # heights, in points
RIGHT = 640.0  # the time axis's width
NAME_CHARACTER, BAR_CHARACTER = 6.0, 5.0  # a character's width in row names and in bars, generously
SHOWN_STEPS = 10
HAIR = 1.2  # points; a narrower gap or bar cannot be seen
MOST_BARS = 200  # in one row


@dataclass(frozen=True)
class Span:
    """One bar: from when to when, in the unit of its timeline, and in the colour of which role."""

    start: float
    end: float
    text: str
    role: str


def draw_rows(name: str, title: str, unit: str, rows: Sequence[tuple[str, Sequence[Span]]]) -> Drawing:
    """A timeline of rows (name, bars), with ticks along its foot."""
    spans = [span for _, row in rows for span in row]
    begin = min((span.start for span in spans), default=0.0)
    length = max((span.end for span in spans), default=1.0) - begin or 1.0
    scale = RIGHT / length
    left = NAME_CHARACTER * max((len(label) for label, _ in rows), default=0)
    canvas = graphviz.Graph(name)
    canvas.attr(bgcolor=PAPER, pad="0.15", splines="line")
    canvas.attr("node", shape="box", fixedsize="true", fontname=SANS, fontsize="9", fontcolor=INK,
                style="filled", penwidth="0.7")
    _ticks(canvas, begin, length, len(rows))
    _text(canvas, "unit", unit + r"\r", (-left / 2 - 6, -9.0), left, 8, FAINT)
    _text(canvas, "title", title, (RIGHT / 2, ROW * (len(rows) + 0.35)), RIGHT, 12, INK)
    for number, (label, row) in enumerate(rows):
        middle = ROW * (len(rows) - 1 - number) + ROW / 2
        _text(canvas, f"row {number}", label + r"\r", (-left / 2 - 6, middle), left, 10, SOFT)
        for place, span in enumerate(_merged(row, HAIR / scale)):
            width = max((span.end - span.start) * scale, HAIR)
            centre = (span.start + span.end) / 2 - begin
            tint, border = ROLES[span.role]
            fits = len(span.text) * BAR_CHARACTER <= width
            canvas.node(f"{number}.{place}", label=span.text if fits else "", tooltip=span.text,
                        pos=_at(centre * scale, middle), width=_inches(width), height=_inches(BAR),
                        fillcolor=tint, color=border)
    return Drawing(name, canvas.source, pinned=True)


def _ticks(canvas: graphviz.Graph, begin: float, length: float, rows: int) -> None:
    step = _tick_step(length)
    first = ceil(begin / step)
    for number in range(first, int((begin + length) / step) + 1):
        x = (number * step - begin) / length * RIGHT
        top, foot = (f"tick {end} {number}" for end in "ab")
        for ident, y in ((top, ROW * rows), (foot, 0.0)):
            canvas.node(ident, label="", shape="point", width="0.005", color=RULE, pos=_at(x, y))
        canvas.edge(top, foot, color=RULE, penwidth="0.7")
        _text(canvas, f"tick {number}", f"{number * step:,g}", (x, -9.0), 60, 8, FAINT)


def _tick_step(length: float) -> float:
    """A round step of 1, 2 or 5 times a power of ten, at least one, giving about ten ticks."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if length / (step * factor) <= 14:
                return step * factor
        step *= 10


def _text(
    canvas: graphviz.Graph, ident: str, text: str, at: tuple[float, float], width: float, points: int,
    colour: str,
) -> None:
    canvas.node(ident, label=text, shape="plaintext", style="", pos=_at(*at), width=_inches(width),
                height="0.2", fontsize=str(points), fontcolor=colour)


def _at(x: float, y: float) -> str:
    return f"{x:.2f},{y:.2f}!"


def _inches(points: float) -> str:
    return f"{points / POINTS:.4f}"


def _merged(row: Iterable[Span], hair: float) -> list[Span]:
    """The bars in order of time, neighbours of one kind as one bar where they are narrow.

    A row of more bars than can be told apart is cut into hairs, each in the colour of what filled most of it.
    """
    bars = sorted(row, key=lambda span: (span.start, span.end))
    joined = _join(bars, hair)
    return joined if len(joined) <= MOST_BARS else _join(_hairs(joined, 2 * hair), 2 * hair)


def _join(bars: Iterable[Span], hair: float) -> list[Span]:
    out: list[Span] = []
    for span in bars:
        before = out[-1] if out else span
        narrow = span.end - span.start < 4 * hair and span.start - before.end < hair
        if out and narrow and span.role == before.role:
            longer = max(before, span, key=lambda bar: bar.end - bar.start)
            out[-1] = replace(before, end=max(before.end, span.end), text=longer.text)
        else:
            out.append(span)
    return out


def _hairs(bars: Sequence[Span], width: float) -> Iterator[Span]:
    shares: dict[int, dict[tuple[str, str], float]] = {}  # hair -> (text, role) -> how much of it
    for span in bars:
        for hair in range(int(span.start // width), int(span.end // width) + 1):
            share = min(span.end, (hair + 1) * width) - max(span.start, hair * width)
            kinds = shares.setdefault(hair, {})
            kinds[span.text, span.role] = kinds.get((span.text, span.role), 0.0) + share
    for hair, kinds in sorted(shares.items()):
        if sum(kinds.values()) > width / 8:
            yield Span(hair * width, (hair + 1) * width, *max(kinds, key=lambda kind: kinds[kind]))


# ---- the pipeline level ----

def draw_pipeline(
    pipelined: PipelinedKernel, name: str = "pipeline", shown_steps: int = SHOWN_STEPS
) -> Drawing:
    """The first steps of a pipeline, where a copy of a block takes one unit of time, and so does a body."""
    kernel = pipelined.kernel
    spans = _play(pipelined, min(shown_steps, kernel.steps))
    rows = []
    for operand in kernel.inputs + kernel.outputs:
        depth = pipelined.depths.get(operand.name)
        way = "in" if operand in kernel.inputs else "out"
        if depth is not None:
            buffers = f"{depth} buffer{'s' if depth > 1 else ''}"
            rows.append((f"copy {way} {operand.name}, {buffers}", spans[operand.name]))
    place = sum(operand.name in pipelined.depths for operand in kernel.inputs)
    rows.insert(place, ("body", spans[""]))
    cut = f"the first {shown_steps} of {kernel.steps} steps" if kernel.steps > shown_steps else "every step"
    title = f"{kernel.name}: {cut}; a copy or a body is one unit of time"
    return draw_rows(name, title, "time", rows)


def _play(pipelined: PipelinedKernel, steps: int) -> dict[str, list[Span]]:
    """Operand ("" for the body) -> its bars, when the first steps run, a unit for each copy and body."""
    kernel = pipelined.kernel
    inputs = {operand.name for operand in kernel.inputs}
    spans: dict[str, list[Span]] = {operand.name: [] for operand in kernel.operands} | {"": []}
    points = [point for _, point in zip(range(steps + pipelined.ahead), kernel.grid(), strict=False)]
    waited = dict.fromkeys(spans, 0)
    now = 0.0

    def runs(command: Command, step: int) -> bool:
        place = step + max(command.ahead, 0)
        if place >= len(points):
            return False
        edges = {axis.name: axis.steps - 1 for axis in kernel.axes}
        return (all(points[place][axis] == 0 for axis in command.first)
                and all(points[place][axis] == edges[axis] for axis in command.last))

    script = [(command, 0) for command in pipelined.prologue]
    script += [(command, step) for step in range(steps) for command in pipelined.steady]
    if steps == kernel.steps:
        script += [(command, steps - 1) for command in pipelined.epilogue]
    for command, step in script:
        row = spans[command.operand]
        if not runs(command, step):
            continue
        if command.verb is Verb.BODY:
            row.append(Span(now, now + 1, str(step), "body"))
            now += 1
        elif command.verb is Verb.START:
            begin = max(now, row[-1].end) if row else now
            way = "copy_in" if command.operand in inputs else "copy_out"
            other = "_other" if len(row) % pipelined.depths[command.operand] % 2 else ""
            row.append(Span(begin, begin + 1, str(len(row)), way + other))
        else:
            which = waited[command.operand] if command.operand in inputs else len(row) + command.ahead
            waited[command.operand] += 1
            if 0 <= which < len(row):
                now = max(now, row[which].end)
    return spans


# ---- where buffers lie ----

def draw_memory(memory: MemoryMap, name: str = "memory") -> Drawing:
    """The buffers of each memory from its first byte on, and the kernels during which they are live."""
    rows, peaks = [], []
    for space in Space:
        places = memory.buffers(space)
        peaks += [f"{space.value} {bytes_text(memory.peak_bytes(space))}"] if places else []
        for place in places:
            role = place.role.value.replace("constant", "input").replace("updated", "output")
            role = "vmem" if space is Space.VMEM else role
            last = min(place.last, len(memory.module.kernels) - 1)
            span = Span(place.first, last + 1, bytes_text(place.bytes), role)
            rows.append((f"{place.buffer} at {place.offset_bytes:,} of {space.value}", [span]))
    title = f"{memory.module.name}: at most {', '.join(peaks)}"
    return draw_rows(name, title, "kernels", rows)


# ---- what a machine did ----

# how the name of an event, or of its track, begins -> its colour
EVENT_ROLES = (
    ("mxu wait", "scalar"), ("weights", "input"), ("mxu", "body"), ("vector", "vector"),
    ("copy out", "copy_out"), ("copy", "copy_in"), ("dma", "copy_in"),
)


def draw_events(events: Sequence[Event], title: str, name: str = "timeline") -> Drawing:
    """The events of one run on an emulated machine, in cycles; each buffer's copies in a row of their own."""
    rows: dict[str, list[Span]] = {}
    for event in events:
        track = _copy_row(event.name) if event.track == "dma" else event.track
        kind = event.name if event.track == "core" else track.split()[-1] if "mxu" in track else track
        role = next((role for start, role in EVENT_ROLES if kind.startswith(start)), "scalar")
        waits = event.track == "core" and event.name.startswith("dma ")
        text = f"wait {event.name.rpartition('.')[2]}" if waits else event.name
        rows.setdefault(track, []).append(Span(event.start_cycles, event.end_cycles, text, role))
    return draw_rows(name, title, "cycles", sorted(rows.items()))


def _copy_row(name: str) -> str:
    """The row of a copy "x -> kernel.x" or "kernel.y -> y", by its buffer in HBM.

    >>> _copy_row("x -> dot.x"), _copy_row("dot.y -> y")
    ('copy in x', 'copy out y')
    """
    source, _, target = name.partition(" -> ")
    return f"copy out {target}" if "." in source else f"copy in {source}"
