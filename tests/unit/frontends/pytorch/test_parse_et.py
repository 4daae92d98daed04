"""Execution traces of every schema become the same columns."""

import json

import pytest

from chakra_et.errors import FormatError
from chakra_et.frontends.pytorch.parse_et import SCHEMAS, parse_et
from chakra_et.ir import ProcessGroup
from tests.unit.frontends.pytorch.profiles import host_trace, node

TENSOR = [5, 6, 0, 12, 4, "cuda:0"]


def old_node(number, name, *, parent=1, **more):
    """A node of schema 1.0.1."""
    return {
        "name": name, "id": number, "rf_id": number + 1, "parent": parent, "fw_parent": 0, "seq_id": -1, "scope": 7,
        "tid": 1, "fw_tid": 0, "op_schema": "", "inputs": [], "input_shapes": [], "input_types": [], "outputs": [],
        "output_shapes": [], "output_types": [], **more,
    }  # fmt: skip


def test_schema_1_0_1():
    found = host_trace(
        [
            old_node(1, "[pytorch|profiler|execution_graph|process]"),
            old_node(
                3,
                "aten::mm",
                parent=2,
                op_schema="aten::mm(Tensor a)",
                inputs=[TENSOR, 2],
                input_shapes=[[3, 4], []],
                input_types=["Tensor(float)", "Int"],
                outputs=[[7, 8, 0, 1, 4, "cuda:0"]],
                output_shapes=[[1]],
                output_types=["Tensor(float)"],
                seq_id=9,
                tid=2,
                fw_tid=1,
                fw_parent=4,
            ),
        ],
        schema="1.0.1",
    )
    row = found.nodes.row(1, named=True)
    expected = {"id": 3, "name": "aten::mm", "parent": 2, "rf_id": 4, "fw_parent": 4, "seq_id": 9, "scope": 7}
    expected |= {"tid": 2, "fw_tid": 1}
    assert {name: row[name] for name in expected} == expected
    assert row["op_schema"] == "aten::mm(Tensor a)"
    assert json.loads(row["input_values"]) == [TENSOR, 2]
    assert json.loads(row["input_shapes"]) == [[3, 4], []]
    assert json.loads(row["output_types"]) == ["Tensor(float)"]
    assert row["input_strides"] == row["output_strides"] == ""


@pytest.mark.parametrize("version", [version for version in SCHEMAS if version != "1.0.1"])
@pytest.mark.parametrize("suffix", ["", "-chakra.0.0.4"])
def test_schemas_with_attributes(version, suffix):
    strides = {"strides": [[4, 1]]} if version.startswith("1.1") else {}
    found = host_trace(
        [
            node(2, "aten::mm", parent=1, rf=11, tid=3, op_schema="aten::mm(Tensor a)", seq_id=5,
                 inputs={"values": [TENSOR], "shapes": [[3, 4]], "types": ["Tensor(float)"], **strides},
                 outputs={"values": [TENSOR]}),
        ],
        schema=version + suffix,
    )  # fmt: skip
    assert found.schema == version + suffix
    row = found.nodes.row(0, named=True)
    assert (row["id"], row["parent"], row["rf_id"], row["tid"], row["seq_id"]) == (2, 1, 11, 3, 5)
    assert json.loads(row["input_values"]) == [TENSOR]
    assert json.loads(row["input_types"]) == ["Tensor(float)"]
    assert row["input_strides"] == ("[[4,1]]" if strides else "")
    assert row["op_schema"] == "aten::mm(Tensor a)"


def test_further_attributes_are_columns_where_a_node_has_them():
    found = host_trace([node(1, "a"), node(2, "triton", kernel_backend="triton", kernel_file="k.py", pg_size=8)])
    assert found.nodes["kernel_backend"].to_list() == [None, "triton"]
    assert found.nodes["pg_size"].to_list() == [None, "8"]
    assert "tensor_range" not in found.nodes.columns


def test_missing_attributes_have_defaults():
    found = host_trace([{"id": 4, "name": "a", "attrs": []}, {"id": 5, "name": "b"}])
    assert found.nodes.select("id", "parent", "rf_id", "seq_id", "tid").rows() == [(4, 0, 0, -1, 0), (5, 0, 0, -1, 0)]
    assert found.nodes["input_values"].to_list() == ["", ""]


def test_completion_order_is_sorted_by_start():
    found = host_trace([node(5, "child", parent=4), node(4, "parent", parent=2), node(9, "late"), node(2, "first")])
    assert found.nodes["name"].to_list() == ["first", "parent", "child", "late"]
    assert found.repairs == ()


def test_what_began_after_its_parent_ended_is_not_inside_it():
    """Nodes stand in the order of their ends. Gloo's range stays open on the caller's thread until a worker is done."""
    found = host_trace(
        [
            node(12, "c10d::allreduce_", parent=10),
            node(14, "aten::relu", parent=13),
            node(13, "gloo:all_reduce", parent=12),
            node(15, "aten::mul", parent=13),
            node(16, "aten::add", parent=12),
            node(10, "main", parent=2),
            node(2, "[pytorch|profiler|execution_trace|thread]", parent=1),
        ]
    )
    # What ended before the range did may be inside it: the file can't tell better.
    parents = dict(found.nodes.select("name", "parent").iter_rows())
    assert parents["aten::mul"] == parents["aten::add"] == parents["c10d::allreduce_"] == 10
    assert parents["main"] == 2


def test_files_in_the_order_of_starts_keep_their_parents():
    rows = [node(2, "[pytorch|profiler|execution_trace|thread]", parent=1), node(3, "a", parent=2)]
    found = host_trace([*rows, node(4, "b", parent=3), node(5, "c", parent=4)])
    assert found.nodes["parent"].to_list() == [1, 2, 3, 4]


def test_of_repeated_ids_the_first_is_kept():
    found = host_trace([node(2, "a"), node(2, "b"), node(3, "c"), node(2, "d")])
    assert found.nodes["name"].to_list() == ["a", "c"]
    assert found.repairs == ("2 nodes repeat an id; the first of each was kept",)


def test_nodes_without_id_are_dropped_and_counted():
    found = host_trace([node(2, "a"), {"name": "b"}, {}])
    assert found.nodes["name"].to_list() == ["a"]
    assert found.repairs == ("2 of 3 nodes have no id and were dropped",)


def test_huge_thread_ids_stay_apart():
    found = host_trace([node(1, "a", tid=2**64 - 1), node(2, "b", tid=2**64 - 2), node(3, "c", tid=140215923324672)])
    assert found.nodes["tid"].n_unique() == 3
    assert found.nodes["tid"][2] == 140215923324672


def test_an_unterminated_file_gives_its_whole_nodes():
    text = json.dumps({"schema": "1.1.1", "pid": 3, "nodes": [node(1, "a"), node(2, "b"), node(3, "c")]})
    found = parse_et("h", text[: text.rindex('"name": "c"')].encode())
    assert found.nodes["name"].to_list() == ["a", "b"]
    assert found.header["pid"] == 3
    assert "truncated" in found.repairs[0]


GROUPS = [
    {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "ranks": [], "group_size": 4},
    {"pg_name": "1", "ranks": [0, 2], "group_size": 2},
]


@pytest.mark.parametrize("values", [[json.dumps(GROUPS)], [GROUPS]])
def test_process_groups(values):
    found = host_trace([node(2, "## process_group:init ##", inputs={"values": values})])
    assert found.process_groups == (
        ProcessGroup("0", (), 4, "default_pg", "cpu:gloo"),
        ProcessGroup("1", (0, 2), 2),
    )


@pytest.mark.parametrize("values", [[], ["broken ["], [7], [json.dumps({"pg_name": "0"})], [json.dumps([3, "x"])]])
def test_broken_process_groups_give_none(values):
    assert host_trace([node(2, "## process_group:init ##", inputs={"values": values})]).process_groups == ()


@pytest.mark.parametrize(("schema", "told"), [("9.9.9", "'9.9.9'"), ("", "'none'")])
def test_unknown_schemas_are_refused(schema, told):
    with pytest.raises(
        FormatError, match=rf"h\.json: expected a PyTorch execution trace of schema 1\.0\.1, .* got {told}"
    ):
        host_trace([node(1, "a")], schema=schema)


def test_nothing_recorded_is_refused():
    with pytest.raises(FormatError, match=r"h\.json: expected nodes, got none"):
        host_trace([])


def test_other_json_is_refused():
    with pytest.raises(FormatError, match='expected JSON with a "nodes" array'):
        parse_et("h", b'{"traceEvents": []}')
