"""`minicc bench`: known programs, compiled and run, beside numpy on the same numbers in the same process.

    $ minicc bench --only f
    workload     kernels  compile ms  run ms  numpy ms   ratio    error
    f_mlp_train       20       101.2    8.31      6.04   1.38x  2.4e-07

Goes in: the programs of workloads.py and a device. Comes out: a row per program. Times are those of this
CPU, which emulates the machine: a run of minicc and one of numpy take turns, and medians are compared. On a
TPU the cycles are the machine's own, beside the least that any program could take there (tpu/bound.py);
`checks` says how many times as long the emulator takes because it looks for races and garbage. Invariant:
every output is compared with numpy in float64, and a row that is off is a failure, however fast. MLPerf too
sets a quality to reach before a time counts. Read next: workloads.py, and oracles.py for `--oracles`, which
holds the machines to published numbers; ladder.py for `--ladder`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from operator import methodcaller
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import numpy as np

from minicc.errors import CompileError
from minicc.frontend import convolution, joining, ops
from minicc.frontend.autograd import backward
from minicc.frontend.jit import CompiledFunction
from minicc.frontend.jit import compile as compile_function
from minicc.frontend.primitives import as_tensor
from minicc.frontend.scope import Trace, current
from minicc.frontend.tensor import Tensor, realise
from minicc.graph.attributes import nearest
from minicc.graph.precision import PRECISIONS
from minicc.report import TPUProfile
from minicc.tools.by_hand import by_hand
from minicc.tools.ladder import PROGRAMS, Step, climb
from minicc.tools.ladder import draw as draw_ladder
from minicc.tools.ladder import table as ladder_table
from minicc.tools.oracles import TITLES, oracle_rows
from minicc.tools.output import Progress, emit
from minicc.tools.workloads import TINY, WORKLOADS, Shared, Workload

EXAMPLE = "minicc bench --only g_gpt --repeat 9"
# precision -> how far off an element may be, relative to the largest of its output; in bf16, sums near zero
# change their sign, and a relu's gradient with it
TOLERANCES = {"f32": 3e-6, "bf16": 1e-1}
COLUMNS = {"workload": "{}", "kernels": "{}", "compile_ms": "{:.1f}", "run_ms": "{:.3f}",
           "numpy_ms": "{:.3f}", "ratio": "{:.2f}x", "error": "{:.1e}", "cycles": "{}",
           "bound_cycles": "{}", "hbm_bytes": "{}", "checks": "{:.2f}x"}


class Adapter(Shared):
    """minicc by the vocabulary of the workloads: F = Adapter; run(F, params, data) takes and gives Tensors.

    tensor makes a Tensor of an array, force computes a list of them at once, to_numpy gives the array back.
    """

    name = "minicc"
    tensor = Tensor
    exp, log, sqrt, tanh, relu, sigmoid = map(methodcaller, ("exp", "log", "sqrt", "tanh", "relu", "sigmoid"))
    concat = staticmethod(joining.concatenate)
    where = staticmethod(lambda condition, x, y: ops.where(condition != 0, x, y))
    repeat_heads = staticmethod(lambda x, times: joining.repeat(x, times, 1))
    conv2d = staticmethod(lambda x, w: convolution.conv2d(x, w, padding=1))

    @staticmethod
    def grad(loss: Tensor, params: list[Tensor]) -> list[Tensor]:
        """The gradients of a loss that was made of these tensors."""
        scope = cast(Trace, current())
        return backward(scope, {scope.lift(loss): as_tensor(1.0)}, [scope.lift(p) for p in params])

    @staticmethod
    def force(outputs: list[Tensor]) -> list[Tensor]:
        """The outputs, computed."""
        realise(outputs)
        return outputs

    @staticmethod
    def to_numpy(x: Tensor) -> np.ndarray:
        """Its data."""
        return x.numpy()


def measure(workload: Workload, device: str | None = None, repeat: int = 5,
            precision: str = "f32") -> dict[str, Any]:
    """One row of the bench: what COLUMNS names, and more. Units: _ms of this CPU, _cycles of the machine.

    precision: of the factors of products, one of PRECISIONS.
    """
    params, data = workload.make(np.random.default_rng(0), **workload.sizes)
    tensors = [[Tensor(array) for array in arrays] for arrays in (params, data)]
    rival, ours = by_hand(workload), partial(workload.run, Adapter)
    started = perf_counter()
    program = compile_function(ours, *tensors, device=device, precision=precision)
    compile_ms = _since(started)
    unchecked = partial(program.run, [x.numpy() for group in tensors for x in group], checks=False)
    on_tpu = program.device.startswith("tpu")
    runs: tuple[list[float], ...] = [], [], []
    for _ in range(repeat):
        for times, run in zip(runs, (partial(program, *tensors), partial(rival, params, data), unchecked)
                              [:3 if on_tpu else 2], strict=False):
            started = perf_counter()
            run()
            times.append(_since(started))
    run_ms, numpy_ms = map(median, runs[:2])
    want = rival(*([array.astype(np.float64) for array in arrays] for arrays in (params, data)))
    off = [np.abs(ours.numpy() - right) for ours, right in zip(program(*tensors), want, strict=True)]
    scaled = [wrong.max() / np.abs(right).max() for wrong, right in zip(off, want, strict=True)]
    return {"device": program.device, "kernels": len(program.module.kernels), "compile_ms": compile_ms,
            "run_ms": run_ms, "numpy_ms": numpy_ms, "ratio": run_ms / numpy_ms,
            "max_abs_err": float(max(map(np.max, off))), "error": float(max(scaled)),
            "right": bool(max(scaled) <= TOLERANCES[precision]),
            **(_machine_counts(program, run_ms) | {"checks": min(runs[0]) / min(runs[2])} if on_tpu else {})}


def _since(started: float) -> float:
    return (perf_counter() - started) * 1e3


def _machine_counts(program: CompiledFunction, run_ms: float) -> dict[str, Any]:
    """What the emulated TPU counted in the last run, and the least that any program could take.

    A run there is an emulation, so that emulate_ms is run_ms by its right name.
    """
    profile: TPUProfile = program.profile()
    return {"cycles": profile.cycles, "bound_cycles": round(profile.least.cycles),
            "hbm_bytes": profile.hbm_bytes, "emulate_ms": run_ms}


# -- the command -----------------------------------------------------------------------------------------


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    names = f"the programs whose names begin so, of {', '.join(WORKLOADS)}"
    parser.add_argument("--only", default="", metavar="NAME", help=names)
    parser.add_argument("--tiny", action="store_true", help="small ones, since a TPU is emulated slowly")
    parser.add_argument("--oracles", action="store_true", help="instead: published numbers beside ours, all "
                        "or --only a, b, c, d or e")
    parser.add_argument("--ladder", metavar="TPU", help="instead: the cycles there, one idea of the compiler "
                        "added after the other")
    parser.add_argument("--chart", metavar="FILE", help="draw the ladder of one program, as .svg or .png")
    parser.add_argument("--precision", choices=PRECISIONS, default="f32", help="of the factors of products; "
                        "bf16 takes one pass of a matrix unit, not six")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="runs of each (default 5)")


def run(options: argparse.Namespace) -> int:
    """Measure the programs and print the table; 1 if an answer is off."""
    if options.repeat < 1:
        raise CompileError("bench", "there is nothing to measure", got=f"--repeat {options.repeat}",
                           need="1 or more")
    if options.oracles:
        return _oracles(options)
    if options.ladder:
        return _ladders(options)
    chosen, progress, rows = _chosen(options), Progress(), []
    for name, workload in chosen.items():
        progress.show(name)
        rows.append({"workload": name, **measure(workload, options.device, options.repeat,
                                                options.precision)})
    progress.clear()
    wrong = [row["workload"] for row in rows if not row["right"]]
    said = f"emulated {rows[0]['device']}, {options.precision} products; ms on this CPU, medians of "
    lines = [f"{said}{options.repeat}", *_table(rows)]
    emit("\n".join([*lines, *(f"WRONG: {name}" for name in wrong)]), rows, options)
    return 1 if wrong else 0


def _oracles(options: argparse.Namespace) -> int:
    """Print published numbers beside ours; 1 if one is further off than it may be."""
    progress, rows = Progress(), []
    for row in oracle_rows(lambda name: measure(WORKLOADS[name], "tpu:v5e", 1)["cycles"], options.only):
        rows.append(row)
        progress.show(row.what)
    progress.clear()
    if not rows:
        raise CompileError("bench", "there is no such oracle", got=options.only, need="a, b, c, d or e")
    data = [{**asdict(row), "error": row.error, "right": row.right} for row in rows]
    emit("\n".join([TITLES, *map(str, rows)]), data, options)
    return 0 if all(row.right for row in rows) else 1


def _ladders(options: argparse.Namespace) -> int:
    """Print the ladder of each program, and draw the only one; 1 if a rung's answer is off."""
    chosen, progress, ladders = _chosen(options), Progress(), []
    if not (options.only or options.tiny):
        chosen = {name: chosen[name] for name in PROGRAMS}
    if options.chart and (len(chosen) > 1 or not options.chart.endswith((".svg", ".png"))):
        raise CompileError("bench", "a chart is a picture of one ladder", got=options.chart,
                           need="FILE.svg or FILE.png, and --only NAME")
    for name, workload in chosen.items():
        steps: list[Step] = []
        for step in climb(name, workload, Adapter, options.ladder, options.precision):
            progress.show(f"{name}, {step.rung}")
            steps.append(step)
        ladders.append(steps)
    progress.clear()
    lines = ["\n".join(ladder_table(steps)) for steps in ladders]
    if options.chart:
        lines.append(str(draw_ladder(ladders[0], Path(options.chart))))
    emit("\n\n".join(lines), [step.row() for steps in ladders for step in steps], options)
    return 0 if all(step.off <= TOLERANCES[options.precision] for steps in ladders for step in steps) else 1


def _chosen(options: argparse.Namespace) -> Mapping[str, Workload]:
    known, others = (TINY, WORKLOADS) if options.tiny else (WORKLOADS, TINY)
    chosen = {name: workload for name, workload in known.items() if name.startswith(options.only)}
    if not chosen:
        elsewhere = any(name.startswith(options.only) for name in others)
        same = f"{'without' if options.tiny else 'with'} --tiny"
        hint = same if elsewhere else nearest(options.only, known)
        raise CompileError("bench", "no program has a name that begins so", got=options.only,
                           need=", ".join(known), hint=hint)
    return chosen


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows under their titles; names to the left, numbers to the right."""
    shown = [key for key in COLUMNS if key in rows[0]]
    cells = [[key.replace("_", " ") for key in shown]]
    cells += [[COLUMNS[key].format(row[key]) for key in shown] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]) for first, *rest in cells]
