"""CUDA C as printed: one golden text that a person has read, and a C++ compiler's word on all programs."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from gpu_programs import F32, PROGRAMS, kernels_of, layer
from test_kernel_lookup import PROGRAMS as LOOKUPS
from test_kernel_lookup import graph_of, shaped

from minicc.errors import Loc
from minicc.gpu.cuda import cuda_text, expression_text, literal_text, preamble
from minicc.gpu.ir import Expr, const, reg
from minicc.gpu.lower import lower
from minicc.graph.dtypes import BF16, BOOL, DTYPES, F16, I32, U32
from minicc.graph.elementwise import ELEMENTWISE

# one graph for each op and dtype, and for each pair of dtypes
EVERY_OP = [([shaped(9, dtype=dtype)] * row.arity, lambda op, *values, name=name: op(name, *values))
            for name, row in ELEMENTWISE.items() for dtype in DTYPES.values()
            if dtype.kind in row.operands.replace("n", "fi")]
EVERY_CONVERT = [([shaped(9, dtype=source)], lambda op, x, target=target: op("convert", x, dtype=target))
                 for source in DTYPES.values() for target in DTYPES.values() if source is not target]

LAYER = """\
// launch: 14 blocks of (16, 16) threads
__global__ void dot_add_maximum(const float* __restrict__ x, const float* __restrict__ w, \
const float* __restrict__ b, float* __restrict__ out) {
    __shared__ float tile_m[256];
    __shared__ float tile_n[256];
    const int n = blockIdx.x % 2 * 16 + threadIdx.x;
    const int m = blockIdx.x / 2 * 16 + threadIdx.y;
    float acc1 = 0.0f;  // model.py:1
    for (int k0 = 0; k0 < 33; k0 += 16) {
        const int k1 = k0 + threadIdx.x;
        const float x1 = m < 100 && k1 < 33 ? x[m * 33 + k1] : 0.0f;
        tile_m[threadIdx.y * 16 + threadIdx.x] = x1;  // model.py:1
        const int k2 = k0 + threadIdx.y;
        const float w1 = n < 20 && k2 < 33 ? w[k2 * 20 + n] : 0.0f;
        tile_n[threadIdx.y * 16 + threadIdx.x] = w1;  // model.py:1
        __syncthreads();  // model.py:1
        for (int i = 0; i < 16; ++i) {
            const float l = tile_m[threadIdx.y * 16 + i];  // model.py:1
            const float r = tile_n[i * 16 + threadIdx.x];  // model.py:1
            acc1 += l * r;  // model.py:1
        }
        __syncthreads();  // model.py:1
    }
    if (m < 100 && n < 20) {
        const float b1 = b[n];  // model.py:2
        const float t1 = acc1 + b1;  // model.py:3
        const float t2 = max(t1, 0.0f);  // model.py:4
        out[m * 20 + n] = t2;  // model.py:4
    }
}
"""

# what CUDA's compiler knows and a C++ compiler does not
SHIM = """
#include <algorithm>
#include <cmath>
#include <climits>
#define __global__
#define __device__
#define __shared__ static
#define __restrict__
using std::max; using std::min;
struct Dim { int x, y, z; } blockIdx, threadIdx;
void __syncthreads() {}
float rsqrtf(float x) { return 1 / sqrtf(x); }
struct __half {
    float f; __half() {} explicit __half(float x) : f(x) {} operator float() const { return f; }
};
struct __nv_bfloat16 : __half { using __half::__half; };
"""


def test_a_layer_prints_as_one_tiled_kernel():
    (kernel,) = kernels_of(layer(100)).kernels
    assert cuda_text(lower(kernel)) == LAYER


def test_parentheses_stand_only_where_c_needs_them():
    m, n = reg("m"), reg("n")
    texts = [expression_text(e) for e in (
        Expr("multiply", (Expr("add", (m, n)), n)), Expr("add", (Expr("multiply", (m, n)), n)),
        Expr("subtract", (m, Expr("subtract", (m, n)))), Expr("add", (m, const(-2))),
        Expr("not", (Expr("and", (m, n), BOOL),), BOOL),
    )]
    assert texts == ["(m + n) * n", "m * n + n", "m - (m - n)", "m - 2", "!(m && n)"]


def test_constants_print_to_the_last_bit():
    assert [literal_text(v, F32) for v in (0.1, 1.0, -0.0, 1e-5, float("inf"))] == [
        "0.1f", "1.0f", "-0.0f", "1e-05f", "INFINITY"]
    assert [literal_text(v, I32) for v in (3, -(2**31))] == ["3", "INT_MIN"]
    assert literal_text(True, BOOL) == "true"
    assert [literal_text(2**32 - 1, U32), literal_text(0x3FC0, BF16), literal_text(0.5, F16)] == [
        "4294967295u", "__nv_bfloat16(1.5f)", "__half(0.5f)"]


def test_indices_are_worked_out_as_far_as_they_are_known():
    assert expression_text((const(0) + reg("m") * 1) // 1 + 0) == "m"
    assert expression_text(reg("m") % 1 * 16) == "0"


def test_a_name_that_means_something_in_cuda_is_changed():
    kernels = [k.renamed("max") for k in kernels_of(layer(3)).kernels]
    assert "void max_(" in cuda_text(lower(kernels[0]))


def test_each_line_names_the_users_line_it_comes_from():
    (kernel,) = kernels_of(layer(3)).kernels
    assert {loc.line for loc in kernel.locs()} == {1, 2, 3, 4} and kernel.locs()[0] == Loc("model.py", 1)
    text = cuda_text(lower(kernel))
    assert all(f"// model.py:{line}\n" in text for line in (1, 3, 4))


@pytest.mark.skipif(not shutil.which("g++"), reason="no g++ on this machine")
def test_a_compiler_accepts_every_program(tmp_path):
    graphs = [program(129) for program in PROGRAMS.values()]
    graphs += [graph_of(*program) for program in (*LOOKUPS.values(), *EVERY_OP, *EVERY_CONVERT)]
    kernels = [lower(kernel) for graph in graphs for kernel in kernels_of(graph).kernels]
    texts = [f"namespace number_{number} {{\n{cuda_text(kernel)}}}" for number, kernel in enumerate(kernels)]
    functions = [line for line in preamble("\n".join(texts)).splitlines() if not line.startswith("#include")]
    parts = [SHIM, *functions, *texts]
    source = tmp_path / "kernels.cpp"
    source.write_text("\n".join(parts))
    done = subprocess.run(["g++", "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", str(source)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
