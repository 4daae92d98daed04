"""Records as an execution trace that our reader, and others', take."""

import gzip
import json

import pytest

torch = pytest.importorskip("torch")

from chakra_et.capture.fake.log import OBJECT, Log, Op, Sync, Wait  # noqa: E402
from chakra_et.capture.fake.writer import SCHEMA, execution_trace  # noqa: E402
from chakra_et.frontends.pytorch.parse_et import parse_et  # noqa: E402

GROUP = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "", "ranks": [0, 1], "group_size": 2}
aten = torch.ops.aten


def written(*records):
    log = Log()
    for function, args, kwargs, outputs, *rest in records:
        outputs = log.freeze(outputs)
        log.add(Op(function, tuple(map(log.freeze, args)), kwargs, outputs, 0, False, *rest))
    return document(log)


def document(log):
    text = gzip.decompress(
        b"".join(execution_trace(log, groups=[GROUP], header={"family": "compiled", "rank": 1}, device="cuda:1"))
    )
    log.close()
    return text


def call(text):
    return next(node for node in json.loads(text)["nodes"] if "::" in node["name"])


def test_arguments_stand_in_the_order_of_the_schema_with_defaults():
    x, y = torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bfloat16)
    node = call(written((aten.add.Tensor, (x, y), {"alpha": 2.5}, [x])))
    assert node["name"] == "aten::add"
    assert node["inputs"]["types"] == ["Tensor(float)", "Tensor(c10::BFloat16)", "Double"]
    assert node["inputs"]["values"] == [[1, 1, 0, 6, 4, "cuda:1"], [2, 2, 0, 6, 2, "cuda:1"], 2.5]
    assert node["inputs"]["shapes"] == [[2, 3], [2, 3], []]
    assert node["inputs"]["strides"] == [[3, 1], [3, 1], []]
    assert node["outputs"]["values"] == [[1, 1, 0, 6, 4, "cuda:1"]]
    left_out = call(written((aten.add.Tensor, (x, y), {}, [x])))
    assert left_out["inputs"]["values"][2] == 1
    schema = next(one["value"] for one in node["attrs"] if one["name"] == "op_schema")
    assert schema == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"


def test_values_that_arent_tensors():
    node = call(written((aten.empty.memory_format, ([2, 3],), {"dtype": torch.int64, "device": torch.device("cpu"),
                                                              "pin_memory": False}, [])))  # fmt: skip
    assert node["inputs"]["types"] == ["GenericList[Int,Int]", "Int", "None", "Device", "Bool", "None"]
    assert node["inputs"]["values"] == [[2, 3], 4, "<None>", "cuda:1", False, "<None>"]
    assert node["inputs"]["shapes"] == [[[], []], [], [], [], [], []]


def test_lists_of_tensors_and_numbers_that_json_lacks():
    x = torch.zeros(2)
    node = call(written((aten._foreach_add.Scalar, ([x, x], float("inf")), {}, [[x, x]])))
    assert node["inputs"]["types"] == ["GenericList[Tensor(float),Tensor(float)]", "Double"]
    assert node["inputs"]["values"][1] == "inf"
    assert node["outputs"]["shapes"] == [[[2], [2]]]


def test_our_reader_takes_it_with_notes_waits_and_groups():
    x = torch.zeros(8)
    log = Log()
    note = {"id": 5, "pg": "0", "async": True, "reduce_op": "max"}
    allreduce = torch.ops.c10d.allreduce_.default
    args = ([log.ref(x)], OBJECT, OBJECT, None, True, -1)
    log.add(Op(allreduce, args, {}, [[log.ref(x)], OBJECT], 0, True, note))
    log.add(Wait(5, 0))
    log.add(Sync(0, 3))
    host = parse_et("host.1.json", document(log))
    assert host.schema == SCHEMA
    assert host.header["chakra"] == {"family": "compiled", "rank": 1}
    assert [group.ranks for group in host.process_groups] == [(0, 1)]
    nodes = host.nodes.filter(host.nodes["name"].str.contains("c10d|chakra"))
    assert nodes["name"].to_list() == ["c10d::allreduce_", "## chakra:wait ##", "## chakra:sync ##"]
    call_id, wait_id, _ = nodes["id"].to_list()
    assert host.notes[call_id].reduce_op == "max"
    assert host.waits == {wait_id: 5}
    assert nodes["tid"].to_list() == [1, 1, 4]
    assert nodes["scope"].to_list() == [1, 7, 7]
    assert json.loads(json.loads(nodes["input_values"][2])[0]) == {"after": call_id}
