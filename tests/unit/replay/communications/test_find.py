"""Every communication of a trace is found, with what it takes to make it again."""

import pytest

from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceBuilder
from chakra_et.replay.communications.arguments import parse_arguments, torch_dtype
from chakra_et.replay.communications.find import Communications, find_communications

WORLD = ProcessGroup("0", (0, 1, 2, 3), 4)
PAIR = ProcessGroup("tp", (2, 3), 2)
ALL_REDUCE = (
    "c10d::allreduce_(Tensor[] tensors, ProcessGroup process_group, ReduceOp reduce_op, Tensor? sparse_indices, "
    "bool async_op=True, int timeout=-1) -> (Tensor[], Work)"
)


def call(
    builder: TraceBuilder, name: str, schema: str, values: str, shapes: str, types: str, start: int, **more: object
) -> int:
    inputs = {"values": values, "shapes": shapes, "types": types}
    return builder.add(
        f"c10d::{name}", NodeType.COMP_NODE, op_schema=schema, inputs=inputs, start_ns=start, duration_ns=10,
        is_cpu_op=True, tid=1, **more,
    )  # fmt: skip


def all_reduce(builder: TraceBuilder, start: int, *, is_async: bool, storage: int = 7) -> tuple[int, int]:
    values = f'[[[1,{storage},0,12,4,"cpu"]],"<Object>","<Object>","<None>",{str(is_async).lower()},-1]'
    own = call(
        builder, "allreduce_", ALL_REDUCE, values,
        "[[[3,4]],[],[],[],[],[]]", '["GenericList[Tensor(float)]","Object","Object","None","Bool","Int"]', start,
    )  # fmt: skip
    work = builder.add(
        "gloo:all_reduce", NodeType.COMM_COLL_NODE, parent=own, comm_type=int(CommType.ALL_REDUCE), comm_size=48,
        comm_dtype="float", pg_name="0", start_ns=start + 5, duration_ns=30, is_cpu_op=True, tid=2,
    )  # fmt: skip
    return own, work


def found(builder: TraceBuilder, rank: int = 2) -> Communications:
    return find_communications(builder.build(), rank, world_size=4)


def builder(rank: int = 2) -> TraceBuilder:
    return TraceBuilder(rank=rank, world_size=4, process_groups=(WORLD, PAIR))


def test_a_call_that_waits_has_its_arguments_shape_group_and_times() -> None:
    made = builder()
    all_reduce(made, 100, is_async=False)
    (one,) = found(made).calls
    assert (one.kind, one.inputs, one.outputs, one.dtype) == ("allreduce_", ((3, 4),), ((3, 4),), "float32")
    assert (one.ranks, one.reduce_op, one.reduce_op_assumed) == ((0, 1, 2, 3), "sum", True)
    assert (one.asynchronous, one.wait_row) == (False, None)
    assert (one.start_ns, one.end_ns, one.comm_start_ns, one.duration_ns) == (100, 110, 105, 30)


def test_a_sync_edge_tells_the_wait() -> None:
    made = builder()
    own, work = all_reduce(made, 100, is_async=True)
    made.add("aten::add", NodeType.COMP_NODE, ctrl_deps=[own], start_ns=112, duration_ns=5, is_cpu_op=True, tid=1)
    made.add("launch_latency", NodeType.COMP_NODE, sync_deps=[work], gap_kind="launch_latency", start_ns=135,
             duration_ns=1, is_cpu_op=True, tid=2)  # fmt: skip
    made.add("host_idle", NodeType.COMP_NODE, sync_deps=[work], gap_kind="host_idle", start_ns=135, duration_ns=1,
             is_cpu_op=True, tid=1)  # fmt: skip
    (one,) = found(made).calls
    assert (one.asynchronous, one.wait_row, one.wait_assumed) == (True, 4, False)


def test_a_noted_wait_comes_before_a_sync_edge() -> None:
    made = builder()
    own = call(made, "allreduce_", ALL_REDUCE, '[[[1,7,0,12,4,"cpu"]],"<Object>","<Object>","<None>",true,-1]',
               "[[[3,4]],[],[],[],[],[]]",
               '["GenericList[Tensor(float)]","Object","Object","None","Bool","Int"]', 100, comm_id=5)  # fmt: skip
    work = made.add("gloo:all_reduce", NodeType.COMM_COLL_NODE, parent=own, comm_type=0, comm_size=48, pg_name="0",
                    reduce_op="max", comm_async=True, comm_id=5, start_ns=105, duration_ns=30)  # fmt: skip
    made.add("c10d::wait", NodeType.METADATA_NODE, comm_id=5, start_ns=120, span_ns=20, duration_ns=0, is_cpu_op=True)
    made.add("host_idle", NodeType.COMP_NODE, sync_deps=[work], start_ns=140, duration_ns=1, is_cpu_op=True)
    (one,) = found(made).calls
    assert (one.comm_id, one.wait_row, one.wait_assumed) == (5, 2, False)
    assert (one.reduce_op, one.reduce_op_assumed) == ("max", False)


def test_without_either_the_first_use_of_its_tensors_is_the_wait() -> None:
    made = builder()
    all_reduce(made, 100, is_async=True, storage=7)
    other = {"values": '[[9,70,0,4,4,"cpu"]]', "shapes": "[[4]]", "types": '["Tensor(float)"]'}
    use = {"values": '[[8,7,4,4,4,"cpu"]]', "shapes": "[[4]]", "types": '["Tensor(float)"]'}
    made.add("aten::neg", NodeType.COMP_NODE, inputs=other, start_ns=150, duration_ns=1, is_cpu_op=True)
    made.add("aten::neg", NodeType.COMP_NODE, inputs=use, start_ns=160, duration_ns=1, is_cpu_op=True)
    (one,) = found(made).calls
    assert (one.wait_row, one.wait_assumed) == (3, True)


def test_without_a_use_the_end_of_the_iteration_is_the_wait() -> None:
    made = builder()
    made.add("ProfilerStep#3", NodeType.METADATA_NODE, start_ns=0, span_ns=200, duration_ns=0, is_cpu_op=True)
    all_reduce(made, 100, is_async=True)
    made.add("aten::neg", NodeType.COMP_NODE, start_ns=160, duration_ns=1, is_cpu_op=True)
    made.add("aten::neg", NodeType.COMP_NODE, start_ns=220, duration_ns=1, is_cpu_op=True)
    (one,) = found(made).calls
    assert (one.wait_row, one.wait_assumed) == (4, True)


def test_nccl_records_tell_their_wait_by_sequence_number() -> None:
    made = builder()
    text = '["GenericList[Tensor(float)]","Int","Tuple[String,String]","Int","String"]'
    for number, start in ((41, 100), (42, 200)):
        own, _ = all_reduce(made, start, is_async=True)
        values = f'[[[1,7,0,12,4,"cuda:0"]],{number},["0","default_pg"],2,"allreduce"]'
        made.add("record_param_comms", NodeType.COMP_NODE, parent=own, start_ns=start + 1, duration_ns=1,
                 inputs={"values": values, "shapes": "[[[3,4]],[],[],[],[]]", "types": text})  # fmt: skip
    for number, start in ((42, 300), (41, 400)):
        made.add("record_param_comms", NodeType.COMP_NODE, start_ns=start, duration_ns=1,
                 inputs={"values": f'[{number},["",""],2,"wait"]', "shapes": "[[],[],[],[]]",
                         "types": '["Int","Tuple[String,String]","Int","String"]'})  # fmt: skip
    assert [one.wait_row for one in found(made).calls] == [7, 6]


@pytest.mark.parametrize(
    ("waits", "rows"),
    [(("tp", "0"), [(7, False), (6, False)]), (("", ""), [(3, True), (None, True)])],
)
def test_groups_count_their_calls_each_by_itself(waits: tuple[str, str], rows: list[tuple[int | None, bool]]) -> None:
    made = builder()
    text = '["GenericList[Tensor(float)]","Int","Tuple[String,String]","Int","String"]'
    for group, start in (("0", 100), ("tp", 200)):
        own, _ = all_reduce(made, start, is_async=True)
        values = f'[[[1,7,0,12,4,"cuda:0"]],5,["{group}","a"],2,"allreduce"]'
        made.add("record_param_comms", NodeType.COMP_NODE, parent=own, start_ns=start + 1, duration_ns=1,
                 inputs={"values": values, "shapes": "[[[3,4]],[],[],[],[]]", "types": text})  # fmt: skip
    for group, start in zip(waits, (300, 400), strict=True):
        made.add("record_param_comms", NodeType.COMP_NODE, start_ns=start, duration_ns=1,
                 inputs={"values": f'[5,["{group}","{group and "a"}"],2,"wait"]', "shapes": "[[],[],[],[]]",
                         "types": '["Int","Tuple[String,String]","Int","String"]'})  # fmt: skip
    assert [(one.wait_row, one.wait_assumed) for one in found(made).calls] == rows


def test_what_a_call_does_itself_is_no_use_of_its_tensors() -> None:
    made = builder()
    own, _ = all_reduce(made, 100, is_async=True, storage=7)
    use = {"values": '[[8,7,4,4,4,"cpu"]]', "shapes": "[[4]]", "types": '["Tensor(float)"]'}
    made.add("aten::copy_", NodeType.COMP_NODE, parent=own, inputs=use, start_ns=106, duration_ns=1, is_cpu_op=True)
    made.add("aten::neg", NodeType.COMP_NODE, inputs=use, start_ns=160, duration_ns=1, is_cpu_op=True)
    assert [one.wait_row for one in found(made).calls] == [3]


def test_a_batch_of_messages_ends_at_a_wait_and_at_an_operator() -> None:
    schema = "c10d::send(Tensor[] tensors, PG process_group, int dst, int tag) -> Work"

    def batches(*between: str) -> list[int | None]:
        made = builder()
        for number, what in enumerate(between):
            start = 100 * (number + 1)
            values = f'[[[1,{number},0,8,2,"cpu"]],"<Object>",1,9]'
            own = call(made, "send", schema, values, "[[[8]],[],[],[]]",
                       '["GenericList[Tensor(c10::Half)]","Object","Int","Int"]', start, comm_id=number)  # fmt: skip
            made.add("gloo:send", NodeType.COMM_SEND_NODE, parent=own, pg_name="tp", comm_async=True, comm_id=number,
                     start_ns=start, duration_ns=1)  # fmt: skip
            if what == "wait":
                made.add("c10d::wait", NodeType.METADATA_NODE, comm_id=0, start_ns=start + 50, span_ns=1,
                         is_cpu_op=True)  # fmt: skip
            elif what:
                made.add("aten::neg", NodeType.COMP_NODE, op_schema=what, start_ns=start + 50, is_cpu_op=True)
        return [one.batch for one in found(made).calls]

    assert batches("", "", "") == [0, 0, 0]
    assert batches("", "wait", "", "") == [0, 0, 2, 2]
    assert batches("", "aten::neg(Tensor self) -> Tensor", "") == [0, 0, None]


def test_roots_and_peers_are_ranks_of_the_group_in_arguments_and_of_the_job_in_the_call() -> None:
    made = builder()
    for name, schema, values, shapes, types in (
        ("broadcast_", "c10d::broadcast_(Tensor[] tensors, PG process_group, int root_rank, int root_tensor) -> Work",
         '[[[1,2,0,8,2,"cpu"]],"<Object>",1,0]', "[[[8]],[],[],[]]",
         '["GenericList[Tensor(c10::Half)]","Object","Int","Int"]'),
        ("send", "c10d::send(Tensor[] tensors, PG process_group, int dst, int tag) -> Work",
         '[[[1,3,0,8,2,"cpu"]],"<Object>",1,9]', "[[[8]],[],[],[]]",
         '["GenericList[Tensor(c10::Half)]","Object","Int","Int"]'),
    ):  # fmt: skip
        own = call(made, name, schema, values, shapes, types, 100)
        kind = NodeType.COMM_SEND_NODE if name == "send" else NodeType.COMM_COLL_NODE
        made.add(f"gloo:{name}", kind, parent=own, pg_name="tp", comm_type=5, start_ns=100, duration_ns=1)
    broadcast, send = found(made).calls
    assert (broadcast.root, broadcast.peer, broadcast.dtype) == (3, None, "float16")
    assert (send.peer, send.tag, send.inputs, send.outputs) == (3, 9, ((8,),), ())


def test_splits_are_rows_and_elements() -> None:
    schema = (
        "c10d::alltoall_base_(Tensor output, Tensor input, PG process_group, int[] output_split_sizes, "
        "int[] input_split_sizes, bool async_op=True, int timeout=-1) -> Work"
    )
    made = builder()
    values = '[[1,2,0,20,4,"cpu"],[3,4,0,15,4,"cpu"],"<Object>",[1,3],[2,1],false,-1]'
    own = call(made, "alltoall_base_", schema, values,
               "[[4,5],[3,5],[],[],[],[],[]]",
               '["Tensor(float)","Tensor(float)","Object","GenericList[Int,Int]","GenericList[Int,Int]","Bool","Int"]',
               100)  # fmt: skip
    made.add("gloo:all_to_all", NodeType.COMM_COLL_NODE, parent=own, pg_name="tp", comm_type=6, start_ns=100,
             duration_ns=1)  # fmt: skip
    (one,) = found(made).calls
    assert (one.in_splits, one.out_splits) == ((2, 1), (1, 3))
    assert (one.in_split_elements, one.out_split_elements) == ((10, 5), (5, 15))
    assert (one.in_elements, one.out_elements) == (15, 20)


def test_a_kernel_without_a_call_is_made_from_its_columns() -> None:
    made = builder()
    columns = {"is_cpu_op": False, "stream": 7, "pg_name": "tp", "comm_dtype": "BFloat16", "duration_ns": 9}
    made.add("ncclDevKernel_AllGather", NodeType.COMM_COLL_NODE, comm_type=2, comm_size=64, start_ns=10, **columns)
    made.add("ncclDevKernel_SendRecv", NodeType.COMM_SEND_NODE, comm_size=32, comm_dst=3, start_ns=20, **columns)
    made.add("ncclDevKernel_AllToAll", NodeType.COMM_COLL_NODE, comm_type=6, comm_size=16, in_split_sizes="[3,5]",
             out_split_sizes="[4,1]", start_ns=30, **columns)  # fmt: skip
    gather, send, exchange = found(made).calls
    assert (gather.kind, gather.inputs, gather.outputs) == ("_allgather_base_", ((32,),), ((64,),))
    assert (send.kind, send.peer, send.inputs) == ("send", 3, ((16,),))
    assert (exchange.inputs, exchange.outputs, exchange.out_splits) == (((8,),), ((5,),), (4, 1))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"pg_name": "other"}, "its process group is unknown"),
        ({"pg_name": "0", "comm_type": None, "unknown_comm": True}, "what it does is unknown"),
        ({"pg_name": "0", "comm_size": None}, "its size is unknown"),
    ],
)
def test_what_cannot_be_made_again_says_why(columns: dict[str, object], reason: str) -> None:
    made = builder()
    node = {"comm_type": 0, "comm_size": 64, "comm_dtype": "float", "start_ns": 1, "duration_ns": 1, **columns}
    made.add("ncclDevKernel_Generic", NodeType.COMM_COLL_NODE, is_cpu_op=False, **node)
    both = found(made)
    assert both.calls == ()
    assert [one.reason for one in both.skipped] == [reason]


def test_lists_that_other_ranks_fill_are_empty() -> None:
    schema = "c10d::gather_(Tensor[][] output_tensors, Tensor[] input_tensors, PG process_group, int root_rank) -> Work"
    inputs = {"values": '[[[]],[[1,2,0,1,4,"cpu"]],"<Object>",0]', "shapes": "[[[]],[[]],[],[]]",
              "types": '["GenericList[GenericList[]]","GenericList[Tensor(long int)]","Object","Int"]'}  # fmt: skip
    told = parse_arguments("gather_", schema, inputs)
    assert told is not None
    assert (told.outputs, told.inputs, told.dtype) == ((), ((),), "int64")


def test_element_types_of_all_profiles_have_torchs_names() -> None:
    names = ("Tensor(float)", "c10::BFloat16", "Float", "long int", "Half", "unsigned char", "c10::Float8_e4m3fn")
    assert [torch_dtype(name) for name in names] == [
        "float32", "bfloat16", "float32", "int64", "float16", "uint8", "float8_e4m3fn",
    ]  # fmt: skip
    assert torch_dtype("<Object>") == ""
