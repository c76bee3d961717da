"""Pictures say what the levels hold, whatever `dot` draws them; without one, an error says how to get it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from minicc.errors import CompileError, Loc
from minicc.graph.ir import F32, Type
from minicc.graph.text import parse_graph
from minicc.kernel.ir import (
    Axis,
    AxisKind,
    Block,
    Guard,
    Index,
    Kernel,
    Module,
    Operand,
    Scratch,
    Statement,
)
from minicc.kernel.pipeline import pipeline
from minicc.tools.commands import main
from minicc.trace import Event
from minicc.viz import draw, palette, render
from minicc.viz.kernels import moved_bytes
from minicc.viz.timeline import _play

GRAPH = parse_graph("""graph f(x: f32[4,8], w: f32[8,2]) {
  %0 = dot_general(x, w) contract=[1]x[0] : f32[4,2]    loc(train.py:12)
  %1 = maximum(%0, 0.5) : f32[4,2]                      loc(train.py:13)
  return %1
}""")


def load(name: str, *axes: str) -> Block:
    return Block("load", (), {"ref": name}, F32, axes)


def matmul(m: int = 64, n: int = 128, k: int = 112) -> Kernel:
    """y[128,512] = x[128,784] @ w[784,512] + b[512], in blocks."""
    axes = (Axis("m", 128, m, AxisKind.PARALLEL), Axis("n", 512, n, AxisKind.PARALLEL),
            Axis("k", 784, k, AxisKind.SEQUENTIAL))
    at = Index.axis
    zero = Block("constant", (), {"value": np.float32(0)}, F32, ())
    dot = Block("dot", (load("x", "m", "k"), load("w", "k", "n")), {"contract": ("k",)}, F32, ("m", "n"),
                (Loc("train.py", 12),))
    step = Block("add", (load("acc", "m", "n"), dot), {}, F32, ("m", "n"))
    last = Block("add", (load("acc", "m", "n"), load("b", "n")), {}, F32, ("m", "n"))
    return Kernel(
        "dot_add", axes,
        (Operand("x", "x", Type(F32, (128, 784)), (at("m"), at("k"))),
         Operand("w", "w", Type(F32, (784, 512)), (at("k"), at("n"))),
         Operand("b", "b", Type(F32, (512,)), (at("n"),))),
        (Operand("y", "y", Type(F32, (128, 512)), (at("m"), at("n"))),),
        (Scratch("acc", F32, ("m", "n")),),
        (Statement(Guard.FIRST, "acc", zero), Statement(Guard.ALWAYS, "acc", step),
         Statement(Guard.LAST, "y", last)),
    )


def words(svg: str) -> list[str]:
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def test_a_graph_shows_each_op_its_type_and_its_line():
    shown = words(draw(GRAPH).svg())
    for word in ("x", "w", "dot_general", "maximum", "f32[4,2]", "train.py:12", "train.py:13", "output"):
        assert word in shown


def test_a_scalar_constant_stands_inside_its_op():
    source = draw(GRAPH).source
    assert "(·, 0.5)" in source and "constant" not in source


def test_a_png_begins_as_every_png_does():
    assert draw(GRAPH).png()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_same_graph_gives_the_same_picture():
    assert draw(GRAPH).svg() == draw(GRAPH).svg()


def test_a_kernel_shows_what_it_reads_and_keeps():
    shown = words(draw(matmul()).svg())
    for word in ("dot_add", "64 x 112", "112 x 128", "128", "kept in acc, from 0.0", "train.py:12"):
        assert word in shown


def test_moved_bytes_count_each_fetch_again():
    kernel = matmul()
    x, w, b = kernel.inputs
    assert moved_bytes(kernel, x) == 128 * 784 * 4 * 4   # once for each of the 4 blocks of n
    assert moved_bytes(kernel, w) == 784 * 512 * 4 * 2   # once for each of the 2 blocks of m
    assert moved_bytes(kernel, b) == 512 * 4 * 2         # changes with n only, under each m
    assert moved_bytes(kernel, kernel.outputs[0]) == 128 * 512 * 4


def test_two_buffers_overlap_copies_with_bodies_and_one_does_not():
    one, two = (_play(pipeline(matmul(), depth=depth), steps=5) for depth in (1, 2))
    assert [span.start for span in one[""]] == [1, 3, 5, 7, 9]
    assert [span.start for span in two[""]] == [1, 2, 3, 4, 5]


def test_an_output_is_copied_out_after_its_last_step():
    spans = _play(pipeline(matmul()), steps=8)
    assert [(span.start, span.end) for span in spans["y"]] == [(8, 9)]  # k has 7 steps, the first ends at 2


def test_a_pipeline_has_a_row_for_each_copy_and_one_for_the_body():
    shown = words(draw(pipeline(matmul())).svg())
    for word in ("copy in x, 2 buffers", "copy in b, 2 buffers", "copy out y, 2 buffers", "body"):
        assert word in shown


def test_many_short_events_are_merged_and_none_is_lost():
    events = [Event("mxu0", "push", 2 * cycle, 2 * cycle + 1) for cycle in range(5000)]
    svg = draw([*events, Event("dma", "x", 0, 400)]).svg()
    assert "mxu0" in words(svg) and svg.count("<polygon") < 100


def test_a_module_with_a_buffer_between_kernels_draws_it_once():
    first = matmul()
    half = Block("multiply", (load("y", "m", "n"), load("y", "m", "n")), {}, F32, ("m", "n"))
    out = Operand("z", "z", Type(F32, (128, 512)), (Index.axis("m"), Index.axis("n")))
    body = (Statement(Guard.ALWAYS, "z", half),)
    second = Kernel("square", first.axes[:2], first.outputs, (out,), (), body)
    inputs = tuple((operand.buffer, operand.type) for operand in first.inputs)
    module = Module("two", (first, second), inputs, (("z", out.type),))
    assert words(draw(module).svg()).count("y") == 1


def test_something_that_is_no_level_is_refused():
    with pytest.raises(CompileError, match="no picture of this. got int"):
        draw(3)


def test_without_a_renderer_one_error_names_both_installs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(render.shutil, "which", lambda name: None)
    render.find_renderer.cache_clear()
    with pytest.raises(CompileError, match=r"minicc-edu\[dot\](.|\n)*graphviz.org"):
        draw(GRAPH).svg()
    render.find_renderer.cache_clear()


def test_only_the_palette_spells_colours():
    folder = Path(render.__file__).parent
    spelled = [path.name for path in folder.glob("*.py") if re.search(r"#[0-9a-f]{6}\b", path.read_text())]
    assert spelled == [Path(palette.__file__).name]


GALLERY = "relu(rand(512,1024) @ rand(1024,512) + rand(512))"


@pytest.mark.parametrize("level", ["kernels", "pipeline"])
def test_the_gallery_shows_what_is_drawn_today(level: str, tmp_path: Path):
    assert main(["draw", "-c", GALLERY, "--device", "tpu", "-o", str(tmp_path)]) == 0
    kept = Path(render.__file__).parent / "gallery" / f"{level}.svg"
    now = (tmp_path / kept.name).read_text()
    assert words(kept.read_text()) == words(now), f"minicc draw -c '{GALLERY}' --device tpu -o viz/gallery"


@pytest.mark.parametrize("kind", ["attention", "siblings", "recompute"])
def test_the_gallery_shows_the_kernels_of_each_golden_file_today(kind: str, tmp_path: Path):
    golden = Path(__file__).parent / "golden" / f"fuse-{kind}.graph"
    command = ["draw", str(golden), "--device", "tpu", "--level", "kernels", "-o"]
    assert main([*command, str(tmp_path)]) == 0
    kept = Path(render.__file__).parent / "gallery" / f"fuse-{kind}" / "kernels.svg"
    now = (tmp_path / kept.name).read_text()
    assert words(kept.read_text()) == words(now), f"minicc {' '.join(command)} {kept.parent}"


def test_outputs_of_one_kernel_stand_side_by_side():
    source = draw(matmul()).source
    row = source[source.index("rank=same", source.index("rank=same") + 1):]
    assert '"buffer y"' in row[:row.index("}")]


def test_a_large_program_is_drawn_in_part_and_the_picture_says_so():
    steps = "".join(f"  %{n + 1} = exp(%{n}) : f32[4]\n" for n in range(300))
    text = f"graph f(x: f32[4], w: f32[4]) {{\n  %0 = negate(x) : f32[4]\n{steps}"
    drawn = draw(parse_graph(text + "  %301 = add(%300, w) : f32[4]\n  return %301\n}")).source
    assert "the first 150 of 302 operations" in drawn and "<b>x</b>" in drawn and "<b>w</b>" not in drawn
    one = matmul()
    many = Module("f", (one,) * 40, (("x", Type(F32, (128, 784))),), (("y", Type(F32, (128, 512))),))
    assert "the first 16 of 40 kernels" in draw(many).source


def test_the_pixels_of_a_png_are_bounded():
    row = render.Drawing("row", "digraph { rankdir=LR " + " -> ".join(f"n{i}" for i in range(99)) + " }")
    width = int.from_bytes(row.png()[16:20], "big")  # of PNG's first chunk
    assert 0.9 * render.MOST_PIXELS < width < 1.01 * render.MOST_PIXELS
