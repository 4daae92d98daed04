"""FLOP and bytes of operators: against counts by PyTorch, and by hand."""

import json
import random
from pathlib import Path

import pytest

from chakra_et.analysis.op_work import OpWork, op_work
from chakra_et.analysis.op_work.table import MODELS, formula_of
from chakra_et.specs.system import DTYPES

# Calls of torch 2.13 on its meta device, a row each: operator, shapes, types and values of its arguments as a profile
# writes them, FLOP by torch.utils.flop_counter, bytes of the results (null where not compared: PyTorch's counter is
# wrong for gradients of grouped convolutions; statistics beside a result are left out here).
COUNTS = json.loads((Path(__file__).parent / "torch_counts.json").read_text())


def work(name, shapes, types, values=None, **more) -> OpWork | None:
    texts = [None if item is None else json.dumps(item) for item in (shapes, types, values)]
    return op_work(name, *texts, **more)


def known(*arguments, **more) -> OpWork:
    found = work(*arguments, **more)
    assert found is not None
    return found


FLOPS = [row for row in COUNTS if row[4] is not None]
WRITTEN = [row for row in COUNTS if row[5] is not None]


@pytest.mark.parametrize("row", FLOPS, ids=[f"{row[0][6:]}-{index}" for index, row in enumerate(FLOPS)])
def test_flop_count_as_pytorch_counts(row):
    name, shapes, types, values, flop_count, _ = row
    assert known(name, shapes, types, values).flop_count == flop_count


@pytest.mark.parametrize("row", WRITTEN, ids=[f"{row[0][6:]}-{index}" for index, row in enumerate(WRITTEN)])
def test_results_have_the_size_that_pytorch_gives_them(row):
    name, shapes, types, values, _, write_bytes = row
    assert known(name, shapes, types, values, list_kind="fp32").write_bytes == write_bytes


def test_all_dialects_say_the_same():
    profile = work("aten::addmm", [[7], [5, 3], [3, 7], [], []], ["float"] * 3 + ["Scalar"] * 2, ["", "", "", "1", "1"])
    old = work("aten::addmm", [[7], [5, 3], [3, 7], [], []], ["float"] * 3 + ["Scalar"] * 2)
    tensors = [[9, 1, 0, 7, 4, "cuda:0"], [10, 2, 0, 15, 4, "cuda:0"], [11, 3, 0, 21, 4, "cuda:0"]]
    trace = work("aten::addmm", [[7], [5, 3], [3, 7], [], []], ["Tensor(float)"] * 3 + ["Int"] * 2, [*tensors, 1, 1])
    assert profile == old == trace == OpWork(2 * 5 * 7 * 3, 4 * (15 + 21 + 7), 4 * 35, "fp32", "matmul")


def test_what_is_multiplied_by_zero_is_not_read():
    shapes, types = [[4, 8, 8], [4, 8, 2], [4, 2, 8], [], []], ["c10::Half"] * 3 + ["Scalar"] * 2
    without = known("aten::baddbmm", shapes, types, ["", "", "", "0.", "0.125"])
    with_it = known("aten::baddbmm", shapes, types, ["", "", "", "1", "0.125"])
    assert with_it.read_bytes - without.read_bytes == 2 * 256
    assert without.dtype == "fp16"


def test_results_after_the_arguments_are_results():
    shapes = [[32, 16], [16, 8], [32, 8]]
    assert known("aten::mm", shapes, ["float"] * 3) == known("aten::mm", shapes[:2], ["float"] * 2)
    assert known("aten::exp", [[64], [64]], ["float"] * 2).write_bytes == 256


def test_recorded_outputs_are_believed():
    types = ["float"] * 3 + ["ScalarList"] * 3 + ["Scalar"]
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    plain = known("aten::conv2d", [[2, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], []], types, values)
    cast = known("aten::conv2d", [[2, 3, 8, 8], [4, 3, 3, 3], [4]], ["float"] * 3, None,
                 out_shapes="[[2,4,8,8]]", out_types='["Tensor(c10::BFloat16)"]')  # fmt: skip
    assert plain.flop_count == cast.flop_count == 2 * 2 * 64 * 4 * 27
    assert plain.write_bytes == 2 * cast.write_bytes


def test_repeated_elements_and_tensors_count_once():
    shapes, types = [[16, 559, 64], [16, 559, 64]], ["float", "float"]
    whole = known("aten::mul", shapes, types)
    expanded = known("aten::mul", shapes, types, None, strides="[[35776,64,1],[0,64,1]]")
    assert whole.read_bytes - expanded.read_bytes == 4 * 15 * 559 * 64
    same = [[3, 1, 0, 8, 4, "cuda:0"], [3, 1, 0, 8, 4, "cuda:0"]]
    assert known("aten::mul", [[8], [8]], ["Tensor(float)"] * 2, same).read_bytes == 32


@pytest.mark.parametrize(
    ("queries", "keys", "pairs"), [(128, 128, 128 * 64), (64, 128, 64 * 64 + 64 * 32), (128, 64, 64 * 32)]
)
def test_causal_attention_is_half_a_square(queries, keys, pairs):
    shapes = [[2, 4, queries, 32], [2, 4, keys, 32], [2, 4, keys, 16], [], [], [], []]
    types = ["c10::BFloat16"] * 3 + ["Scalar"] * 4
    found = known("aten::_scaled_dot_product_flash_attention", shapes, types, ["", "", "", "0.", "True", "False", ""])
    assert found.flop_count == 2 * 2 * 4 * pairs * (32 + 16)
    assert found.is_exact
    assert found.dtype == "bf16"


def test_attention_layouts_and_backward():
    flag = ["", "", "", "", "", "", "", "", "", "", "0.", "False", "", ""]
    heads_last = [[2, 100, 8, 64]] * 3
    types = ["c10::Half"] * 3 + [""] * 2 + ["Scalar"] * 5
    values = ["", "", "", "", "", "100", "100", "0.", "False", "False"]
    forward = known("aten::_flash_attention_forward", heads_last + [[]] * 7, types, values)
    backward = known("aten::_flash_attention_backward", [[2, 100, 8, 64]] * 5 + [[2, 8, 100]] + [[]] * 8,
                     ["c10::Half"] * 5 + ["float"] + [""] * 2 + ["Scalar"] * 6, flag)  # fmt: skip
    assert forward.flop_count == 4 * 2 * 8 * 100 * 100 * 64
    assert backward.flop_count * 2 == forward.flop_count * 5
    assert backward.read_bytes == 5 * 2 * 100 * 8 * 64 * 2
    assert backward.write_bytes == 3 * 2 * 100 * 8 * 64 * 2


def test_packed_attention_takes_sequences_for_equally_long():
    types = ["c10::Half"] * 3 + ["int"] * 2 + ["Scalar"] * 5
    shapes = [[400, 8, 64], [400, 2, 64], [400, 2, 64], [5], [5], [], [], [], [], []]
    equal = known(
        "aten::_flash_attention_forward", shapes, types, ["", "", "", "", "", "100", "100", "0.", "False", ""]
    )
    uneven = known(
        "aten::_flash_attention_forward", shapes, types, ["", "", "", "", "", "250", "250", "0.", "False", ""]
    )
    assert equal.flop_count == uneven.flop_count == 4 * 4 * 8 * 100 * 100 * 64
    assert equal.is_exact
    assert not uneven.is_exact


def test_what_a_server_keeps_to_itself_is_said():
    found = known("vllm::unified_attention_with_output", [[888, 8, 64], [888, 1, 64], [888, 1, 64], [888, 8, 64], []],
                  ["c10::Float8_e4m3fn", "c10::BFloat16", "c10::BFloat16", "c10::BFloat16", ""])  # fmt: skip
    assert not found.is_exact
    assert "contexts not recorded" in found.model
    assert work("vllm::moe_forward", [[888, 3072], [888, 128], []], ["c10::BFloat16"] * 2 + [""]) is None


def test_convolutions_in_groups_cost_a_group_each():
    grad, data, weight = [3, 16, 10, 7], [3, 12, 20, 19], [16, 3, 1, 1]
    values = ["", "", "", "[16]", "[2, 3]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "4", "[True, True, True]"]
    types = ["float"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"]
    found = known("aten::convolution_backward", [grad, data, weight] + [[]] * 8, types, values)
    assert found.flop_count == 2 * (2 * 3 * 70 * 16 * 3)
    assert found.write_bytes == 4 * (3 * 12 * 20 * 19 + 48 + 16)
    old = known("aten::convolution_backward", [grad, data, weight] + [[]] * 8, types)
    assert old.flop_count == found.flop_count
    assert not old.is_exact


def test_libraries_order_the_arguments_of_convolutions_their_own_way():
    cudnn = known("aten::cudnn_convolution", [[32, 3, 224, 224], [64, 3, 7, 7]] + [[]] * 7,
                  ["float"] * 2 + ["ScalarList"] * 3 + ["Scalar"] * 4,
                  ["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"])  # fmt: skip
    miopen = known("aten::miopen_convolution", [[32, 3, 224, 224], [64, 3, 7, 7]] + [[]] * 7,
                   ["float"] * 2 + [""] + ["ScalarList"] * 3 + ["Scalar"] * 3,
                   ["", "", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False"])  # fmt: skip
    assert cudnn == miopen
    assert cudnn.write_bytes == 4 * 32 * 64 * 112 * 112
    assert work("aten::cudnn_convolution", [[32, 3, 224, 224], [64, 3, 7, 7]], ["float"] * 2) is None


def test_scaled_products():
    fp8 = ["c10::Float8_e4m3fn"] * 2 + ["float"] * 2 + [""] * 2 + ["Scalar"] * 2
    found = known("aten::_scaled_mm", [[64, 128], [128, 32], [], [], [], [], [], []], fp8, [""] * 6 + ["6", "False"])
    assert found == OpWork(2 * 64 * 128 * 32, 128 * 96, 4 * 64 * 32, "fp8", "matmul")
    fp4 = ["c10::Float4_e2m1fn_x2"] * 2 + fp8[2:]
    packed = known("aten::_scaled_mm", [[64, 64], [64, 32], [], [], [], [], [], []], fp4, [""] * 6 + ["15", "False"])
    assert packed.flop_count == found.flop_count
    assert packed.dtype == "fp4"
    assert known("aten::_int_mm", [[32, 16], [16, 48]], ["signed char"] * 2).dtype == "int8"


@pytest.mark.parametrize(
    ("a", "b", "flop_count", "written"),
    [
        ([64, 32], [4, 32, 48], 2 * 64 * 32 * 48, 64 * 48),
        ([64, 320], [320, 48], 2 * 64 * 320 * 48, 4 * 64 * 48),
        ([4, 16, 32], [4, 32, 48], 2 * 4 * 16 * 32 * 48, 4 * 16 * 48),
    ],
)
def test_grouped_products(a, b, flop_count, written):
    types = ["c10::BFloat16"] * 2 + ["int", "", ""]
    found = known("aten::_grouped_mm", [a, b, [4], [], []], types, [""] * 5)
    assert (found.flop_count, found.write_bytes) == (flop_count, 2 * written)


def test_fused_experts():
    tokens, hidden, inner, experts, chosen = 100, 64, 32, 8, 2
    shapes = [[tokens, hidden], [experts, 2 * inner, hidden], [experts, hidden, inner], [tokens, chosen]]
    found = known("vllm::inplace_fused_experts", shapes, ["c10::BFloat16"] * 3 + ["float"])
    assert found.flop_count == 2 * tokens * chosen * (2 * inner * hidden + hidden * inner)
    assert found.read_bytes == 2 * (tokens * hidden + experts * 3 * inner * hidden) + 4 * tokens * chosen


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("_C::cutlass_scaled_mm", [[64, 48], [64, 128], [128, 48], [1], [1]]),
        ("aiter::gemm_a8w8", [[64, 128], [48, 128], [64, 1], [1, 48]]),
        ("vllm::rocm_unquantized_gemm", [[64, 128], [48, 128]]),
        ("sgl_kernel::fp8_scaled_mm", [[64, 128], [128, 48], [64, 1], [48, 1]]),
        ("_Linear", [[48, 128], [64, 128]]),
    ],
)
def test_products_of_other_libraries(name, shapes):
    types = ["c10::BFloat16"] * len(shapes)
    assert known(name, shapes, types).flop_count == 2 * 64 * 48 * 128


def test_lookups_read_rows_and_never_more_than_the_table():
    types = ["float", "long int"]
    few = known("aten::embedding", [[1000, 16], [10]], types)
    many = known("aten::embedding", [[10, 16], [1000]], types)
    assert few == OpWork(0, 10 * 64 + 80, 10 * 64, None, "embedding")
    assert many.read_bytes == 10 * 64 + 8000
    taken = known("aten::index", [[6400, 4096], [[4, 2048]]], ["Tensor(c10::Half)", "GenericList[Tensor(long int)]"])
    assert taken.write_bytes == 2 * 4 * 2048 * 4096
    assert work("aten::index", [[32, 2880], []], ["c10::BFloat16", ""]) is None


def test_fbgemm_lookup_takes_its_width_from_values_or_from_a_rowwise_state():
    shapes = [[0], [480000], [0], [0, 0], [5], [5], [6], [], [], [6], [], [1000], [321], [], [1000], [], [0]]
    types = ["float"] * 4 + ["int", "long", "int", "Scalar", "Scalar", "long", "Scalar", "long", "long", "Scalar"]
    types += ["float", "", "int"]
    name = "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function"
    rows = known(name, [*shapes, [], [], [], [5000]], [*types, "Scalar", "Scalar", "Scalar", "float"])
    told = known(name, shapes, types, [""] * 7 + ["480"] + [""] * 9)
    assert (rows.flop_count, rows.write_bytes) == (told.flop_count, told.write_bytes) == (2 * 96000, 4 * 64 * 480)
    assert not rows.is_exact
    assert told.is_exact


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values", "expected"),
    [
        ("aten::add_", [[64], [64], []], ["float", "float", "Scalar"], None, (64, 512, 256)),
        ("aten::copy_", [[64], [64], []], ["c10::Half", "float", "Scalar"], None, (0, 256, 128)),
        ("aten::fill_", [[64], []], ["float", "Scalar"], None, (0, 0, 256)),
        ("aten::sigmoid", [[8, 8]], ["c10::BFloat16"], None, (64, 128, 128)),
        ("aten::div", [[8], [8]], ["long", "long"], None, (8, 128, 32)),
        ("aten::__or__", [[8], [8]], ["bool", "bool"], None, (8, 16, 8)),
        ("aten::sum", [[4, 8], [], []], ["float", "ScalarList", "Scalar"], ["", "[1]", "True"], (32, 128, 16)),
        ("aten::sum", [[4, 8], [], [], []], ["float", "", "Scalar", ""], None, (32, 128, 4)),
        ("aten::max", [[4, 8], [], []], ["float", "Scalar", "Scalar"], ["", "-1", "False"], (32, 128, 4 * 12)),
        ("aten::native_layer_norm", [[4, 8], [], [8], [8]], ["float", "", "float", "float"], None, (224, 192, 128)),
        ("aten::_softmax", [[4, 8], [], []], ["float", "Scalar", "Scalar"], None, (160, 128, 128)),
        ("_C::fused_add_rms_norm", [[4, 8], [4, 8], [8], []], ["float"] * 3 + ["Scalar"], None, (160, 288, 256)),
        ("_C::silu_and_mul", [[4, 8], [4, 16]], ["float"] * 2, None, (64, 256, 128)),
        ("_C_cache_ops::reshape_and_cache_flash", [[8, 1, 64], [8, 1, 64], [999, 16, 1, 64], [999, 16, 1, 64], [8]],
         ["c10::BFloat16"] * 2 + ["unsigned char"] * 2 + ["long int"], None, (0, 2112, 1024)),
    ],
)  # fmt: skip
def test_one_pass_over_the_data(name, shapes, types, values, expected):
    found = known(name, shapes, types, values)
    assert (found.flop_count, found.read_bytes, found.write_bytes) == expected


def test_lists_of_tensors():
    lists = "GenericList[Tensor(float),Tensor(float)]"
    trace = known("aten::_foreach_add_", [[[4], [5]], [[4], [5]], []], [lists, lists, "Int"], [[], [], 1])
    assert trace == OpWork(9, 72, 36, "fp32", "elementwise lists")
    profile = [[[4], [5]], [[4], [5]], []], ["TensorList", "TensorList", "Scalar"]
    assert work("aten::_foreach_add_", *profile) is None
    assert known("aten::_foreach_add_", *profile, list_kind="fp32") == trace
    assert work("aten::cat", [[], []], ["TensorList", "Scalar"], list_kind="fp32") is None
    adam = known("aten::_fused_adamw_", [[[8]], [[8]], [[8]], [[8]], [], [[]]], ["TensorList"] * 6, list_kind="fp32")
    assert (adam.read_bytes, adam.write_bytes) == (4 * 32, 3 * 32)


def test_compiled_kernels_touch_no_more_than_their_sizes():
    red = known("triton_red_fused_mean_0", [[8, 4096, 2048], [2048], [8, 4096, 2048], [], []],
                ["c10::BFloat16"] * 3 + ["Scalar"] * 2, ["", "", "", "32768", "2048"])  # fmt: skip
    assert (red.flop_count, red.is_exact) == (0, False)
    assert red.read_bytes + red.write_bytes == 2 * (2 * 8 * 4096 * 2048 + 2048)
    lookup = known("triton_poi_fused_embedding_0", [[10], [151936, 1024], [10, 1024], []],
                   ["long int", "float", "float", "Scalar"], ["", "", "", "10240"])  # fmt: skip
    assert lookup.read_bytes == 80 + 4 * 10240
    product = known("triton_tem_fused_mm_3", [[64, 128], [128, 48], [64, 48]], ["c10::BFloat16"] * 3)
    assert product.flop_count == 2 * 64 * 128 * 48


@pytest.mark.parametrize(
    ("name", "shapes", "types"),
    [
        ("aten::mm", "[[2,3],[4,5]]", '["float","float"]'),
        ("aten::mm", "[[2,3]]", '["float","float"]'),
        ("aten::mm", None, '["float","float"]'),
        ("aten::mm", "[[2,3],[3,4]]", None),
        ("aten::mm", "[[2,3],[3,4]", '["float","float"]'),
        ("aten::mm", "{}", "[1,2]"),
        ("aten::mm", "[[2,3],[3,4]]", '["c10::Unheard","float"]'),
        ("aten::mm", "[[2,-3],[-3,4]]", '["float","float"]'),
        ("aten::mm", "[[9999999999999,999999999999],[999999999999,1]]", '["float","float"]'),
        ("aten::add", "[[2],[3]]", '["float","float"]'),
        ("aten::cat", "[3]", '["TensorList"]'),
        ("aten::convolution", "[[1],[1]]", '["float","float"]'),
        ("AddmmBackward0", "[[2,3]]", '["float"]'),
        ("aten::view", "[[2,3]]", '["float"]'),
    ],
)
def test_what_cannot_be_told_is_not_guessed(name, shapes, types):
    assert op_work(name, shapes, types, None) is None


SHAPES = ([[]], [], [0], [0, 0, 0, 0], [3], [2, 3], [2, 3, 4], [2, 2, 2, 2], [[2, 2], [2, 2]])
TYPES = ("float", "Scalar", "TensorList", "", "Tensor(c10::Half)", "GenericList[Tensor(float),Tensor(float)]", "long")
VALUES = ("", "0", "1", "-7", "[0, 0]", "[1, 1]", "[-3]", "True", "nan", [1, 2, 0, 4, 4, "cpu"])


def test_no_formula_stumbles_over_odd_arguments():
    chance = random.Random(7)
    for name in sorted(MODELS):
        for _ in range(60):
            shape, kind = chance.choice(SHAPES), chance.choice(TYPES)
            shapes = [shape if chance.random() < 0.9 else chance.choice(SHAPES) for _ in range(16)]
            types = ["float" if chance.random() < 0.5 else kind for _ in range(16)]
            found = work(name, shapes, types, [chance.choice(VALUES) for _ in range(16)], list_kind="fp32")
            if found is not None:
                assert min(found.flop_count, found.read_bytes, found.write_bytes) >= 0
                assert found.dtype is None or found.dtype in DTYPES


def test_overloads_and_unknown_names():
    assert formula_of("aten::add.Tensor") is formula_of("aten::add")
    assert formula_of("aten::unheard") is None
    assert formula_of("vllm::moe_forward") is None
