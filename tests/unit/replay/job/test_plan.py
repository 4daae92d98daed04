"""The plans of all ranks: what is wanted, on as many ranks as there are, and only if they meet."""

import argparse
from pathlib import Path

import pytest

from chakra_et.errors import ReplayError
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceSet
from chakra_et.replay.job.arguments import add_options, job_options, launch_options
from chakra_et.replay.job.plan import JobOptions, plan_job
from chakra_et.replay.job.summary import summarize_job
from chakra_et.replay.plan.comms import CommFilter, calls_of


def rank_trace(rank: int, sizes: tuple[int, ...] = (64, 32), groups: tuple[str, ...] = ("0", "tp")) -> Trace:
    known = (ProcessGroup("0", (0, 1, 2, 3), 4), ProcessGroup("tp", (rank // 2 * 2, rank // 2 * 2 + 1), 2))
    builder = TraceBuilder(rank=rank, world_size=4, process_groups=known)
    for number, (size, group) in enumerate(zip(sizes, groups, strict=True)):
        builder.add("nccl", NodeType.COMM_COLL_NODE, comm_type=int(CommType.ALL_REDUCE), comm_size=size, pg_name=group,
                    comm_dtype="float", comm_async=False, start_ns=100 * number, duration_ns=10)  # fmt: skip
    return builder.build()


def job(*ranks: int) -> TraceSet:
    return TraceSet(tuple(rank_trace(rank) for rank in ranks))


COMM = JobOptions(only="comm")


def test_all_ranks_get_a_plan_and_all_groups_one_order() -> None:
    planned = plan_job(job(0, 1, 2, 3), COMM)
    assert planned.world_size == planned.recorded_world_size == 4
    assert [(group.name, group.ranks) for group in planned.groups] == [
        ("0", (0, 1, 2, 3)), ("tp", (0, 1)), ("tp", (2, 3)),
    ]  # fmt: skip
    assert planned.assumed_reduce_ops == 8
    assert planned.assumed_waits == 0


def test_one_rank_that_differs_stops_the_replay_unless_the_check_is_off() -> None:
    odd = TraceSet((rank_trace(0), rank_trace(1), rank_trace(2), rank_trace(3, sizes=(64, 36))))
    with pytest.raises(ReplayError, match=r"^out/: rank 3: node 1 \('allreduce_'\): expected allreduce_ of 8 float32"):
        plan_job(odd, COMM, place="out/")
    unchecked = plan_job(odd, JobOptions(only="comm", check=False))
    assert calls_of(unchecked.plans[3])[1].in_elements == 9


def test_a_rank_without_a_trace_follows_another() -> None:
    planned = plan_job(job(0), COMM)
    assert [calls_of(plan)[1].ranks for plan in planned.plans] == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_fewer_ranks() -> None:
    planned = plan_job(job(0, 1, 2, 3), JobOptions(only="comm", world_size=2))
    assert planned.world_size == 2
    assert [(group.name, group.ranks) for group in planned.groups] == [("0", (0, 1)), ("tp", (0, 1))]


def test_a_filter_leaves_ranks_without_anything_to_do() -> None:
    keep = CommFilter(groups=("tp",))
    planned = plan_job(job(0, 1, 2, 3), JobOptions(only="comm", keep=keep))
    assert [[call.group for call in calls_of(plan)] for plan in planned.plans] == [["tp"]] * 4


@pytest.mark.parametrize("only", ["comm", "all"])
def test_a_filter_that_lets_nothing_through_is_refused(only: str) -> None:
    said = "expected a process group that communicates, got 'none'; groups: 0, tp; types: allreduce"
    with pytest.raises(ReplayError, match=said):
        plan_job(job(0, 1, 2, 3), JobOptions(only=only, keep=CommFilter(groups=("tp", "none"))))
    with pytest.raises(ReplayError, match="that the filters let through, got none; groups: 0, tp; types: allreduce"):
        plan_job(job(0, 1, 2, 3), JobOptions(only=only, keep=CommFilter(kinds=("send",))))


def test_the_summary_counts_each_communication_once() -> None:
    summary = summarize_job(plan_job(job(0, 1, 2, 3), COMM))
    assert [(group.name, count, size) for group, count, size in summary.groups] == [
        ("0", 1, 64), ("tp", 1, 32), ("tp", 1, 32),
    ]  # fmt: skip
    first = summary.ranks[0]
    assert (first.communications, first.communication_bytes, first.peak_bytes, first.operators) == (2, 96, 128, 0)
    assert summary.as_dict()["groups"][1]["ranks"] == [0, 1]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_options(parser)
    return parser.parse_args(list(words))


def test_options_of_the_command_line() -> None:
    args = parsed("--only", "comm", "--iterations", "2-4", "--group", "tp", "--type", "allreduce", "--world-size", "2",
                  "--sizes", "scale", "--check", "--timeout", "5", "--repeats", "7", "--seed", "3")  # fmt: skip
    options = job_options(args)
    assert options == JobOptions("comm", CommFilter(("tp",), ("allreduce",), (2, 4)), 2, "scale")
    launched = launch_options(args)
    assert (launched.replay.only, launched.replay.repeats, launched.connect.timeout_s) == ("comm", 7, 5.0)
    assert (launched.connect.check, launched.connect.seed, launched.record) == (True, 3, None)
    assert launch_options(parsed("--profile", "x")).record == Path("x").absolute()


@pytest.mark.parametrize(
    "words",
    [("--iterations", "4-2"), ("--iterations", "a"), ("--timeout", "0.9"), ("--repeats", "0"), ("--type", "none"),
     ("--profile", " "), ("--timeout", "x")],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(words: tuple[str, str]) -> None:
    with pytest.raises(argparse.ArgumentError):
        parsed(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--check",), "--check: expected --only comm beside it"),
        (("--delays", "none"), "--delays none: expected --only comm beside it"),
        (("--sizes", "scale"), "--sizes scale: expected --world-size beside it"),
        (("--only", "compute", "--group", "0"), "--group, --type: expected communications"),
    ],
)
def test_options_that_need_others_are_refused_without_them(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        job_options(parsed(*words))
