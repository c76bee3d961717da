"""What the bench's programs come to on the emulated TPU: kernels, and bytes across HBM, in f32 and bf16."""

from __future__ import annotations

import numpy as np
import pytest

import minicc as mc
from minicc.compiler import Options, run_passes
from minicc.devices import find
from minicc.tools.bench import Adapter
from minicc.tools.workloads import WORKLOADS

MOST_KERNELS = {"a_elementwise10_1M": 1, "b_softmax_1024": 1, "c_layernorm_1024": 1, "d_matmul_1024": 1,
                "d_matmul_256": 1, "e_attention_512x64": 1, "f_mlp_train": 10, "g_gpt_fwd": 6,
                "g_gpt_train": 22, "h_conv3x3_64c": 1, "i_llama_decode": 9}


def called(name: str):
    """A program, and what it is called with."""
    workload = WORKLOADS[name]
    args = [[mc.Tensor(array) for array in arrays]
            for arrays in workload.make(np.random.default_rng(0), **workload.sizes)]
    return lambda params, data: workload.run(Adapter, params, data), args


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", MOST_KERNELS)
def test_a_program_is_so_few_kernels(name: str, precision: str):
    fn, args = called(name)
    traced = mc.jit(fn)
    graph, *_ = traced.trace(traced.take(tuple(args), {}))
    module = run_passes(graph, find("tpu"), options=Options(precision=precision), until="fuse").module
    rounded = (name, precision) == ("h_conv3x3_64c", "bf16")  # the image, which a window reads many times
    assert len(module.kernels) <= MOST_KERNELS[name] + rounded


@pytest.mark.parametrize("name", [name for name in MOST_KERNELS if not name.startswith("g_gpt")])
def test_hardly_more_than_inputs_and_outputs_crosses_hbm(name: str):
    fn, args = called(name)
    profile = mc.compile(fn, *args, device="tpu").profile()
    assert profile.hbm_bytes <= 1.15 * profile.compulsory_bytes
