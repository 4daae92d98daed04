"""Arguments of communications on the host side, in every version's order."""

import json

import pytest

from chakra_et.frontends.pytorch.comm_records import (
    CommRecord,
    parse_c10d,
    parse_records,
    range_bytes,
    tensor_bytes,
)
from tests.unit.frontends.pytorch.profiles import host_trace, node

SMALL, LARGE = [11, 12, 0, 100, 4, "cuda:0"], [13, 14, 0, 800, 4, "cuda:0"]
FLOATS = "GenericList[Tensor(float)]"


NAMED = [
    FLOATS, "Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"
]  # fmt: skip


def record_of(values, types, outputs=()):
    trace = host_trace(
        [node(2, "aten::x"), node(3, "record_param_comms", inputs={"values": values, "types": types},
                                  outputs={"values": list(outputs)})]
    )  # fmt: skip
    found = parse_records(trace.nodes)
    assert set(found) <= {1}
    return found.get(1)


def test_up_to_1_0_2_the_group_is_a_pointer():
    found = record_of(
        [[SMALL], 337, 93825133356096, 3, "allreduce", [], [], 8],
        [FLOATS, "Int", "Int", "Int", "String", "GenericList[]", "GenericList[]", "Int"],
        [[SMALL]],
    )
    assert found == CommRecord(
        name="allreduce", in_bytes=400, out_bytes=400, dtype="float", group="93825133356096", size=8, rank=3, seq=337
    )


def test_the_oldest_have_no_group_size():
    found = record_of(
        [LARGE, 147, 93891384002768, 2, "all_to_allv", [1, 2], [2, 1]],
        ["Tensor(float)", "Int", "Int", "Int", "String", "GenericList[Int,Int]", "GenericList[Int,Int]"],
        [SMALL],
    )
    assert (found.in_bytes, found.out_bytes, found.size, found.rank) == (3200, 400, 0, 2)
    assert (found.in_split, found.out_split) == ("[1,2]", "[2,1]")


def test_from_1_0_3_the_group_has_a_name():
    found = record_of(
        [[SMALL], 35, ["3", "dp"], 1, "allreduce", [], [], 4, 2, 8],
        NAMED,
        [[SMALL]],
    )
    assert found == CommRecord(
        name="allreduce",
        in_bytes=400,
        out_bytes=400,
        dtype="float",
        group="3",
        description="dp",
        size=8,
        rank=1,
        seq=35,
        start_rank=4,
        stride=2,
    )


def test_from_1_1_1_the_sequence_number_has_a_flag():
    kinds = [FLOATS, "Tuple[Int,Bool]", *NAMED[2:]]
    found = record_of([[SMALL], [9, True], ["0", "default_pg"], 1, "send", [], [], 0, 1, 2], kinds)
    assert (found.name, found.seq, found.rank, found.group, found.root) == ("send", 9, 1, "0", None)


@pytest.mark.parametrize("name", ["broadcast", "reduce", "gather", "scatter", "_broadcast_oop"])
def test_rooted_collectives_name_their_root(name):
    found = record_of(
        [[SMALL], 35, ["0", "default_pg"], 5, name, [], [], 0, 1, 8],
        NAMED,
    )
    assert found.root == 5


def test_waits_have_no_tensors():
    found = record_of(
        [337, 0, 3, "wait", [], [], 1], ["Int", "Int", "Int", "String", "GenericList[]", "GenericList[]", "Int"]
    )
    assert (found.name, found.in_bytes, found.group, found.dtype) == ("wait", 0, "", "")
    found = record_of(
        [33, ["", ""], 1, "wait", [], [], -1, -1, 1],
        ["Int", "Tuple[String,String]", "Int", "String", "GenericList[]", "GenericList[]", "Int", "Int", "Int"],
    )
    assert (found.name, found.group, found.rank) == ("wait", "", 1)


@pytest.mark.parametrize(
    ("values", "types"), [([], []), (["x"], ["Int"]), ([1], ["Int", "Int"]), ([1, 2], ["Int", "String"])]
)
def test_records_without_a_name_are_left_out(values, types):
    assert record_of(values, types) is None


def test_tensor_bytes_of_nested_lists():
    assert tensor_bytes([[SMALL, [LARGE]], 5, "x", []]) == 3600
    assert tensor_bytes(None) == tensor_bytes([1, 2, 3]) == 0


def c10d(name, values=(), kinds=(), *, dims=(), types=(), concrete=(), dtype=""):
    """Parse a call; `values` and `kinds` are the execution trace's, `dims`, `types` and `concrete` the profile's."""
    dims, types, concrete, values, kinds = (
        json.dumps(list(part)) if part else "" for part in (dims, types, concrete, values, kinds)
    )
    return parse_c10d(name, dims=dims, types=types, values=concrete, et_values=values, et_types=kinds, dtype=dtype)


GROUP = "<Object>"


def test_c10d_calls_from_the_execution_trace():
    found = c10d("c10d::allreduce_", [[SMALL], GROUP, GROUP, None, False, -1], [FLOATS])
    assert (found.in_bytes, found.dtype, found.is_async) == (400, "float", False)
    found = c10d("c10d::broadcast_", [[SMALL], GROUP, 2, 0, True, -1], [FLOATS])
    assert (found.in_bytes, found.root, found.is_async, found.peer) == (400, 2, True, None)
    found = c10d("c10d::reduce_", [[SMALL], GROUP, GROUP, 3, 0, True, -1], [FLOATS])
    assert (found.root, found.is_async) == (3, True)
    found = c10d("c10d::send", [[SMALL], GROUP, 3, 7], [FLOATS])
    assert (found.in_bytes, found.peer, found.tag, found.root, found.is_async) == (400, 3, 7, None, None)


def test_c10d_calls_with_input_and_output():
    lists = ["GenericList[GenericList[Tensor(float)]]", FLOATS]
    found = c10d("c10d::allgather_", [[[SMALL] * 8], [SMALL], GROUP, True], lists)
    assert (found.in_bytes, found.out_bytes, found.size, found.is_async) == (400, 3200, 8, True)
    found = c10d("c10d::_allgather_base_", [LARGE, SMALL, GROUP, True], ["Tensor(float)", "Tensor(float)"])
    assert (found.in_bytes, found.out_bytes, found.size) == (400, 3200, 8)
    found = c10d("c10d::_reduce_scatter_base_", [SMALL, LARGE, GROUP, GROUP, True], ["Tensor(float)", "Tensor(float)"])
    assert (found.in_bytes, found.out_bytes, found.size) == (3200, 400, 8)
    found = c10d("c10d::alltoall_", [[SMALL] * 4, [SMALL] * 4, GROUP, False], [FLOATS, FLOATS])
    assert (found.in_bytes, found.out_bytes, found.size, found.is_async) == (1600, 1600, 4, False)
    found = c10d("c10d::alltoall_base_", [SMALL, SMALL, GROUP, [1, 3], [3, 1], True], ["Tensor(float)"] * 2)
    assert (found.in_split, found.out_split, found.is_async) == ("[3,1]", "[1,3]", True)
    assert c10d("c10d::alltoall_base_", [SMALL, SMALL, GROUP, [], []], ["Tensor(float)"] * 2).in_split == ""


def test_c10d_calls_from_the_profile_alone():
    found = c10d("c10d::allreduce_", dims=[[[10, 10]], [], []], types=["TensorList", "", ""], dtype="float",
                 concrete=["", "", "", "", "True", "-1"])  # fmt: skip
    assert (found.in_bytes, found.dtype, found.is_async) == (400, "float", True)
    found = c10d("c10d::_allgather_base_", dims=[[800], [100]], types=["float", "float"])
    assert (found.in_bytes, found.out_bytes) == (400, 3200)
    found = c10d(
        "c10d::send", dims=[[[50]], [], [], []], types=["TensorList"], concrete=["", "", "1", "7"], dtype="c10::Half"
    )
    assert (found.in_bytes, found.peer, found.tag) == (100, 1, 7)


def test_c10d_calls_of_which_nothing_is_known():
    assert c10d("c10d::allreduce_") == CommRecord(name="allreduce_")
    barrier = c10d("c10d::barrier", [SMALL, GROUP, [], True, -1], ["Tensor(float)"])
    assert (barrier.in_bytes, barrier.is_async) == (0, True)
    assert c10d("c10d::something_new_", [[SMALL]], [FLOATS]).in_bytes == 400


@pytest.mark.parametrize(
    ("dims", "types", "expected"),
    [
        ([[10, 10], [2]], ["float", "float"], (408, "float")),
        ([[[3], [4]]], ["c10::Half"], (14, "c10::Half")),
        ([[]], ["float"], (4, "float")),
        ([[5]], ["TensorList"], (0, "")),
        ([], [], (0, "")),
    ],
)
def test_bytes_of_ranges(dims, types, expected):
    assert range_bytes(json.dumps(dims), json.dumps(types)) == expected


def test_bytes_of_ranges_without_arguments():
    assert range_bytes("", "") == range_bytes("broken", "[") == (0, "")
