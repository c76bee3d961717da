"""`minicc demo`: the whole of minicc in half a minute.

Trains a network of 64, 128 and 10 numbers on handwritten digits, compiles it for an emulated TPU and GPU,
walks down one kernel level by level, and checks that every execution reads the digits alike. Invariants: no
line is wider than 80 columns; the numbers are the same in every run (times apart); without a renderer it goes
on without pictures. Read next: frontend/models/mlp.py, which is the program, then compiler.py.
"""

from __future__ import annotations

import argparse
import re
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minicc as mc
from minicc.compiler import Compiled, compile_graph
from minicc.errors import CompileError
from minicc.frontend.datasets import digits
from minicc.frontend.models import mlp
from minicc.frontend.pytree import flatten
from minicc.tools import commands
from minicc.tools.draw import draw_all
from minicc.tools.output import Progress, bar

EXAMPLE = "minicc demo -o pictures/"
WIDTH = 80
SHADES = " ░▒▓█"
EPOCHS, BATCH, RATE, MOMENTUM, SEED = 20, 64, 0.1, 0.9, 0
ENOUGH = 0.95  # of the held-out digits


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("-o", "--output", metavar="FOLDER", default="minicc-demo", help="for pictures")


@dataclass(frozen=True)
class Digits:
    """The data, shuffled by the seed and cut: a fifth is held out."""

    images: np.ndarray
    labels: np.ndarray
    held_images: np.ndarray
    held_labels: np.ndarray


def split() -> Digits:
    """The digits in an order of their own, a fifth held out."""
    images, labels = digits()
    order = np.random.default_rng(SEED).permutation(len(images))
    held, kept = order[: len(order) // 5], order[len(order) // 5:]
    return Digits(images[kept], labels[kept], images[held], labels[held])


def run(options: argparse.Namespace) -> int:
    """Train, compile, compare, count, draw; 1 if executions disagree or the network reads badly."""
    started = time.perf_counter()
    data = split()
    params, accuracy = train(data)
    predict = mlp.inference(params, mc.Tensor(data.held_images), "tpu:v5e")
    tpu: Compiled = predict.compiled
    vector, lane = (compile_graph(tpu.raw_graph, "gpu", mode=mode) for mode in ("vector", "lane"))
    walk(tpu)
    agree = compare(data, params, {"gpu, vector mode": vector, "gpu, lane mode": lane, "tpu:v5e": tpu})
    count(tpu, lane)
    draw(tpu, Path(options.output))
    print(f"\nDone in {time.perf_counter() - started:.1f} s on this CPU.")
    return 0 if agree and accuracy >= ENOUGH else 1


# ---- text ----

def say(title: str, text: str) -> None:
    """A heading, and what to look at."""
    print(f"\n── {title} {'─' * (WIDTH - len(title) - 4)}\n")
    print(*textwrap.wrap(text, WIDTH), "", sep="\n")


def excerpt(text: str, most: int) -> None:
    """The first lines of a text, within the width, user lines at the right; what is left out is counted."""
    lines: list[str] = []
    for line in text.rstrip().splitlines():
        body, _, lines_of = re.sub(r"\s*(?:loc\(|# )(.*?)\)?$", r"\0\1", line).partition("\0")
        hang = " " * (len(body) - len(body.lstrip()) + 6)
        folded = textwrap.wrap(body, WIDTH - 2, subsequent_indent=hang, break_on_hyphens=False) or [""]
        if lines_of:
            place = lines_of.split(", ")[0].rpartition(":")[2]
            folded += [""] * (len(folded[-1]) > WIDTH - 6)
            folded[-1] = f"{folded[-1]:{WIDTH - 6}} :{place}"
        lines += folded
    print(*(f"  {line}".rstrip() for line in lines[:most]), sep="\n")
    if len(lines) > most:
        print(f"  ... {len(lines) - most} more lines")


def pictures(images: np.ndarray, captions: list[str]) -> None:
    """Digits side by side, as shades."""
    for row in range(8):
        inks = [image.reshape(8, 8)[row] for image in images]
        print("  " + "  ".join("".join(SHADES[int(ink * 4)] * 2 for ink in line) for line in inks))
    print("  " + "  ".join(f"{caption:16}" for caption in captions))


# ---- stages ----

def train(data: Digits) -> tuple[dict, float]:
    """Train the network; its parameters, and the share of held-out digits that it reads."""
    say("1  Train", f"A 64-128-10 network learns to read {len(data.images)} handwritten digits on "
        "the gpu device. Each step, forward and backward and update, is one compiled program.")
    mc.seed(SEED)
    optimiser = mc.optim.SGD(RATE, MOMENTUM)
    step = mlp.training_step(optimiser)
    params = mlp.init()
    state = optimiser.init(params)
    generator = np.random.default_rng(SEED)
    progress = Progress()
    started = time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        order = generator.permutation(len(data.images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            batch = order[start: start + BATCH]
            value, params, state = step(params, state, data.images[batch], data.labels[batch])
        accuracy = share(scores(params, data.held_images), data.held_labels)
        done = bar(epoch / EPOCHS, 20)
        line = f"epoch {epoch:2}  loss {value.item():.4f}  held out {accuracy:6.1%}  {done}"
        progress.show(f"  {line}")
        if epoch % (EPOCHS // 4) == 0:
            progress.clear()
            print(f"  {line}")
    steps = EPOCHS * (len(data.images) // BATCH)
    print(f"  {steps} steps in {time.perf_counter() - started:.1f} s\n")
    some = [int(np.argmax(data.held_labels == digit)) for digit in (2, 3, 5, 8)]
    found = scores(params, data.held_images[some]).argmax(axis=1)
    pictures(data.held_images[some], [f"reads {digit}" for digit in found])
    return params, accuracy


def scores(params: dict, images: np.ndarray) -> np.ndarray:
    """The same network in numpy, in 64 bits: what every execution is held against."""
    w1, b1, w2, b2 = (np.float64(params[name].numpy()) for name in ("w1", "b1", "w2", "b2"))
    return np.maximum(images @ w1 + b1, 0) @ w2 + b2


def share(found: np.ndarray, labels: np.ndarray) -> float:
    """How many of the rows have their largest score at the label."""
    return float((found.argmax(axis=1) == labels).mean())


def walk(tpu: Compiled) -> None:
    """Each level of the program for the TPU."""
    number, kernel = max(enumerate(tpu.kernels.kernels), key=lambda pair: len(pair[1].blocks()))
    say("2  Graph: what to compute",
        "Whole arrays, one operation a line, each with the user's line that asked for it.")
    excerpt(str(tpu.graph), 16)
    say("3  Kernel: how to compute it", "Some operations have become one grid with one body. "
        "Look at the blocks, and at what is kept in the accumulator.")
    excerpt(str(kernel), 14)
    say("4  Pipeline: when data moves", "The same kernel with its copies made explicit: a block is "
        "copied in before the body needs it, and out after its last step.")
    excerpt(str(tpu.pipelined[number]), 22)
    say("5  Program: bundles", f"What the TPU's slots do in each cycle of {kernel.name}: its first "
        "bundles, then its fullest. Look at what shares a bundle.")
    parts = str(tpu.program).split("\n.kernel.")
    lines = next(part for part in parts if part.startswith(f"{kernel.name}:")).splitlines()[1:]
    fullest = max(range(len(lines)), key=lambda place: lines[place].count(";;"))
    excerpt("\n".join(lines[:3]), 10)
    print("  ...")
    excerpt("\n".join(lines[max(3, fullest - 1):]), 10)


def compare(data: Digits, params: dict, programs: dict[str, Compiled]) -> bool:
    """Whether every execution reads every held-out digit as numpy does."""
    say("6  The same answer everywhere", "Each execution reads the held-out digits; numpy computes the "
        "network in 64 bits. Look for the word identical.")
    truth = scores(params, data.held_images)
    arrays = [leaf.numpy() for _, leaf in flatten(params)[0]] + [data.held_images]
    print(f"  {'numpy, float64':16} {share(truth, data.held_labels):6.1%} correct")
    agree = True
    for name, program in programs.items():
        found, = program.run(arrays)
        same = bool((found.argmax(axis=1) == truth.argmax(axis=1)).all())
        error = np.abs(found - truth).max() / np.abs(truth).max()
        word = "identical predictions" if same else "DIFFERENT predictions"
        right = share(found, data.held_labels)
        print(f"  {name:16} {right:6.1%} correct  {word}  largest error {error:.0e}")
        agree = agree and same
    return agree


def count(tpu: Compiled, lane: Compiled) -> None:
    """Where the TPU's cycles went, and what the GPU's warps asked of memory."""
    say("7  Where the time goes", "On the TPU, each cycle is charged to one cause; below them stand the "
        "bytes that no program could do without, and what works longest.")
    excerpt(str(tpu.profile()), 30)
    print("\nOn the GPU, each request of a warp moves sectors of 32 bytes; 4 are ideal.\n")
    excerpt(str(lane.profile()), 30)


def draw(tpu: Compiled, folder: Path) -> None:
    """The levels as pictures, if this machine can draw; a folder that cannot be written is an error."""
    say("8  Pictures", "The graph, its kernels, their pipelines, and what the emulated TPU did.")
    try:
        files = draw_all(commands.open_viz(), tpu, folder)
        print(*(f"  {file}" for file in files if file.suffix == ".svg"), sep="\n")
        print("  and a PNG beside each")
    except CompileError as error:
        if error.stage != "draw":
            raise
        print(textwrap.indent(f"none: {error}", "  "))
