"""Drawings of every level: imported as `minicc.viz`, and only when something asks for a picture.

    draw(x)  ->  Drawing        x: a Graph, Module, Kernel, PipelinedKernel, MemoryMap, or the events of a run
    draw(x).svg(), draw(x).png()

A Drawing also shows itself in a notebook. Read next: render.py.
"""

from __future__ import annotations

from collections.abc import Sequence

try:
    import graphviz  # noqa: F401
except ModuleNotFoundError as missing:
    need = "minicc.viz draws with one more package: python -m pip install 'minicc-edu[dot]'"
    raise ModuleNotFoundError(need, name="graphviz") from missing

from minicc.errors import CompileError
from minicc.graph.ir import Graph
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.memory_map import MemoryMap
from minicc.kernel.pipeline import PipelinedKernel
from minicc.trace import Event
from minicc.viz.graph import draw_graph
from minicc.viz.kernels import draw_kernels
from minicc.viz.render import Drawing
from minicc.viz.sweep import draw_ladder, draw_sweep
from minicc.viz.timeline import draw_events, draw_memory, draw_pipeline

__all__ = ["Drawing", "draw", "draw_events", "draw_graph", "draw_kernels", "draw_ladder", "draw_memory",
           "draw_pipeline", "draw_sweep"]


def draw(level: object) -> Drawing:
    """A picture of any level of the compiler.

    Raises: CompileError for something that is not a level.
    """
    match level:
        case Graph():
            return draw_graph(level)
        case Module():
            return draw_kernels(level)
        case Kernel():
            ins, outs = (tuple((operand.buffer, operand.type) for operand in side)
                         for side in (level.inputs, level.outputs))
            return draw_kernels(Module(level.name, (level,), ins, outs))
        case PipelinedKernel():
            return draw_pipeline(level)
        case MemoryMap():
            return draw_memory(level)
        case Sequence() if level and all(isinstance(item, Event) for item in level):
            return draw_events(level, "events")
    need = "a Graph, Module, Kernel, PipelinedKernel, MemoryMap or a list of Events"
    raise CompileError("draw", "there is no picture of this", got=type(level).__name__, need=need,
                       hint="c.graph, c.kernels or c.pipelined[0] of a compiled function c")
