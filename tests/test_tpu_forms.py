"""Blocks of one form do the same, whatever their buffers are called; and what does not is of another form."""

from __future__ import annotations

from unittest import mock

from tpu_programs import run_text, with_header

from minicc.tpu import emulator
from minicc.tpu.emulator import Code
from minicc.tpu.forms import Form
from minicc.tpu.text import parse

LOOP = """{{ smov s0, 0 }}
.{0}:
{{ vld v0, [{0} + s0 + 0x0] rows=1 }}
{{ vadd.f32 v1, v0, {1} }}
{{ vst [{2} + s0 + 0x0], v1 rows=1 ;; sadd.s32 s0, s0, 1 }}
{{ scmp.lt.s32 s1, s0, 8 }}
{{ sbr.rel s1, .{0} }}"""
COPY = ("dma.hbm_to_vmem [{0}], [x], [sem] shape=(8, 128) strides=(128, 1) panel=8", "dma.done.wait [sem]")


def program(*lines: str, more: str = "") -> str:
    """A text with buffers p and q of 16 rows of their own, and r in those of q."""
    buffers = "vmem p: f32 rows=16 base=0x20\nvmem q: f32 rows=16 base=0x30\nvmem r: f32 rows=16 base=0x30"
    return with_header(*lines, "{ shalt }").replace("semaphore", f"{buffers}\nsemaphore")


def forms(*loops: str) -> list[Form]:
    """The form of each loop."""
    code = Code(parse(program(*loops)))
    return [code.rows.form(code.decoded[span.start:span.end], span)[0]
            for span in code.spans.values() if span.target == span.start]


def test_the_names_of_buffers_and_labels_are_no_part_of_a_form():
    one, other = forms(LOOP.format("xb", 1.0, "yb"), LOOP.format("p", 1.0, "q"))
    assert one == other and one.loop


def test_numbers_that_print_differently_make_different_forms():
    assert len({*forms(LOOP.format("xb", 0.0, "yb"), LOOP.format("p", -0.0, "q"))}) == 2


def test_which_buffers_share_rows_is_part_of_a_form():
    assert len({*forms(LOOP.format("xb", 1.0, "yb"), LOOP.format("q", 1.0, "r"))}) == 2


def test_a_register_that_is_read_later_is_part_of_a_form():
    apart = forms(LOOP.format("xb", 1.0, "yb"), "{ vst [yb], v1 }", LOOP.format("p", 1.0, "q"))
    assert [sorted(map(str, form.exits)) for form in apart] == [["s0", "v1"], ["s0"]]


def test_blocks_of_a_form_are_compiled_once():
    copies = [f"{{ {line.format(name)} }}" for name in ("xb", "p") for line in COPY]
    out = "{ dma.vmem_to_hbm [y], [q + 0x0], [sem] shape=(8, 128) strides=(128, 1) panel=8 }"
    source = program(*copies, LOOP.format("xb", 1.0, "yb"), LOOP.format("p", 2.0, "q"),
                     out, "{ dma.done.wait [sem] }")
    same = source.replace("v0, 2.0", "v0, 1.0")
    compiled = []
    for text in (source, same):
        emulator._compiled.clear()
        with mock.patch.object(emulator, "compile_block", wraps=emulator.compile_block) as compile_block:
            inputs, result = run_text(text)
        compiled.append(compile_block.call_count)
        assert (result.outputs["y"] == (inputs["x"] + (2 if text is source else 1)).astype("f4")).all()
    assert compiled[0] == compiled[1] + 1
