"""The arena of vector mode: what lives at the same time never overlaps, whoever runs at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from gpu_programs import PROGRAMS, Sketch, kernels_of, matmul, random_inputs

from minicc.gpu.machine import A100
from minicc.gpu.program import GPUProgram, lower_gpu
from minicc.graph.evaluate import evaluate


def program(name: str, n: int) -> GPUProgram:
    return lower_gpu(kernels_of(PROGRAMS[name](n)), A100)


def run(made: GPUProgram, inputs: list[np.ndarray]) -> list[np.ndarray]:
    buffers = dict(made.module.constants)
    buffers |= {name: x for (name, _), x in zip(made.module.inputs, inputs, strict=True)}
    made.run(buffers)
    return [buffers[name].reshape(type.shape) for name, type in made.module.outputs]


def test_what_lives_at_the_same_time_does_not_overlap():
    made = program("attention", 100)
    kernels, (_, arrays) = made.module.kernels, made.arena.take()
    assert len(kernels) > 2
    touched = {name: [n for n, kernel in enumerate(kernels) for op in kernel.operands if op.buffer == name]
               for name in made.arena.blocks if "." not in name}
    touched |= {name: [int(name.split(".")[0])] for name in made.arena.blocks if "." in name}
    for one, other in ((a, b) for a in touched for b in touched if a < b):
        apart = max(touched[one]) < min(touched[other]) or max(touched[other]) < min(touched[one])
        assert apart or not np.shares_memory(arrays[one], arrays[other])


def test_a_chain_of_kernels_needs_the_memory_of_two():
    s = Sketch()
    x = w = s.input("x", 64, 64)
    for _ in range(6):
        x = matmul(s, x, w)
    made = lower_gpu(kernels_of(s.graph(x)), A100)
    assert len(made.module.kernels) == 6
    assert made.arena.starts[-1] == 2 * 64 * 64 * 4


def test_outputs_are_not_touched_by_the_next_run():
    made = program("softmax", 50)
    inputs = random_inputs(PROGRAMS["softmax"](50))
    (first,) = run(made, inputs)
    kept = first.copy()
    run(made, [-x for x in inputs])
    np.testing.assert_array_equal(first, kept)


def test_programs_may_run_in_many_threads_at_once():
    graphs = {name: PROGRAMS[name](300) for name in ("attention", "layernorm", "log_loss")}
    made = {name: program(name, 300) for name in graphs}
    jobs = [(name, seed) for seed in range(8) for name in graphs]

    def job(name: str, seed: int) -> bool:
        inputs = random_inputs(graphs[name], seed)
        pairs = zip(run(made[name], inputs), evaluate(graphs[name], inputs), strict=True)
        return all(np.allclose(got, want, rtol=1e-4, atol=1e-5) for got, want in pairs)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(job, *zip(*jobs, strict=True)))


def test_inputs_may_lie_in_memory_in_any_order():
    made = program("strided", 6)
    (x,) = random_inputs(PROGRAMS["strided"](6))
    (straight,), (turned,) = run(made, [x]), run(made, [np.asfortranarray(x)])
    np.testing.assert_array_equal(straight, turned)
