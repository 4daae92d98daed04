"""The call behind each activity: its operator, module path or annotation, shapes and work."""

from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType, TraceBuilder

SHAPES = {"values": "", "shapes": "[[64,32],[32,16]]", "types": '["float","float"]'}


def calls(**op):
    """Return the calls of a kernel below an operator, in an annotation inside a step."""
    builder = TraceBuilder(rank=0)
    host = {"is_cpu_op": True, "tid": 1}
    step = builder.add("ProfilerStep#1", NodeType.METADATA_NODE, start_ns=0, span_ns=90, **host)
    note = builder.add("## forward ##", NodeType.METADATA_NODE, start_ns=0, span_ns=50, parent=step, **host)
    range_ = builder.add("nccl:all_reduce", NodeType.METADATA_NODE, start_ns=0, span_ns=40, parent=note, **host)
    mm = builder.add("aten::mm", NodeType.COMP_NODE, start_ns=1, duration_ns=5, parent=range_, **host, **op)
    for start, parent in ((10, mm), (20, step)):
        more = {} if parent is None else {"parent": parent}
        builder.add("sgemm", NodeType.COMP_NODE, start_ns=start, duration_ns=5, stream=7, is_cpu_op=False, **more)
    return RankView(builder.build(), 0).calls


def test_a_call_without_a_module_has_the_innermost_annotation():
    found = calls(inputs=SHAPES)
    assert found["op"].to_list() == ["aten::mm", None]
    assert found["module"].to_list() == ["## forward ##", None]
    assert found["shapes"].to_list() == [SHAPES["shapes"], None]
    assert found["flop_count"].to_list() == [2 * 64 * 32 * 16, None]


def test_module_paths_come_first():
    assert calls(module="Net_0/Linear_1", inputs=SHAPES)["module"].to_list() == ["Net_0/Linear_1", None]


def test_operators_without_arguments_have_no_work():
    found = calls()
    assert found["op"].to_list() == ["aten::mm", None]
    assert found["flop_count"].to_list() == [None, None]
