"""The key of lesson 0, the evening tour: one layer on the digits, followed from a line to bundles.

Its checks compile `layer` for the emulated TPU with the learner's tile, pipeline or epilogue in the slots;
they are in evening_tour_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minicc.lessons.course import Exercise, Kind, Lesson, Wrong
from minicc.lessons.key import evening_tour_checks as checks

# isort: split
# exercises begin
#| from collections.abc import Mapping
#| from dataclasses import replace
#|
#| import minicc as mc
#| from minicc.frontend.datasets import digits
from minicc.kernel.cost import Target
from minicc.kernel.ir import Kernel
from minicc.kernel.pipeline import Command, PipelinedKernel, Verb, pipeline

#|
#| def layer(x: mc.Tensor, w: mc.Tensor, b: mc.Tensor) -> mc.Tensor:
#|     """What this evening is about."""
#|     return (x @ w + b).relu()


# ---- 0.1
# layer(x, w, b) for x: f32[1797,64] (all the digits), w: f32[64,128], b: f32[128], on "tpu:v5e".
# kernels: how many it becomes. hbm_bytes: how many bytes cross between HBM and the chip, both ways.
# cycles: how long it takes, at 1.5 GHz. bound_by: which resource needs longest, "mxu" or "hbm".
# solution begin
#| prediction = {"kernels": None, "hbm_bytes": None, "cycles": None, "bound_by": None}
prediction = {"kernels": 1, "hbm_bytes": 1_413_376, "cycles": 8_000, "bound_by": "mxu"}
# solution end


# ---- 0.2
def four_blocks(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with its axis m in four blocks, and every other axis whole.

    A block is a multiple of target.rows, and no larger than it must be; the last one may be smaller.
    kernel.axis("m").size is the number of rows; kernel.tiled({"m": 96, "n": 128, "k": 64}) sets blocks.
    """
    # solution begin
    #| return kernel
    whole = {axis.name: axis.size for axis in kernel.axes}
    quarter = -(-whole["m"] // 4)
    return kernel.tiled(whole | {"m": -(-quarter // target.rows) * target.rows})
    # solution end


# ---- 0.3
def forgetful(kernel: Kernel, resident: tuple[str, ...]) -> PipelinedKernel:
    """The compiler's own pipeline, but for one thing: nobody waits for x.

    A PipelinedKernel is frozen; dataclasses.replace(made, steady=...) makes one that differs.
    """
    made = pipeline(kernel, resident=resident)
    # solution begin
    #| return made
    return replace(made, steady=tuple(
        command for command in made.steady if (command.verb, command.operand) != (Verb.WAIT, "x")))
    # solution end


# ---- 0.4
def epilogue(kernel: Kernel, depths: Mapping[str, int]) -> tuple[Command, ...]:
    """What remains after the last step: a wait for each copy that is still on its way out.

    depths: operand -> how many buffers it has. An operand that is not there is never copied. This one was
    tested on a kernel of one step. It passed.
    """
    # solution begin
    #| return tuple(Command(Verb.WAIT, op.name, -1) for op in kernel.outputs if op.name in depths)
    copied = [op.name for op in kernel.outputs if op.name in depths]
    return tuple(Command(Verb.WAIT, name, -ago) for name in copied for ago in range(depths[name], 0, -1))
    # solution end


# ---- 0.5
# layer with 512 columns instead of 128: x: f32[1797,64], w: f32[64,512]. Blocks of m, n and k, and how many
# buffers each operand gets. Fewest cycles win.
# solution begin
#| choice = {"m": 128, "n": 128, "k": 64, "depth": 1}
choice = {"m": 600, "n": 512, "k": 64, "depth": 2}
# solution end
# exercises end

# ---- what a mentor knows

NUMBERS = Exercise(
    "0.1", Kind.PREDICT, "Four numbers", answer="prediction", run=checks.run_prediction,
    judge=checks.judge_prediction, starter_symptom="no prediction yet: kernels, hbm_bytes, cycles, bound_by",
    second_right="""
        moved = 4 * (1797 * 64 + 64 * 128 + 128 + 1797 * 128)
        prediction = dict(kernels=1, hbm_bytes=moved, cycles=2 * 1797 * 6 / 4, bound_by="mxu")
    """,
    wrong=(
        Wrong('prediction = {"kernels": 3, "hbm_bytes": 1.4e6, "cycles": 8e3, "bound_by": "mxu"}',
              "kernels: 3 is too high", "Who would carry x @ w from the first kernel to the second?"),
        Wrong('prediction = {"kernels": 1, "hbm_bytes": 5.1e6, "cycles": 8e3, "bound_by": "mxu"}',
              "hbm_bytes: 5.1e+06 is too high, by a factor of 2 or more",
              "Which arrays must exist in HBM if there is one kernel?"),
        Wrong('prediction = {"kernels": 1, "hbm_bytes": 1.4e6, "cycles": 2e7, "bound_by": "mxu"}',
              "cycles: 2e+07 is too high, by a factor of 1000 or more",
              "How many multiply-adds does the chip do in one cycle?"),
        Wrong('prediction = {"kernels": 1, "hbm_bytes": 1.4e6, "cycles": 8e3, "bound_by": "hbm"}',
              "bound_by: it is not hbm", "How many passes of a bf16 unit is one f32 product?")),
    hints=(
        "Count arrays for the bytes, and rows for the MXU. The page's table has the machine's numbers.",
        "Bytes: each input is read once and the output is written once. MXU: each of 1797 rows takes "
        "a cycle for every pass, an f32 product takes 6 passes, and 4 MXUs share the rows. What it "
        "takes beyond the larger of the two is latency: start, fill, drain.",
        "4 * (1797*64 + ...) bytes at 546 a cycle against 1797 * 6 / 4 cycles. Then two or three "
        "times the larger, since so small a program spends most of its time starting and stopping."),
    discussion="One kernel: the bias and the maximum are computed on the accumulator, where it lies. "
    "1,413,376 bytes are compulsory, 2589 cycles of HBM; the MXUs need 2696 at the least, and more "
    "if a block leaves some of its last rows empty. That is nearly a tie, and in bf16 HBM would bind. "
    "The run takes about three times that: one DMA in before anything can start, weights to load and "
    "products to wait for in each block, one DMA out after everything has ended. A guess at the roofline is "
    "a good guess.",
    rubric=("It gives four numbers and says which it trusts least.",
            "Bytes from arrays, cycles from rows and passes; latency named as what is missing.",
            "1.4 MB, 2600 against 2700 cycles, a run of two to three times that.",
            "A larger block amortises latency and overlaps less."),
    minutes=8, called=False)

TILE = Exercise(
    "0.2", Kind.BUILD, "Change a tile", answer="four_blocks", run=checks.run_four_blocks,
    judge=checks.judge_four_blocks, starter_symptom="steps of m differs: got 1, expected 4",
    second_right="""
        size, block = kernel.axis("m").size, target.rows
        while 4 * block < size:
            block += target.rows
        return kernel.tiled({"m": block, "n": kernel.axis("n").size, "k": kernel.axis("k").size})
    """,
    wrong=(
        Wrong('return kernel.tiled({a.name: a.size for a in kernel.axes} '
              '| {"m": kernel.axis("m").size // 4})',
              "steps of m differs: got 5, expected 4", "1797 // 4 is 449. What is 4 * 449?"),
        Wrong('return kernel.tiled({a.name: a.size for a in kernel.axes} '
              '| {"m": -(-kernel.axis("m").size // 4)})',
              "blocks of 450 rows are no multiple of 8", "How many rows has a vector register?"),
        Wrong('return kernel.tiled({a.name: a.size for a in kernel.axes} | {"m": 4})',
              "steps of m differs: got 450", "Four blocks, or blocks of four?"),
        Wrong('return kernel.tiled({"m": 512, "n": kernel.axis("n").size, "k": kernel.axis("k").size})',
              "blocks of 512 rows are larger than they must be", "How many rows has the last block?")),
    hints=(
        "kernel/tile.py ends with the same call: kernel.tiled(blocks). Print the kernel before and after.",
        "A quarter, rounded up so that four of them cover all rows; then rounded up again to whole "
        "registers. The order matters.",
        "-(-a // b) is a divided by b, rounded up. Start from {axis.name: axis.size for axis in "
        "kernel.axes} and replace m."),
    discussion="Four steps overlap more copying, and load the MXUs four times instead of twice. Whether "
    "that pays is what the cycles say; here it does not, and kernel/cost.py is the model that has to "
    "foresee it. Rounding down is the classical tail bug; minicc gives a fifth, tiny step, and a "
    "compiler that sizes its grid by size // block drops the rows.",
    rubric=("Four blocks cover every row.", "Round up twice: to cover, then to whole registers.",
            "456 rows for 1797; the last block has 429.",
            "More steps overlap copies; each step loads the weights again."),
    minutes=12)

WAIT = Exercise(
    "0.3", Kind.MISCOMPILE, "Break a wait", answer="forgetful", run=checks.run_forgetful,
    judge=checks.judge_forgetful, starter_symptom="nothing was caught",
    second_right="""
        steady = list(made.steady)
        steady.remove(next(c for c in steady if c.verb is Verb.WAIT and c.operand == "x"))
        return PipelinedKernel(made.kernel, made.depths, made.prologue, tuple(steady), made.epilogue)
    """,
    wrong=(
        Wrong("""
            return replace(made, steady=tuple(
                c for c in made.steady if (c.verb, c.operand) != (Verb.WAIT, "w")))
        """, "the body reads w, which is still in flight", "Whose wait did you take?"),
        Wrong("""
            return replace(made, steady=tuple(
                c for c in made.steady if (c.verb, c.operand) != (Verb.START, "x")))
        """, "copy_wait x would wait for ever", "Who waits now, and for what?"),
        Wrong("""
            return replace(made, steady=tuple(c for c in made.steady if c.verb is not Verb.WAIT))
        """, "steady: copy_wait w[t] at m first is gone too",
              "How many waits are in `steady`? Whose are they?"),
        Wrong("""
            rest = [c for c in made.steady if (c.verb, c.operand) != (Verb.WAIT, "x")]
            return replace(made, steady=tuple(rest), epilogue=())
        """, "epilogue: copy_wait out[-2] is gone too", "Who else reads what you changed?"),
        Wrong("""
            return replace(made, prologue=tuple(
                c for c in made.prologue if (c.verb, c.operand) != (Verb.WAIT, "x")))
        """, "nothing was caught", "Is there a wait in the prologue at all? Print it."),
        Wrong("return None", "pipeline returned the wrong thing", "What does the slot expect back?")),
    hints=(
        "Print compiled.pipelined[0]: the wait on x is one line of `steady`.",
        "A command has a verb and an operand. Keep all but one.",
        "replace(made, steady=tuple(command for command in made.steady if ...))"),
    discussion="The evaluator poisons a buffer while its copy is in flight, so it fails at once and says "
    "which block; the emulator sees a load from rows that a DMA owns and gives the pc. Real hardware "
    "does neither: it computes with whatever is there, mostly the right bytes, until the day the copy "
    "is late. That is why the check does not depend on timing.",
    rubric=("The answer may still be right, and the program is wrong.",
            "A DMA owns its destination until a wait that happens after it.",
            "One line of the pipeline, seen at the first step.",
            "Waiting late overlaps more; waiting never is a race."),
    minutes=10)

EPILOGUE = Exercise(
    "0.4", Kind.MISCOMPILE, "Fix an epilogue", answer="epilogue", run=checks.run_epilogue,
    judge=checks.judge_epilogue, starter_symptom="with 2 buffers: copy_wait out[-2] is missing",
    second_right="""
        waits: list[Command] = []
        for name in (op.name for op in kernel.outputs if op.name in depths):
            waits += [Command(Verb.WAIT, name, back) for back in range(-depths[name], 0)]
        return tuple(waits)
    """,
    wrong=(
        Wrong("return ()", "with 2 buffers: copy_wait out[-2] is missing",
              "Who knows when the last block is out?"),
        Wrong("""
            return tuple(Command(Verb.WAIT, op.name, -ago) for op in kernel.outputs
                         if op.name in depths for ago in range(1, depths[op.name] + 1))
        """, "copy_wait out[-1] comes too early: copy_wait out[-2] began before it",
              "Copies end in the order they began. What has out[-1] waited for?"),
        Wrong("""
            return tuple(Command(Verb.WAIT, op.name, -depths[op.name])
                         for op in kernel.outputs if op.name in depths)
        """, "with 2 buffers: copy_wait out[-1] is missing",
              "How many blocks can be on their way at the end?"),
        Wrong("""
            return tuple(Command(Verb.WAIT, op.name, ago) for op in kernel.outputs
                         if op.name in depths for ago in (-2, -1))
        """, "with 1 buffer: copy_wait out[-2] is one too many", "Who says that there are two buffers?"),
        Wrong("""
            return tuple(Command(Verb.WAIT, op.name, -ago) for op in kernel.outputs
                         if op.name in depths for ago in range(min(2, depths[op.name]), 0, -1))
        """, "with 3 buffers: copy_wait out[-3] is missing", "And with a third buffer?"),
        Wrong("""
            return tuple(Command(Verb.WAIT, op.name, -ago) for op in kernel.outputs
                         if op.name in depths for ago in range(depths[op.name] + 1, 0, -1))
        """, "with 2 buffers: copy_wait out[-3] is one too many",
              "Which copy would it be that you wait for?"),
        Wrong("""
            return tuple(Command(Verb.WAIT, op.name, -ago) for op in kernel.outputs
                         for ago in range(depths[op.name], 0, -1))
        """, "KeyError", "Which output is never copied? Try a network of two layers.")),
    hints=(
        "The message names a wait, and how many buffers there were. How many blocks can be under way then?",
        "With two buffers, two blocks can be on their way when the loop ends. Copies of one operand "
        "end in the order they began, so the oldest comes first.",
        "For each output that is copied: Command(Verb.WAIT, name, -ago) for ago from its depth down to 1."),
    discussion="With one step there is one block in flight and -1 is right, which is why the test "
    "passed. Halting early is the mildest of its outcomes: if the next kernel reads the buffer, it "
    "reads rows that have not arrived. Newest first also loses one, since waits on a semaphore count "
    "completions and do not name them.",
    rubric=("As many waits as buffers, the oldest first.",
            "The loop's wait frees a buffer for reuse; at the end nobody reuses it.",
            "Two in flight for depth 2; one if the kernel has one step.",
            "An epilogue costs code; a barrier that waits for everything costs overlap."),
    minutes=12)

COUNT = Exercise(
    "0.5", Kind.COUNT, "Beat the count", answer="choice", run=checks.run_choice, judge=checks.judge_choice,
    starter_symptom="too many cycles",
    second_right='choice = {"m": 904, "n": 512, "k": 64, "depth": 2}',
    wrong=(
        Wrong('choice = {"m": 64, "n": 128, "k": 64, "depth": 2}', "too many cycles",
              "How many steps is that, and what does each of them wait for?"),
        Wrong('choice = {"m": 32, "n": 128, "k": 64, "depth": 3}', "too many cycles",
              "The copies are hidden now. What is each step waiting for?"),
        Wrong('choice = {"m": 600, "n": 512, "k": 64, "depth": 0}', "a pipeline needs buffers",
              "Where would the block lie?"),
        Wrong('choice = {"m": 600, "n": 512, "depth": 2}', "the choice needs four whole numbers",
              "Which axis is missing?")),
    hints=(
        "profile() charges every cycle to a cause. Which one is the largest with the starter's blocks?",
        "A step loads the weights again and waits for the last product, whatever its size, so have "
        "few; but one step overlaps nothing. Depth 2 hides a copy behind a body.",
        "Leave k whole and n whole, depth 2, and try m so that there are 1, 2, 3, 4 steps."),
    discussion="Three steps of 600 rows and two of 904 are within two per cent of each other: one "
    "overlaps more, the other loads weights less often. Splitting k makes every weight tile half empty and "
    "pays a pass for each; a third buffer has nothing left to hide. The compiler's own choice keeps "
    "to powers of two and stays within a tenth.",
    rubric=("Few steps, more than one; depth 2.", "Weights loaded per step against copies hidden.",
            "Two to three steps, twice the roofline.", "VMEM, and how much the first and last copy show."),
    minutes=12, called=False)

LESSON = Lesson(
    0, "evening_tour", "The evening tour",
    "What happens between relu(x @ w + b) and the wires of a chip?", 60,
    exercises=(NUMBERS, TILE, WAIT, EPILOGUE, COUNT),
    designs=(
        "Predict from the roofline, times two or three. Or from the pipeline: first copy, steps, last copy.",
        "A tile by formula (a quarter, rounded up twice), or by search over multiples of eight.",
        "Epilogue from the depths, or from the commands of the steady state: every start that has no wait."),
    mistakes=(
        "Counting x @ w and x @ w + b as arrays in HBM.",
        "Taking the roofline for the time of a small program.",
        "Rounding a tile down, and so losing rows or gaining a step.",
        "Believing that a right answer shows a right program: without the wait it is often right."),
    interviews={
        5: "Show the pipeline of 0.3 without its wait on x. What can go wrong? Why might no test see it?",
        15: "0.1 on a whiteboard with the machine's table; then: what changes in bf16? (HBM binds.)",
        45: "0.1, then 0.5 with the emulator at hand: let them choose three settings, predict each before it "
            "runs, and explain the one they got most wrong. Close with 0.4: what did the test not cover?"})
