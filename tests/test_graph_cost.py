"""Operations and bytes, against arithmetic by hand."""

from __future__ import annotations

from minicc.graph.cost import cost, flops, moved_bytes, ridge
from minicc.graph.text import parse_graph

LAYER = parse_graph("""graph f(x: f32[128,784], w: f32[784,512], b: f32[512]) {
    %0 = dot_general(x, w) contract=[1]x[0] : f32[128,512]
    %1 = broadcast_in_dim(b) shape=[128,512] dims=[1] : f32[128,512]
    %2 = add(%0, %1) : f32[128,512]
    %3 = maximum(%2, 0.0) : f32[128,512]
    return %3 }""")


def test_a_layer_costs_two_flops_per_multiply_add_and_one_per_element():
    assert cost(LAYER).flops == 2 * 128 * 784 * 512 + 2 * 128 * 512


def test_least_bytes_are_inputs_and_outputs():
    assert cost(LAYER).least_bytes == 4 * (128 * 784 + 784 * 512 + 512 + 128 * 512)


def test_without_fusion_every_op_reads_and_writes():
    array = 128 * 512
    words = (128 * 784 + 784 * 512 + array) + (512 + array) + 3 * array + (2 * array + 1)
    assert cost(LAYER).unfused_bytes == 4 * words


def test_the_intensity_of_a_square_product_is_a_sixth_of_its_side():
    graph = parse_graph("""graph f(x: f32[512,512], w: f32[512,512]) {
        %0 = dot_general(x, w) contract=[1]x[0] : f32[512,512] return %0 }""")
    assert cost(graph).intensity == 512 / 6  # 2 n^3 flops over 3 n^2 words of 4 bytes


def test_a_sum_of_n_takes_n_minus_1_additions_and_moves_are_free():
    graph = parse_graph("""graph f(x: f32[4,10]) {
        %0 = reduce(x) kind=sum axes=[1] : f32[4]
        %1 = transpose(x) perm=[1,0] : f32[10,4] return %0, %1 }""")
    assert [flops(node) for node in graph.nodes()] == [0, 4 * 9, 0]
    assert [moved_bytes(node) for node in graph.nodes()] == [0, 4 * 44, 4 * 80]


def test_the_ridge_of_a_machine_is_flops_over_bandwidth():
    assert round(ridge(312e12, 1555e9)) == 201  # A100 in bf16, from its data sheet
