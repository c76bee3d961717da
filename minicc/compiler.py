"""From a graph to something that runs: the passes in order, as data; the cache; what a compile hands out.

    compiled = compile_graph(graph, device="tpu:v5e")
    compiled.run([x, w])       ->  [y]
    compiled.graph   .kernels   .pipelined   .program   .records        every level, to print, draw and run

Goes in: a graph and a device. Comes out: a Compiled. `PASSES` is the whole compiler on one screen.
Invariants: programs are cached by structure, device and slots, never by user lines or data (structure.py);
a pass is a function from a level to a level and gets its slots as arguments (slots.py); with nobody
listening, no decision is logged. XLA keeps the same order: HLO passes, fusion, layout and buffer
assignment, codegen per backend. Read next: graph/simplify.py, kernel/fuse.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from minicc.devices import Device, find
from minicc.errors import CompileError
from minicc.gpu.program import GPUProgram, lower_gpu
from minicc.graph.evaluate import check_inputs
from minicc.graph.ir import Graph, Node
from minicc.graph.precision import PRECISIONS, reduce_precision
from minicc.graph.simplify import simplify
from minicc.kernel.donate import donate
from minicc.kernel.explain import explain
from minicc.kernel.fuse import fuse
from minicc.kernel.ir import Kernel, Module
from minicc.kernel.legalize import legalize
from minicc.kernel.memory import MemoryPlan, Role, plan
from minicc.kernel.memory_map import MemoryMap
from minicc.kernel.pipeline import PipelinedKernel, pipeline
from minicc.kernel.positions import view_source
from minicc.kernel.recompute import fit
from minicc.kernel.tile import tile
from minicc.kernel.tune import tune as tune_tiles
from minicc.kernel.tune_cache import user_cache
from minicc.report import GPUProfile, TPUProfile
from minicc.slots import current_slots, in_force, mark_used, run_pass
from minicc.structure import (
    Lines,
    numbered,
    rebound_graph,
    rebound_kernel,
    rebound_program,
    rebound_records,
    speaking_of,
    structure,
)
from minicc.tpu.bound import bound
from minicc.tpu.emulator import run as run_tpu
from minicc.tpu.isa import Program
from minicc.tpu.lower import lower
from minicc.tpu.machine import TPUSpec
from minicc.tpu.registers import allocate
from minicc.tpu.schedule import schedule
from minicc.trace import Event, PassRecord, Step

MODES = ("vector", "lane")  # how a gpu's program runs


@dataclass(frozen=True)
class Options:
    """What may be traded for speed. fast_math: simplify may change the last bits, and takes nan and
    infinities for absent. precision: of the factors of f32 products, one of PRECISIONS. tune: each kernel is
    measured in its likeliest tiles, which takes time now. donated: the numbers of inputs that may be lost.
    memory_limit: bytes of main memory that the program may take."""

    fast_math: bool = False
    precision: str = "f32"
    tune: bool = False
    donated: tuple[int, ...] = ()
    memory_limit: int | None = None

    def __post_init__(self) -> None:
        limit = self.memory_limit
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
            raise CompileError("compile", "the memory limit is not a number of bytes", got=repr(limit),
                               need="an integer, 1 or more")
        if self.precision not in PRECISIONS:
            raise CompileError("compile", "there is no such precision", got=repr(self.precision),
                               need=" or ".join(PRECISIONS))


@dataclass
class Levels:
    """Every level of one program, filled in from top to bottom as the passes run."""

    device: Device
    graph: Graph
    module: Module = Module("", (), (), ())
    plan: MemoryPlan = MemoryPlan({}, 0, 0)
    pipelined: tuple[PipelinedKernel, ...] = ()
    assembly: Any = None
    scheduled: Any = None
    program: Any = None  # a tpu's Program, a gpu's GPUProgram
    records: list[PassRecord] = field(default_factory=list)
    options: Options = Options()
    slots: tuple[tuple[str, Callable], ...] = ()  # the learner's passes that were in force

    @property
    def donated(self) -> tuple[str, ...]:
        """The inputs that may be lost."""
        return tuple(self.module.inputs[number][0] for number in self.options.donated)

    def each_kernel(self, change: Callable[[Kernel], Any]) -> Module:
        """The module with `change` applied to each kernel."""
        return replace(self.module, kernels=tuple(map(change, self.module.kernels)))

    def resident(self, kernel: Kernel) -> tuple[str, ...]:
        """The operands of a kernel whose buffers it uses in place."""
        return tuple(op.name for op in kernel.operands if self.plan.in_place(op.buffer))


class Pass(NamedTuple):
    """One line of the compiler: its name (and slot), the function, the level it fills in, how it is called.

    call(run, at): `run` calls the function or what is in its slot; `at` is the Levels so far. only: a kind of
    device. asked: the option without which it does not run.
    """

    name: str
    function: Callable
    fills: str
    call: Callable[[Callable, Levels], Any]
    only: str = ""
    asked: str = ""

    def runs(self, device: Device, options: Options) -> bool:
        """Whether it is part of compiling for this device with these options."""
        return device.name.startswith(self.only) and (not self.asked or getattr(options, self.asked))


PASSES: tuple[Pass, ...] = (
    Pass("precision", reduce_precision, "graph", lambda run, at: run(at.graph, at.options.precision)),
    Pass("simplify", simplify, "graph", lambda run, at: run(at.graph, fast_math=at.options.fast_math)),
    Pass("legalize", legalize, "graph", lambda run, at: run(at.graph)),
    Pass("fuse", fuse, "module", lambda run, at: run(at.graph, at.device.target)),
    Pass("donate", donate, "module", lambda run, at: run(at.module, at.donated), asked="donated"),
    Pass("tile", tile, "module", lambda run, at: at.each_kernel(lambda k: run(k, at.device.target))),
    Pass("tune", tune_tiles, "module",
         lambda run, at: run(at.module, at.device.target, repr(at.device.spec), partial(measure, at.device),
                             cache=None if at.slots else user_cache()), "tpu", "tune"),
    Pass("fit", fit, "module",
         lambda run, at: run(at.module, at.device.target, at.options.memory_limit,
                             partial(run_pass, "plan", plan)), asked="memory_limit"),
    Pass("plan", plan, "plan", lambda run, at: run(at.module, at.device.target)),
    Pass("pipeline", pipeline, "pipelined",
         lambda run, at: tuple(run(k, resident=at.resident(k)) for k in at.module.kernels), "tpu"),
    Pass("lower", lower, "assembly",
         lambda run, at: run(at.pipelined, at.module, at.plan, at.device.spec), "tpu"),
    Pass("schedule", schedule, "scheduled", lambda run, at: run(at.assembly, at.device.spec), "tpu"),
    Pass("allocate", allocate, "program", lambda run, at: run(at.scheduled, at.device.spec), "tpu"),
    Pass("lower_gpu", lower_gpu, "program", lambda run, at: run(at.module, at.device.spec), "gpu"),
)


def run_passes(graph: Graph, device: Device, logging: bool = False, options: Options = Options(),
               until: str = "") -> Levels:
    """Run every pass of the device over a graph. logging: keep each pass's decisions in its record. until:
    the last pass to run."""
    levels = Levels(device, graph, options=options, slots=current_slots())
    before: object = graph
    for name, function, fills, call, *_ in (line for line in PASSES if line.runs(device, options)):
        log: list[Step] | None = [] if logging else None
        started = perf_counter()
        after = call(partial(run_pass, name, function, log=log), levels)
        setattr(levels, fills, after)
        levels.records.append(PassRecord(name, before, after, tuple(log or ()), perf_counter() - started))
        before = after
        if name == until:
            break
    return levels


def measure(device: Device, module: Module, inputs: Mapping[str, np.ndarray]) -> tuple[int, list[np.ndarray]]:
    """The cycles that tiled kernels take on an emulated TPU, and their outputs."""
    levels = Levels(device, Graph(module.name, (), ()), module)
    rest = PASSES[[line.name for line in PASSES].index("plan"):]
    for name, function, fills, call, *_ in (line for line in rest if line.runs(device, levels.options)):
        setattr(levels, fills, call(partial(run_pass, name, function), levels))
    report = run_tpu(levels.program, {**module.constants, **inputs})
    return report.cycles, [report.outputs[name] for name, _ in module.outputs]


@dataclass(frozen=True)
class Compiled:
    """A program, with the lines of the graph that asked for it. mode: "vector" or "lane", on a gpu."""

    raw_graph: Graph
    device: str
    mode: str
    levels: Levels = field(repr=False)
    lines: Lines = field(repr=False)
    reports: list = field(default_factory=list, repr=False, compare=False)  # what the last run counted

    @cached_property
    def graph(self) -> Graph:
        """The simplified graph, with the lines of the graph that was handed in."""
        return replace(rebound_graph(self.levels.graph, self.lines), name=self.raw_graph.name)

    @property
    def module(self) -> Module:
        """The tiled kernels, as the cache shares them."""
        return self.levels.module

    @cached_property
    def kernels(self) -> Module:
        """The tiled kernels, with the user's lines."""
        module = self.levels.each_kernel(lambda kernel: rebound_kernel(kernel, self.lines))
        return replace(module, name=self.raw_graph.name)

    @property
    def plan(self) -> MemoryPlan:
        """Where each buffer lives."""
        return self.levels.plan

    @property
    def memory(self) -> MemoryMap:
        """The plan to look at: each memory's buffers, from when to when they live, and the peak."""
        return MemoryMap(self.kernels, self.plan)

    @cached_property
    def pipelined(self) -> tuple[PipelinedKernel, ...]:
        """The kernels with their copies made explicit; empty on a gpu."""
        return tuple(replace(p, kernel=rebound_kernel(p.kernel, self.lines)) for p in self.levels.pipelined)

    @cached_property
    def program(self) -> Program | GPUProgram:
        """What the machine runs: bundles for a tpu, SIMT kernels for a gpu."""
        program = self.levels.program
        if isinstance(program, Program):
            return replace(rebound_program(program, self.lines), name=self.raw_graph.name)
        return replace(program, module=self.kernels)

    @property
    def records(self) -> tuple[PassRecord, ...]:
        """What each pass did and how long it took."""
        return tuple(self.levels.records)

    def run(self, arrays: Sequence[np.ndarray], checks: bool = True) -> list[np.ndarray]:
        """The outputs for these inputs, in the graph's order. checks: whether a tpu looks for races."""
        started = perf_counter()
        with speaking_of(self.lines):
            checked = check_inputs(self.raw_graph, arrays)
            buffers = {name: checked[value.node] for (name, _), value
                       in zip(self.module.inputs, self.raw_graph.inputs, strict=True)}
            buffers |= self.module.constants
            shared = set(buffers)  # with the caller, or with other runs
            try:
                self._execute(buffers, checks)
            except MemoryError as error:
                raise CompileError("run", "this computer's own memory is too small", got=error) from None
        for hook in on_run:
            hook(self, perf_counter() - started)
        outputs = []
        for name, type in self.module.outputs:
            array = np.asarray(buffers[name].reshape(type.shape), type.dtype.numpy)
            outputs.append(array.copy() if name in shared else array)
            shared.add(name)
        return outputs

    def _execute(self, buffers: dict[str, np.ndarray], checks: bool) -> None:
        """Fill in the outputs."""
        self.reports.clear()
        if not self.module.kernels:
            return  # every output is an input or a constant
        if isinstance(self.levels.program, Program):
            self.reports.append(run_tpu(self.levels.program, buffers, checks=checks))
            buffers |= self.reports[0].outputs
        elif self.mode == "lane":
            self.reports.extend(self.levels.program.run_lane(buffers))
        else:
            self.levels.program.run(buffers)

    def profile(self, values: bool = True) -> TPUProfile | GPUProfile:
        """Where the cycles of the last run went, or those of a run on zeros if there was none.

        On a gpu it is lane mode that counts. values=False: the cycles of a tpu that computes nothing, for
        programs that are too large to run here.
        Raises: CompileError if there is nothing to count, or if without values nobody knows what would run.
        """
        if not self.module.kernels:
            raise CompileError("profile", "there is nothing to count", got="a program without kernels",
                               hint="its outputs are inputs or constants")
        spec = self.levels.device.spec
        if not values and not isinstance(spec, TPUSpec):
            raise CompileError("profile", "a gpu counts what runs, values and all", got="values=False",
                               need="a tpu", hint='device="tpu"')
        if values and not self.reports:
            counting = replace(self, mode="lane")  # its reports are the same list
            counting.run([np.zeros(value.shape, value.dtype.numpy) for value in self.raw_graph.inputs])
        if isinstance(spec, TPUSpec):
            moved, updated = self._crossing()
            with speaking_of(self.lines):
                report = self.reports[0] if values else run_tpu(self.levels.program, {}, values=False)
            return TPUProfile(spec, report, moved, bound(self.graph, spec, updated), self.events)
        return GPUProfile(self.device, tuple(self.reports))

    def _crossing(self) -> tuple[int, set[Node]]:
        """Bytes of inputs and outputs, but for what is changed in place; and the nodes of that."""
        named = (*self.module.inputs, *self.module.outputs)
        values = (*self.graph.inputs, *self.graph.outputs)
        updated = [self.plan.placements[name].role is Role.UPDATED for name, _ in named]
        return (sum(type.bytes for (_, type), stays in zip(named, updated, strict=True) if not stays),
                {view_source(value).node for value, stays in zip(values, updated, strict=True) if stays})

    def events(self) -> tuple[Event, ...]:
        """What a tpu does from cycle to cycle, in a run on zeros."""
        zeros = {name: np.zeros(type.shape, type.dtype.numpy) for name, type in self.module.inputs}
        program = self.program
        assert isinstance(program, Program)
        return run_tpu(program, {**zeros, **self.module.constants}, trace=True).events

    def explain(self, kernel: str = "") -> str:
        """Why these kernels, tiles and places, and what they were weighed against. kernel: the one to
        tell all of."""
        device = self.levels.device
        with in_force(self.levels.slots):
            last = "schedule" if self.levels.scheduled is not None else "plan"
            levels = run_passes(numbered(self.raw_graph), device, True, self.levels.options, until=last)
        return explain(self.kernels, self.plan, device.target, rebound_records(levels.records, self.lines),
                       kernel)


on_compile: list[Callable[[Compiled], Any]] = []  # called with each program newly compiled
on_run: list[Callable[[Compiled, float], Any]] = []  # called after each run, with the seconds it took
_cache: dict[tuple, Levels] = {}


def compile_graph(graph: Graph, device: Any = None, mode: str = "vector",
                  options: Options = Options()) -> Compiled:
    """The program of a graph on a device, compiled or remembered.

    Raises: CompileError (or a child of it) naming the user's line, whatever pass it comes from.
    """
    where = find(device)
    if mode not in MODES or (mode == "lane" and not where.name.startswith("gpu")):
        raise CompileError("device", f"{where.name} has no such mode", got=repr(mode),
                           need="vector or, on a gpu, lane")
    if options.tune and not where.name.startswith("tpu"):
        raise CompileError("tune", "tiles are measured in a TPU's cycles", got=where.name, need="a tpu",
                           hint='device="tpu"; on a gpu, profile() counts what lane mode does')
    key = (structure(graph), repr(where), options, current_slots())
    lines = tuple(graph.lines(node) for node in graph.nodes())
    fresh = key not in _cache
    if fresh:
        with speaking_of(lines):
            _cache[key] = run_passes(numbered(graph), where, bool(on_compile), options)
    mark_used(tuple(record.name for record in _cache[key].records))
    compiled = Compiled(graph, where.name, mode, _cache[key], lines)
    for hook in on_compile if fresh else ():
        hook(compiled)
    return compiled
