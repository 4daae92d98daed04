"""Communications get type, size, group and peers from the best source there is."""

import numpy as np
import pytest

from chakra_et.frontends.pytorch.comm_records import CommRecord
from chakra_et.frontends.pytorch.communication import (
    CommColumns,
    CommSource,
    assign_worker_groups,
    describe,
    name_groups,
)
from chakra_et.ir import CommType, NodeType, ProcessGroup

WORLD = ProcessGroup("0", (0, 1, 2, 3), 4, "default_pg")
PAIR = ProcessGroup("1", (1, 3), 2)
SEND, RECV = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


def told(
    name="ncclDevKernel_Generic", *, kernel=None, record=None, annotation="", dims="", types="", rank=1, groups=()
):
    defaults = {
        "in_elements": -1,
        "out_elements": -1,
        "group_size": -1,
        "src_rank": -1,
        "dst_rank": -1,
        "root_rank": -1,
    }
    source = CommSource(name, defaults | (kernel or {}), record, annotation, dims, types)
    return describe(source, rank=rank, groups={group.name: group for group in groups})


def kernel_of(collective, elements_in, elements_out, **more):
    return {
        "collective": collective,
        "in_elements": elements_in,
        "out_elements": elements_out,
        "dtype": "BFloat16",
        **more,
    }


@pytest.mark.parametrize(
    ("collective", "sizes", "kind", "size"),
    [
        ("allreduce", (64, 64), CommType.ALL_REDUCE, 128),
        # Bytes that each rank contributes; bytes of the whole vector that each holds.
        ("_allgather_base", (64, 256), CommType.ALL_GATHER, 128),
        ("_reduce_scatter_base", (256, 64), CommType.REDUCE_SCATTER, 512),
        ("all_to_all", (256, 256), CommType.ALL_TO_ALL, 512),
        ("broadcast", (64, 64), CommType.BROADCAST, 128),
        ("gather", (64, 0), CommType.GATHER, 128),
        # What each rank gets: only the root puts something in.
        ("scatter", (0, 64), CommType.SCATTER, 128),
        ("barrier", (0, 0), CommType.BARRIER, 0),
    ],
)
def test_kernels_describe_themselves(collective, sizes, kind, size):
    found = told(kernel=kernel_of(collective, *sizes, pg_name="0", pg_ranks="[0, 1, 2, 3]", group_size=4, pg_desc="dp"))
    assert (found.type, found.comm_type, found.comm_size) == (NodeType.COMM_COLL_NODE, int(kind), size)
    assert found.comm_dtype == "BFloat16"
    assert found.pg_name == "0"
    assert found.seen_group == ProcessGroup("0", (0, 1, 2, 3), 4, "dp")
    assert found.unknown_comm is None


def test_the_kernel_is_believed_before_the_host():
    record = CommRecord(name="broadcast", in_bytes=8, dtype="float", group="9")
    found = told(kernel=kernel_of("allreduce", 64, 64, pg_name="0"), record=record)
    assert (found.comm_type, found.comm_size, found.pg_name) == (CommType.ALL_REDUCE, 128, "0")


def test_the_host_fills_in_what_the_kernel_lacks():
    group = {"group": "3", "description": "dp", "size": 3, "start_rank": 1, "stride": 2}
    record = CommRecord(name="allreduce", in_bytes=400, out_bytes=400, dtype="float", **group)
    found = told("ncclDevKernel_AllReduce_Sum", record=record)
    assert (found.comm_type, found.comm_size, found.comm_dtype) == (CommType.ALL_REDUCE, 400, "float")
    assert found.pg_name == "3"
    assert found.seen_group == ProcessGroup("3", (1, 3, 5), 3, "dp")


def test_the_annotation_is_next():
    found = told(annotation="nccl:all_gather", dims="[[16]]", types='["float"]')
    assert (found.comm_type, found.comm_size, found.comm_dtype) == (CommType.ALL_GATHER, 64, "float")


def test_the_name_is_last():
    found = told("ncclKernel_ReduceScatter_RING_LL_Sum_half(ncclWorkElem)")
    assert (found.comm_type, found.comm_size, found.pg_name) == (CommType.REDUCE_SCATTER, None, None)


def test_what_nothing_names_is_marked():
    found = told()
    assert found.unknown_comm is True
    assert (found.type, found.comm_type, found.comm_size) == (NodeType.COMM_COLL_NODE, None, None)


def test_uneven_all_to_all_keeps_its_splits():
    found = told(kernel=kernel_of("all_to_allv", 10, 10, in_split="[3, 7]", out_split="[5, 5]"))
    assert (found.in_split_sizes, found.out_split_sizes) == ("[3,7]", "[5,5]")
    assert found.group_size == 2
    found = told(record=CommRecord(name="all_to_allv", in_bytes=40, in_split="[1,2,3]", out_split="[2,2,2]"))
    assert (found.in_split_sizes, found.out_split_sizes, found.group_size) == ("[1,2,3]", "[2,2,2]", 3)
    assert told(kernel=kernel_of("all_to_all", 10, 10, in_split="[]", out_split="[]")).in_split_sizes is None
    assert told(kernel=kernel_of("allreduce", 10, 10, in_split="[3, 7]")).in_split_sizes is None


def test_splits_of_rows_become_elements():
    record = CommRecord(
        name="alltoall_base_", in_bytes=10 * 64 * 4, out_bytes=8 * 64 * 4, dtype="float",
        in_split="[3,7]", out_split="[8,0]",
    )  # fmt: skip
    found = told(record=record)
    assert (found.in_split_sizes, found.out_split_sizes) == ("[192,448]", "[512,0]")


def test_sends_and_receives_name_both_ranks():
    found = told(kernel=kernel_of("send", 8, 8, dst_rank=3, pg_name="1"), groups=[WORLD, PAIR])
    assert (found.type, found.comm_src, found.comm_dst, found.comm_tag, found.comm_size) == (SEND, 1, 3, 0, 16)
    found = told(kernel=kernel_of("recv", 8, 8, src_rank=3), groups=[WORLD, PAIR])
    assert (found.type, found.comm_src, found.comm_dst) == (RECV, 3, 1)
    # The biggest group stands in for an unnamed one.
    assert found.pg_name == "0"


def test_peers_of_the_host_are_ranks_of_the_group():
    record = CommRecord(name="send", in_bytes=8, dtype="float", group="1", rank=1)
    assert told(record=record, groups=[WORLD, PAIR]).comm_dst == 3
    record = CommRecord(name="recv_", in_bytes=8, peer=0, tag=7, group="1")
    found = told(record=record, groups=[WORLD, PAIR])
    assert (found.comm_src, found.comm_dst, found.comm_tag) == (1, 1, 7)
    assert told(record=CommRecord(name="send"), groups=[]).comm_dst is None


def test_roots_are_global():
    record = CommRecord(name="broadcast", in_bytes=8, group="1", root=1)
    assert told(record=record, groups=[WORLD, PAIR]).comm_root == 3
    assert told(kernel=kernel_of("broadcast", 8, 8, root_rank=2)).comm_root == 2
    assert told(kernel=kernel_of("allreduce", 8, 8, root_rank=2)).comm_root is None


def test_the_only_group_is_taken():
    assert told("ncclDevKernel_AllReduce_Sum", groups=[WORLD]).pg_name == "0"
    assert told("ncclDevKernel_AllReduce_Sum", groups=[WORLD, PAIR]).pg_name is None


# Groups of host collectives by their workers --------------------------------------------------------------------------


def collective(kind=CommType.ALL_REDUCE, size=64, **more):
    return CommColumns(comm_type=int(kind), comm_size=size, **more)


def assigned(communications, workers, groups):
    assign_worker_groups(communications, np.array(workers, np.int64), groups)
    return [columns.pg_name for columns in communications]


def test_pools_of_workers_follow_groups():
    found = [collective(), collective(), collective(size=32), collective(size=8)]
    groups = [WORLD, PAIR, ProcessGroup("2", (0, 2), 2)]
    assert assigned(found, [100, 101, 105, 110], groups) == ["0", "0", "1", "2"]


def test_group_names_count_as_numbers():
    groups = [ProcessGroup(str(number), (), 4) for number in (10, 2)]
    assert assigned([collective(), collective(size=1)], [100, 200], groups) == ["2", "10"]


def test_a_known_size_skips_groups_that_werent_used():
    found = [collective(size=64), collective(CommType.ALL_GATHER, group_size=2)]
    groups = [WORLD, ProcessGroup("1", (0, 1, 2), 3), ProcessGroup("2", (1, 3), 2)]
    assert assigned(found, [100, 200], groups) == ["0", "2"]


def test_roots_follow_their_group():
    found = [collective(), collective(CommType.BROADCAST, size=1, comm_root=1)]
    assigned(found, [100, 200], [WORLD, PAIR])
    assert found[1].comm_root == 3


def test_named_and_unplaced_ones_are_left_alone():
    named, point = collective(pg_name="7"), CommColumns(type=SEND)
    assert assigned([named, point, collective()], [100, 200, -1], [WORLD]) == ["7", None, None]
    assert assigned([collective()], [100], []) == [None]


# Groups without names -------------------------------------------------------------------------------------------------


def test_pointers_are_numbered_in_order_of_first_use():
    found = [collective(pg_name=name, group_size=size) for name, size in
             (("93825133356096", 8), ("93825109001008", 2), ("93825133356096", 8))]  # fmt: skip
    groups = {}
    assert name_groups(found, groups, 8) == ""
    assert [columns.pg_name for columns in found] == ["0", "1", "0"]
    assert groups == {"0": ProcessGroup("0", tuple(range(8)), 8), "1": ProcessGroup("1", (), 2)}
    assert found[0].seen_group == groups["0"]


def test_known_names_stay():
    found = [collective(pg_name="3"), collective(pg_name="tp")]
    groups = {"3": PAIR}
    assert name_groups(found, groups, 4) == ""
    assert [columns.pg_name for columns in found] == ["3", "tp"]
    assert groups == {"3": PAIR}


def test_unnamed_ones_are_the_whole_job():
    found, groups = [collective(), collective()], {}
    assert name_groups(found, groups, 4) == "2 communications name no process group; took the whole job"
    assert groups == {"0": ProcessGroup("0", (0, 1, 2, 3), 4)}
    assert {columns.pg_name for columns in found} == {"0"}


def test_unnamed_ones_beside_known_groups_stay_unnamed():
    found = [collective()]
    assert name_groups(found, {"0": WORLD, "1": PAIR}, 4) == ""
    assert found[0].pg_name is None


def test_numbers_of_new_groups_are_free_ones():
    found, groups = [collective(pg_name="93825133356096", group_size=2)], {"0": WORLD}
    name_groups(found, groups, 4)
    assert found[0].pg_name == "1"
    assert set(groups) == {"0", "1"}
