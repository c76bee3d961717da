"""The key of lesson 1: lazy tensors, which record what is asked of them and run when somebody looks.

Its checks send the tensors' own `.numpy()` through the learner's realise, and hand the learner recorders of
which some are wrong; they are in record_checks.py.
"""

from __future__ import annotations

import numpy as np

from minicc.lessons.course import Exercise, Kind, Lesson, Wrong
from minicc.lessons.key import record_checks as checks

# isort: split
# exercises begin
from collections.abc import Callable, MutableMapping

#| import numpy as np
#|
import minicc as mc

#| from minicc import Todo
from minicc.graph.ir import Node, Value

# ---- 1.1
# x = mc.Tensor(images)                 images: f32[1797,64]; w and b are tensors with data, w: f32[64,128]
# h = (x @ w + b).relu()
# p = h.softmax(axis=-1)
# best = p.max(axis=-1)
# mean = best.mean()
# ran: kernels that ran by now. nodes: operations recorded for `mean`, inputs and constants among them.
# kernels: how many mean.numpy() runs on the gpu device. for_h: how many h.numpy() runs after that.
# solution begin
#| prediction = {"ran": None, "nodes": None, "kernels": None, "for_h": None}
prediction = {"ran": 0, "nodes": 22, "kernels": 2, "for_h": 1}
# solution end


# ---- 1.2
def realise(value: Value, known: MutableMapping[Node, np.ndarray],
            compute: Callable[[Node, list[np.ndarray]], np.ndarray]) -> np.ndarray:
    """The array of a value.

    known: node -> its array; the inputs are in it. What you compute, put there: nothing is computed twice, in
    this call or the next. compute(node, arrays) gives a node's array from those of its operands, in their
    order. value.node is the node to start from; node.operands are Values again. A program may be thousands of
    nodes long.
    """
    # solution begin
    #| raise Todo("1.2", "realise is not written yet", hint="minicc learn hint 1.2")
    stack = [value.node]
    while stack:
        node = stack[-1]
        missing = [operand.node for operand in node.operands if operand.node not in known]
        if node not in known and missing:
            stack += missing
            continue
        if node not in known:
            known[node] = compute(node, [known[operand.node] for operand in node.operands])
        stack.pop()
    return known[value.node]
    # solution end


# ---- 1.3
def seen_late(make: Callable[[np.ndarray], mc.Tensor]) -> int:
    """The size of the smallest f32 vector that shows the bug; 0 if none of up to 128 elements does.

    `make` makes a tensor of an array, as mc.Tensor does. It has the bug if a write to the array shows in
    something that was recorded before the write and read after it.
    """
    # solution begin
    #| raise Todo("1.3", "seen_late is not written yet", hint="minicc learn hint 1.3")
    for size in range(1, 129):
        data = np.zeros(size, np.float32)
        early = make(data) + 1.0
        data[:] = 41.0
        if early.numpy()[0] != 1.0:
            return size
    return 0
    # solution end


# ---- 1.4
def best_threshold(ink: mc.Tensor, is_one: mc.Tensor, thresholds: list[float]) -> float:
    """The threshold on a picture's mean ink that tells most ones from the rest; the first of equal ones.

    ink: f32[n], not computed yet. is_one: f32[n] of 0.0 and 1.0. A picture with more ink than the threshold
    is taken for a one. It is right as it stands, and runs a kernel for every threshold.
    """
    # solution begin
    #| best, most = thresholds[0], -1.0
    #| for threshold in thresholds:
    #|     right = ((ink > threshold).float() == is_one).float().mean()
    #|     if right.item() > most:
    #|         best, most = threshold, right.item()
    #| return best
    column = mc.Tensor(thresholds).unsqueeze(1)
    right = ((ink > column).float() == is_one).float().mean(axis=1)
    return thresholds[right.argmax().item()]
    # solution end
# exercises end

# ---- what a mentor knows

NODES = Exercise(
    "1.1", Kind.PREDICT, "After five lines", answer="prediction", run=checks.run_prediction,
    judge=checks.judge_prediction, starter_symptom="no prediction yet: ran, nodes, kernels, for_h",
    second_right='prediction = dict(ran=0, nodes=18, kernels=2, for_h=1)',
    wrong=(
        Wrong('prediction = {"ran": 5, "nodes": 22, "kernels": 2, "for_h": 1}', "ran: 5 is too high",
              "Which of the five lines needs a number?"),
        Wrong('prediction = {"ran": 0, "nodes": 5, "kernels": 2, "for_h": 1}', "nodes: 5 is too low",
              "What is softmax made of?"),
        Wrong('prediction = {"ran": 0, "nodes": 22, "kernels": 7, "for_h": 1}', "kernels: 7 is too high",
              "Which of these operations can share a loop?"),
        Wrong('prediction = {"ran": 0, "nodes": 22, "kernels": 2, "for_h": 0}', "for_h: 0 is too low",
              "Was h ever stored anywhere?")),
    hints=(
        "Print mc.compile(...).raw_graph and count its lines; the page does it for another program.",
        "softmax is a maximum, a difference, exp, a sum and a quotient, and each reduction needs a broadcast "
        "to get back to its shape. A kernel ends where a GPU would have to wait for a whole row.",
        "3 inputs, 5 nodes for h, about 8 for softmax, then max and mean. One kernel for the product, one "
        "for the rest. h is never an output, so nobody keeps it."),
    discussion="Nothing runs before somebody looks. The graph has 22 nodes, of which simplify leaves 19. The "
    "gpu gets a kernel for the product and one for all that needs whole rows; the tpu, which may reduce over "
    "the columns of its own product, gets a single one. Then the price of laziness: only `mean` was asked "
    "for, so only `mean` was kept, and h.numpy() computes h again from x. A system that kept each node would "
    "hold every activation of a network.",
    rubric=("Nothing runs until data is asked for, and only that data is kept.",
            "Recording builds nodes; realising cuts the graph at what is known.",
            "0, 22, 2 and 1.", "Keep every node and fill the memory, or compute some of them twice."),
    minutes=8, called=False)

REALISE = Exercise(
    "1.2", Kind.BUILD, "Memoised realise", answer="realise", run=checks.run_realise,
    judge=checks.judge_realise,
    second_right="""
        from minicc.graph.ir import topological
        for node in topological([value.node], stop=known):
            if node not in known:
                known[node] = compute(node, [known[operand.node] for operand in node.operands])
        return known[value.node]
    """,
    wrong=(
        Wrong("""
            if value.node in known:
                return known[value.node]
            return compute(value.node, [realise(v, known, compute) for v in value.node.operands])
        """, "nodes computed for a diamond differs: got 4095, expected 12",
              "Who asks for x + x, and how often?"),
        Wrong("""
            if value.node not in known:
                arrays = [realise(operand, known, compute) for operand in value.node.operands]
                known[value.node] = compute(value.node, arrays)
            return known[value.node]
        """, "RecursionError", "How deep is the recursion for a program of 3000 lines?"),
        Wrong("""
            from minicc.graph.ir import topological
            done = dict(known)
            for node in topological([value.node], stop=known):
                if node not in done:
                    done[node] = compute(node, [done[operand.node] for operand in node.operands])
            return done[value.node]
        """, "nodes computed when asked again differs: got 12, expected 0",
              "Who sees `done` after you return?"),
        Wrong("""
            stack, order = [value.node], []
            while stack:
                node = stack.pop()
                if node not in known and node not in order:
                    order.append(node)
                    stack += [operand.node for operand in node.operands]
            for node in reversed(order):
                known[node] = compute(node, [known[operand.node] for operand in node.operands])
            return known[value.node]
        """, "the array of a node multiply is not known yet",
              "Two users of one node: which of them did you see first?")),
    hints=(
        "minicc/frontend/scope.py does this in Eager.graph, with a function of graph/ir.py.",
        "Before a node can be computed its operands must be known. Keep a stack of nodes: look at the top; "
        "if operands are missing, push them and come back later.",
        "stack = [value.node]; while stack: node = stack[-1]; missing = [v.node for v in node.operands if "
        "v.node not in known]; and then there are two cases."),
    discussion="The memo makes it linear: without it, twelve doublings cost 4095 additions, and forty a "
    "million million. It must outlive the call, or every .numpy() starts from the inputs. Recursion is the "
    "third trap: a training loop that nobody interrupts records a graph thousands of nodes deep. A reversed "
    "walk is not an order: a node that is reached early by one user can be needed later by another. minicc "
    "does not compute node by node: it hands all that is missing to the compiler at once, so that it can be "
    "fused, and keeps the arrays of what was asked for.",
    rubric=("Each node once, in an order in which operands come first.",
            "A depth-first walk with the memo as its visited set.",
            "12 nodes for 12 doublings, 0 when asked again.",
            "Node by node is simple and fuses nothing; a whole graph fuses and keeps less."),
    minutes=20)

WRITE = Exercise(
    "1.3", Kind.MISCOMPILE, "The write that was seen early", answer="seen_late", run=checks.run_seen_late,
    judge=checks.judge_seen_late,
    second_right="""
        def shows(size: int) -> bool:
            data = np.full(size, 2.0, np.float32)
            early = make(data).sum()
            data *= 0
            return early.item() != 2.0 * size
        return next((size for size in range(1, 129) if shows(size)), 0)
    """,
    wrong=(
        Wrong("""
            data = np.zeros(1, np.float32)
            early = make(data) + 1.0
            data[:] = 41.0
            return int(early.numpy()[0] != 1.0)
        """, "the recorder that keeps large arrays differs: got 0", "Do all sizes go the same way?"),
        Wrong("""
            for size in range(1, 129):
                data = np.zeros(size, np.float32)
                data[:] = 41.0
                early = make(data) + 1.0
                if early.numpy()[0] != 1.0:
                    return size
            return 0
        """, "the recorder that copies differs: got 1, expected 0",
              "What was written before it was recorded?"),
        Wrong("""
            for size in range(1, 129):
                data = np.zeros(size)
                early = make(data) + 1.0
                data[:] = 41.0
                if early.numpy()[0] != 1.0:
                    return size
            return 0
        """, "the recorder that keeps every array differs: got 0, expected 1",
              "Which dtype is data? What must a recorder do with it?"),
        Wrong("""
            for size in range(1, 129):
                data = np.zeros(size, np.float32)
                early = (make(data) + 1.0).numpy()
                data[:] = 41.0
                if early[0] != 1.0:
                    return size
            return 0
        """, "the recorder that keeps every array differs: got 0, expected 1",
              "When was it computed: before the write, or after?")),
    hints=(
        "Three things happen in an order: record, write, read. frontend/arrays.py is where minicc copies.",
        "A tensor that shares the array's memory sees the write if it is read after it. Real systems share "
        "only when it is cheap and possible: look at dtype and at size.",
        "for size in range(1, 129): make np.zeros(size, np.float32), record make(data) + 1.0, write into "
        "data, and only then call .numpy()."),
    discussion="Sharing memory with numpy is an optimisation; with laziness it becomes a bug, since the read "
    "moves past a write that the recorder never saw. It hides well: a conversion copies, so float64 never "
    "shows it; small arrays may be copied anyway, so the unit test passes. JAX had it in jnp.array (pull "
    "request 899), and issue 37830 reports it for device_put, only above some tens of elements. Ways out: "
    "copy (minicc), forbid writing while shared, or record writes as operations in order (tinygrad's assign, "
    "PyTorch's functionalisation).",
    rubric=("A lazy read was moved past a write.",
            "The recorder shares memory that somebody else may write.",
            "The smallest size, found by trying them in order; nothing else is evidence of smallest.",
            "A copy costs time and memory; sharing needs a promise that nobody writes."),
    minutes=15)

LOOK = Exercise(
    "1.4", Kind.COUNT, "Look once", answer="best_threshold", run=checks.run_best_threshold,
    judge=checks.judge_best_threshold, starter_symptom="too many kernels: 16",
    seeds=(0, 7), second_right="""
        grid = mc.Tensor(np.array(thresholds, np.float32)).reshape(1, len(thresholds))
        said = mc.where(ink.reshape(ink.size, 1) > grid, 1.0, 0.0)
        wrong = abs(said - is_one.reshape(ink.size, 1)).sum(axis=0)
        return thresholds[int(wrong.numpy().argmin())]
    """,
    wrong=(
        Wrong("""
            rights = [((ink > t).float() == is_one).float().mean() for t in thresholds]
            mc.realise(rights)
            return thresholds[int(np.argmax([right.item() for right in rights]))]
        """, "too many kernels: 16", "One program now. How many loops are in it?"),
        Wrong("""
            column = mc.Tensor(thresholds).unsqueeze(1)
            right = ((ink > column).float() == is_one).float().mean(axis=1)
            return right.max().item()
        """, "threshold differs", "The best score, or where it is?"),
        Wrong("""
            column = mc.Tensor(thresholds).unsqueeze(1)
            right = ((ink > column).float() == is_one).float().mean(axis=1).numpy()
            return thresholds[len(right) - 1 - int(right[::-1].argmax())]
        """, "threshold differs", "Which of two equal ones comes first?"),
        Wrong("""
            a, b = ink.numpy(), is_one.numpy()
            return thresholds[int(np.argmax([((a > t) == b).mean() for t in thresholds]))]
        """, "the comparing was done elsewhere", "Who compared here: a kernel, or numpy?"),
        Wrong("return thresholds[0]", "threshold differs", "Did you look at the data at all?")),
    hints=(
        "Every .item() is a look, and a look is a program that runs. Count them.",
        "Sixteen thresholds are one more axis. Compare [16, 1] with [n], and everything after it happens at "
        "once.",
        "column = mc.Tensor(thresholds).unsqueeze(1); then the same line as before with mean(axis=1), and "
        "argmax."),
    discussion="The starter looks sixteen times, each time through a new program, since a Python number is a "
    "constant of the graph: sixteen compiles as well. Realising the list at the end makes it one program of "
    "sixteen loops, which is what a compiler can do with a loop that Python unrolled. A batch axis makes it "
    "one loop. `if right.item() > most` is where a lazy system has to stop and look; argmax keeps the choice "
    "in the graph.",
    rubric=("One look, one program, one kernel.", "A batch axis instead of a Python loop; argmax for the if.",
            "16 programs against 1.", "A batch axis holds 16 n comparisons at once, if they are not fused."),
    minutes=12)

LESSON = Lesson(
    1, "record_dont_run", "Record, don't run",
    "How can y = x @ w return before anything was multiplied, and who pays for it?", 75,
    exercises=(NODES, REALISE, WRITE, LOOK),
    designs=(
        "Compute node by node, each kept: simple, never fused, holds every intermediate result.",
        "Compile all that is missing at once and keep what was asked for: minicc, tinygrad, LazyTensor.",
        "No laziness: trace a function once and compile it (jax.jit). The user marks what is traced."),
    mistakes=(
        "Believing that recording costs nothing: a long loop that nobody looks into grows a long graph.",
        "Memoising in a local dictionary.",
        "Testing an alias with an array that had to be converted.",
        "Taking one program for one kernel."),
    interviews={
        5: "y = x + 1; x_numpy[0] = 7; print(y). What do you get from an eager system, and from a lazy one?",
        15: "Write realise on a whiteboard; then ask for 40 doublings, a second call, and a chain of 10,000.",
        45: "1.2 in full with tests of their own, then: .item() in a training loop. Where does the time go, "
            "what would you show the user, and would you make the system trace functions instead?"})
