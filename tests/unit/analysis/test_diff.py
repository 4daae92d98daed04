"""Copies of a small job with one thing changed each: the change comes out first, exactly, and alone."""

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from chakra_et.analysis.diff import diff
from chakra_et.analysis.diff_noise import significance
from chakra_et.analysis.options import Options
from chakra_et.conversion import convert
from chakra_et.errors import InputError
from chakra_et.ir import CommType, TraceSet
from tests.unit.analysis.hand_made import Rank

STEP = 20_000
# Operators of a step: name, shapes, kernels with their times.
LAYER = [
    ("aten::mm", "[[64,64],[64,64]]", [("gemm_128x64", 1000)]),
    ("aten::native_layer_norm", "[[64,64],[64]]", [("layer_norm_stats", 100), ("layer_norm_apply", 50)]),
    ("aten::relu", "[[64,64]]", [("relu_kernel", 30)]),
]
OPS = [*LAYER * 3, ("aten::sum", "[[64,64]]", [("reduce_kernel", 40)])]


def made(ops=OPS, *, steps=6, sizes=(4096, 1024), rank=0, linked=True, types='["float","float"]', wobble=0, id_of=None):
    """A rank whose steps launch operators' kernels one after the other, and collectives beside them."""
    job = Rank(rank, world_size=2)
    correlation = 0
    for step in range(steps):
        begin = step * STEP
        job.step(step, begin, begin + STEP - 1)
        host, device = begin, begin + 100
        for name, shapes, kernels in ops:
            inputs = {"values": "[]", "shapes": shapes, "types": types}
            op = job.op(name, host, host + 5 * len(kernels), inputs=inputs)
            for kernel, time in kernels:
                correlation += 1
                job.call(correlation, host, host + 4, parent=op)
                host += 5
                parent = {"parent": op} if linked else {}
                time += wobble * (step % 3)
                job.kernel(kernel, device, device + time, correlation=correlation, **parent)
                device += time
        for size in sizes:
            correlation += 1
            job.call(correlation, host, host + 4)
            host += 5
            job.collective(CommType.ALL_REDUCE, device, device + 500, size, correlation=correlation)
            device += 200
        job.kernel("last", device + 400, begin + STEP + 90)
    trace = job.build()
    return trace if id_of is None else trace.with_nodes(trace.nodes.with_columns(id=pl.col("id") + id_of))


def changed(found, *what):
    rows = found.table.filter(pl.col("match") != "same") if not what else found.table.filter(pl.col("what").is_in(what))
    return rows


def edited(place, op):
    """The operators with one replaced."""
    return [*OPS[:place], op, *OPS[place + 1 :]]


def assert_adds_up(found):
    """The parts are the step, and causes of idleness the idle time, before, after and in the change."""
    parts = {row["part"]: row for row in found.steps.iter_rows(named=True)}
    for name in ("before_ns", "after_ns", "change_ns"):
        own = {part: row[name] for part, row in parts.items()}
        assert own["step"] == sum(own[part] for part in ("compute", "exposed_communication", "memory", "idle"))
        assert own["idle"] == sum(value for part, value in own.items() if part.startswith("idle_"))


@pytest.mark.parametrize("match", ["auto", "names", "ids"])
def test_nothing_changed(match):
    found = diff(made(), made(), match=match)
    assert found.table["change_ns"].unique().to_list() == [0]
    assert found.table["match"].unique().to_list() == ["same"]
    assert found.matched_by == ("names" if match == "names" else "ids")
    assert found.slowdown == 0
    assert found.headline == "step 20.000 us -> 20.000 us, +0.0 %"
    assert_adds_up(found)


@pytest.mark.parametrize("match", ["ids", "names"])
def test_a_slower_kernel_comes_first_and_exactly(match):
    slow = edited(
        4, ("aten::native_layer_norm", "[[64,64],[64]]", [("layer_norm_stats", 100), ("layer_norm_apply", 350)])
    )
    found = diff(made(), made(slow), match=match)
    top = found.table.filter(pl.col("what") == "op").row(0, named=True)
    assert (top["name"], top["before_ns"], top["after_ns"], top["change_ns"]) == (
        "aten::native_layer_norm",
        450,
        750,
        300,
    )
    assert (top["before_count"], top["after_count"]) == (3, 3)
    kernel = found.table.filter(pl.col("what") == "kernel").row(0, named=True)
    assert (kernel["name"], kernel["op"], kernel["change_ns"]) == ("layer_norm_apply", "aten::native_layer_norm", 300)
    others = found.table.filter(~pl.col("name").is_in(["aten::native_layer_norm", "layer_norm_apply", "last"]))
    assert others["change_ns"].unique().to_list() == [0]
    assert found.steps.filter(part="compute")["change_ns"].item() == 0  # the last kernel makes up for it
    assert_adds_up(found)


def test_the_step_and_its_parts_say_why():
    longer = [(name, shapes, [(kernel, 2 * time) for kernel, time in kernels]) for name, shapes, kernels in OPS]
    before, after = made(sizes=()), made(longer, sizes=())
    found = diff(
        before.with_nodes(before.nodes.filter(pl.col("name") != "last")),
        after.with_nodes(after.nodes.filter(pl.col("name") != "last")),
    )
    parts = {row["part"]: row["change_ns"] for row in found.steps.iter_rows(named=True)}
    assert parts["step"] == 0
    assert parts["compute"] == sum(time for _, _, kernels in OPS for _, time in kernels)
    assert parts["idle"] == -parts["compute"]
    assert_adds_up(found)


def test_an_inserted_kernel_moves_nothing_else():
    more = [*OPS[:4], ("aten::dropout", "[[64,64]]", [("dropout_kernel", 70)]), *OPS[4:]]
    found = diff(made(), made(more))
    assert found.matched_by == "names"
    assert changed(found).select("what", "match", "name", "after_ns", "after_count").rows() == [
        ("kernel", "added", "dropout_kernel", 70, 1.0),
        ("op", "added", "aten::dropout", 70, 1.0),
        ("host", "added", "aten::dropout", 5, 1.0),
    ]
    assert found.added["name"].to_list() == ["dropout_kernel", "aten::dropout"]
    back = diff(made(more), made())
    assert set(back.removed["name"]) == {"dropout_kernel", "aten::dropout"}


def test_an_extra_kernel_of_an_operator_is_a_kernel_alone():
    more = edited(6, ("aten::mm", "[[64,64],[64,64]]", [("gemm_128x64", 1000), ("splitk_reduce", 20)]))
    found = diff(made(), made(more), match="names")
    assert changed(found).select("what", "match", "name", "op").rows() == [
        ("kernel", "added", "splitk_reduce", "aten::mm")
    ]
    op = found.table.filter((pl.col("what") == "op") & (pl.col("name") == "aten::mm")).row(0, named=True)
    assert (op["match"], op["change_ns"], op["before_count"], op["after_count"]) == ("same", 20, 3, 3)


def test_a_changed_shape_is_the_same_operator():
    wide = edited(3, ("aten::mm", "[[64,64],[64,128]]", [("gemm_128x128", 1800)]))
    found = diff(made(), made(wide), match="names")
    row = found.shapes.row(0, named=True)
    assert found.shapes.height == 1
    assert (row["name"], row["shapes"], row["after_shapes"]) == ("aten::mm", "[[64,64],[64,64]]", "[[64,64],[64,128]]")
    assert (row["before_ns"], row["after_ns"], row["before_count"], row["after_count"]) == (1000, 1800, 1, 1)
    rest = found.table.filter((pl.col("what") == "op") & (pl.col("name") == "aten::mm") & (pl.col("match") == "same"))
    assert rest.select("before_ns", "after_ns", "before_count").rows() == [(2000, 2000, 2.0)]
    kernel = found.table.filter((pl.col("what") == "kernel") & (pl.col("match") == "renamed")).row(0, named=True)
    assert (kernel["name"], kernel["after_name"], kernel["change_ns"]) == ("gemm_128x64", "gemm_128x128", 800)


def test_changed_types_are_a_change_and_their_spelling_is_none():
    found = diff(made(), made(types='["c10::BFloat16","c10::BFloat16"]'), match="names")
    assert set(found.table.filter(pl.col("what") == "op")["match"]) == {"shapes"}
    assert found.shapes["after_types"].unique().to_list() == ['["c10::BFloat16","c10::BFloat16"]']
    found = diff(made(), made(types='["Tensor(float)","Tensor(float)"]'), match="names")
    assert set(found.table["match"]) == {"same"}


def test_other_kernels_for_the_same_work():
    other = [
        (name, shapes, [(f"volta_{kernel}", 2 * time) for kernel, time in kernels]) for name, shapes, kernels in OPS
    ]
    found = diff(made(), made(other), match="names")
    kernels = found.table.filter((pl.col("what") == "kernel") & pl.col("op").is_not_null())
    assert kernels["match"].unique().to_list() == ["renamed"]
    assert all(row["after_name"] == f"volta_{row['name']}" for row in kernels.iter_rows(named=True))
    assert set(found.table.filter(pl.col("what") == "op")["match"]) == {"same"}
    assert any("kernels of other names" in finding.text for finding in found.findings)


def test_a_renamed_operator_with_the_same_kind_of_kernel():
    other = edited(3, ("aten::addmm", "[[64],[64,64],[64,64]]", [("gemm_bias_128x64", 1000)]))
    found = diff(made(), made(other), match="names")
    row = found.table.filter((pl.col("what") == "op") & (pl.col("match") == "renamed")).row(0, named=True)
    assert (row["name"], row["after_name"], row["before_count"], row["after_count"]) == (
        "aten::mm",
        "aten::addmm",
        1,
        1,
    )


def test_kernels_without_operators_go_by_their_names():
    def plain(trace):
        return trace.with_nodes(trace.nodes.filter(~pl.col("is_cpu_op") | (pl.col("type") == 1)))

    slow = edited(9, ("aten::sum", "[[64,64]]", [("reduce_kernel", 90)]))
    found = diff(
        plain(made(linked=False)), plain(made(slow, linked=False)), match="names", options=Options(iteration="whole")
    )
    top = found.table.filter(pl.col("what") == "kernel").row(0, named=True)
    assert (top["name"], top["change_ns"], top["before_count"]) == ("reduce_kernel", 300, 6)
    assert found.table.filter(pl.col("what") == "op").is_empty()


def test_a_lost_collective():
    found = diff(made(), made(sizes=(1024,)))
    lost = found.communications.filter(pl.col("match") == "removed").row(0, named=True)
    assert (lost["comm_type"], lost["size_bytes"], lost["before_count"], lost["after_count"]) == (
        "all_reduce",
        4096,
        1,
        0,
    )
    assert lost["kernel"] == "ncclDevKernel_ALL_REDUCE"
    kept = found.communications.filter(pl.col("match") == "same").row(0, named=True)
    assert (kept["size_bytes"], kept["change_ns"]) == (1024, 0)
    assert any(finding.text.startswith("communications a step: 2 before, 1 after") for finding in found.findings)
    assert any(finding.text.startswith("launches a step") for finding in found.findings)


def test_a_collective_of_another_size():
    found = diff(made(), made(sizes=(8192, 1024)), match="names")
    row = found.communications.filter(pl.col("match") == "shapes").row(0, named=True)
    assert (row["size_bytes"], row["after_size_bytes"]) == (4096, 8192)


def test_launches_are_counted():
    found = diff(made(), made([*OPS, ("aten::relu", "[[64,64]]", [("relu_kernel", 30)])]), match="names")
    row = found.launches.row(0, named=True)
    assert (row["name"], row["before_count"], row["after_count"], row["change_ns"]) == ("cudaLaunchKernel", 15, 16, 4)


def test_steps_that_begin_elsewhere_in_the_program():
    layers = [(f"aten::op{place}", f"[[{place}]]", [(f"kernel_{place}", 20 + place)]) for place in range(40)]
    turned = [*layers[15:], *layers[:15]]
    found = diff(made(layers), made(turned), match="names")
    assert set(found.table["match"]) == {"same"}
    # Another shape in the block that moved is found there, too.
    turned[30] = ("aten::op5", "[[7777]]", [("kernel_5", 99)])
    found = diff(made(layers), made(turned), match="names")
    assert found.shapes.select("name", "after_shapes").rows() == [("aten::op5", "[[7777]]")]


def test_noise_and_more_than_noise():
    slow = edited(0, ("aten::mm", "[[64,64],[64,64]]", [("gemm_128x64", 1500)]))
    found = diff(made(wobble=7), made(slow, wobble=7), match="names")
    sure = dict(found.table.filter(pl.col("what") == "op").select("name", "significant").rows())
    assert sure == {"aten::mm": True, "aten::native_layer_norm": False, "aten::relu": False, "aten::sum": False}
    once = diff(made(steps=1), made(slow, steps=1), match="names")
    assert once.table["significant"].null_count() == once.table.height
    assert any("one iteration each" in note for note in once.notes)
    ids = diff(made(), made(slow), match="ids")
    assert ids.table["significant"].null_count() == ids.table.height


def test_ranks_are_paired_and_the_others_named():
    two = TraceSet((made(rank=0), made(rank=1)))
    found = diff(two, made(rank=1))
    assert found.parameters["ranks"] == [[1, 1]]
    assert "compared on 1 of 2 ranks before; left out: 0" in found.notes
    found = diff(made(rank=0), made(rank=1), match="names")
    assert found.parameters["ranks"] == [[0, 1]]
    assert any("no rank is in both sets" in note for note in found.notes)
    slow = edited(0, ("aten::mm", "[[64,64],[64,64]]", [("gemm_128x64", 1500)]))
    found = diff(two, TraceSet((made(rank=0), made(slow, rank=1))), options=Options(by=("rank",)))
    rows = found.table.filter((pl.col("what") == "op") & (pl.col("change_ns") > 0))
    assert rows.select("rank", "name", "change_ns").rows() == [(1, "aten::mm", 500)]
    assert found.steps["rank"].unique().to_list() == [0, 1]
    both = diff(two, TraceSet((made(rank=0), made(slow, rank=1))))
    assert both.table.filter((pl.col("what") == "op") & (pl.col("change_ns") > 0))["change_ns"].to_list() == [250]


def test_nodes_of_a_copy():
    trace = made()
    row = trace.nodes.filter(pl.col("name") == "relu_kernel")["id"][4]
    later = trace.nodes.with_columns(
        duration_ns=pl.when(pl.col("id") == row).then(pl.col("duration_ns") + 11).otherwise("duration_ns"),
        start_ns=pl.col("start_ns") + 5_000_000,
    )
    found = diff(trace, trace.with_nodes(later))
    first = found.nodes.row(0, named=True)
    assert (first["id"], first["name"], first["duration_change_ns"], first["start_change_ns"]) == (
        row,
        "relu_kernel",
        11,
        0,
    )
    timing = found.timing
    assert timing is not None
    assert (timing.nodes, timing.equal) == (found.nodes.height, found.nodes.height - 1)
    assert (timing.start_error_max_ns, timing.before_only, timing.after_only) == (0, 0, 0)
    assert timing.before_makespan_ns == timing.after_makespan_ns
    assert diff(trace, trace, match="names").timing is None


def test_a_part_of_a_set_is_compared_with_its_part():
    trace = made()
    inside = pl.col("start_ns").is_between(3 * STEP, 4 * STEP - 1)
    part = trace.with_nodes(trace.nodes.filter(inside))
    for found in (diff(trace, part), diff(part, trace)):
        assert found.matched_by == "ids"
        assert found.iterations["iteration"].unique().to_list() == [3]
        assert found.table["change_ns"].unique().to_list() == [0]
        assert any("is a part of the other one" in note for note in found.notes)


def test_what_is_missing_all_over_was_removed():
    trace = made(sizes=(4096,))
    collectives = trace.nodes["type"] == 7
    # One of them, and all of a kind: neither makes the rest a stretch of the whole.
    for gone in (pl.col("id") == trace.nodes.filter(collectives)["id"][2], pl.col("name") == "gemm_128x64"):
        found = diff(trace, trace.with_nodes(trace.nodes.filter(~gone)), match="ids")
        assert not any("is a part of the other one" in note for note in found.notes)
        assert found.timing is not None
        assert found.timing.before_only == trace.nodes.filter(gone).height
    assert diff(trace, trace.with_nodes(trace.nodes.filter(~gone)), match="ids").removed["name"].to_list()
    lost = diff(trace, trace.with_nodes(trace.nodes.filter(pl.col("type") != 7)), match="ids")
    assert lost.communications.select("match", "before_count", "after_count").rows() == [("removed", 1, 0)]


def test_ids_of_other_runs_are_no_copies():
    found = diff(made(), made([("aten::zeros", "[[4]]", [("fill", 10)]), *OPS]))
    assert found.matched_by == "names"
    assert set(found.added["name"]) == {"aten::zeros", "fill"}


def test_runs_of_one_program_are_no_copies():
    trace = made()
    other = trace.with_nodes(trace.nodes.with_columns(tid=pl.col("tid") + 7))
    assert diff(trace, other).matched_by == "names"
    assert diff(trace, other, match="ids").timing is not None
    sources = [replace(trace, metadata=replace(trace.metadata, sources=({"file": name},))) for name in "ab"]
    assert diff(*sources).matched_by == "names"
    assert diff(sources[0], sources[0]).matched_by == "ids"
    assert diff(sources[0], trace).matched_by == "ids"


def test_ranks_without_a_device():
    def hosted(times):
        job = Rank()
        for step in range(3):
            begin = step * 1000
            job.step(step, begin, begin + 900)
            for place, time in enumerate(times):
                job.op(
                    f"aten::op{place}", begin, begin + time, inputs={"values": "[]", "shapes": "[[4]]", "types": "[]"}
                )
                begin += time
            job.add(
                "gloo:all_reduce", 7, begin, begin + 50, is_cpu_op=True, tid=9, comm_type=0, comm_size=64, pg_name="0"
            )
        return job.build()

    found = diff(hosted((100, 200)), hosted((100, 260)), match="names")
    assert found.table.select("what", "name", "change_ns").rows()[:2] == [("step", "step", 0), ("op", "aten::op1", 60)]
    assert set(found.table["what"]) == {"step", "op", "communication"}
    assert_adds_up(found)
    mixed = diff(hosted((100, 200)), made())
    assert any("only one of the sets has device activities" in note for note in mixed.notes)


def test_results_are_plain_data():
    found = diff(
        made(), made(edited(3, ("aten::mm", "[[64,64],[64,128]]", [("gemm", 1800)])), sizes=(1,)), match="names"
    )
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert {"analysis", "parameters", "rows", "coverage", "notes", "findings", "steps", "matched_by", "nodes"} <= set(
        data
    )
    assert data["analysis"] == "diff"
    picture = json.loads(json.dumps(found.plot().as_dict(), allow_nan=False))
    fall, bars = picture["data"]
    assert fall["x"] == ["before", "compute", "exposed<br>communication", "memory", "idle", "after"]
    assert fall["base"][-2] + fall["y"][-2] == pytest.approx(fall["y"][-1])
    assert len(bars["x"]) == len(bars["y"]) == len(set(bars["y"]))


def test_what_is_asked_for_wrongly():
    with pytest.raises(InputError, match="match: expected one of auto, ids, names, got 'best'"):
        diff(made(), made(), match="best")
    with pytest.raises(InputError, match="by: expected one or more of rank, got 'iteration'"):
        diff(made(), made(), options=Options(by=("iteration",)))
    with pytest.raises(InputError, match="expected nodes of equal ids and names in both sets, got none; leave it out"):
        diff(made(), made(id_of=10_000_000), match="ids")
    with pytest.raises(InputError, match="expected some of 0, 1, 2, 3, 4, 5, got 9"):
        diff(made(), made(), options=Options(iteration=9))


def test_empty_traces_compare():
    empty = Rank().build()
    found = diff(empty, made())
    assert found.table.filter(pl.col("what") == "step")["after_ns"].item() == STEP
    assert any("nothing to compare with" in note for note in found.notes)
    assert diff(empty, empty).slowdown is None


def exact_bound(before, after):
    """Of all ways to deal n + m different steps, the share that lies at least as far apart as complete order."""
    from itertools import combinations

    total = before + after
    sums = [sum(chosen) for chosen in combinations(range(total), before)]
    middle = np.mean(sums)
    return lambda chosen: np.mean([abs(value - middle) >= abs(sum(chosen) - middle) - 1e-9 for value in sums])


@pytest.mark.parametrize(("before", "after"), [(4, 4), (4, 5), (5, 5), (4, 7), (6, 6)])
def test_the_rank_test_is_as_strict_as_the_exact_one(before, after):
    from itertools import combinations

    share = exact_bound(before, after)
    for chosen in list(combinations(range(before + after), before))[::3]:
        others = [value for value in range(before + after) if value not in chosen]
        told = significance(np.array([chosen], float), np.array([others], float))[0]
        assert told == (share(chosen) <= 0.05)


def test_few_steps_are_tested_by_their_spread():
    def told(before, after):
        return significance(np.array([before], float), np.array([after], float))[0]

    assert told([100], [200]) is None
    assert told([], [200]) is None
    assert told([100, 101], [150, 151]) is True
    assert told([100, 140], [150, 151]) is False
    assert told([100, 101, 99], [130]) is True
    assert told([100, 101, 99], [102]) is False
    assert told([5, 5], [6, 6]) is True
    assert told([5, 5], [5, 5]) is False


@pytest.fixture(scope="module")
def real_pair(repository):
    """Rank 3 of 8 on A100s, and rank 1 of 2 on V100s with a compiled model: another program, other kernels."""
    folder = repository.parent / "shared" / "traces" / "kineto"
    paths = [folder / f"{name}.json.gz" for name in ("diff_control_a100", "diff_test_v100")]
    if not all(path.exists() for path in paths):
        pytest.skip("needs the folder shared beside the checkout")
    return diff(*(convert(path).traces for path in paths))


def test_real_steps_are_those_of_the_profiles(real_pair):
    """Worked out from the JSON files: steps 1010 to 1013, from the first launched kernel to the next one's."""
    step = {row["part"]: row for row in real_pair.steps.iter_rows(named=True)}
    assert (step["step"]["before_ns"], step["step"]["after_ns"]) == (77_135_500, 119_485_500)
    assert (step["compute"]["before_ns"], step["compute"]["after_ns"]) == (47_349_000, 87_283_500)
    assert step["step"]["significant"]
    assert_adds_up(real_pair)
    assert real_pair.headline.startswith("step 77.135 ms -> 119.486 ms, +54.9 %: compute +39.934 ms, memory +13.123 ms")


def test_real_launches_and_collectives_are_those_of_the_profiles(real_pair):
    calls = {row["name"]: row for row in real_pair.launches.iter_rows(named=True)}
    told = {
        name: [row[key] for key in ("before_ns", "after_ns", "before_count", "after_count")]
        for name, row in calls.items()
    }
    assert told == {
        "cudaMemcpyAsync": [13_249_500, 54_898_250, 38, 802],
        "cudaGraphLaunch": [0, 2_864_000, 0, 2.25],
        "cudaMemsetAsync": [634_750, 393_500, 109, 49],
        "cudaLaunchKernel": [9_825_500, 7_077_500, 1428, 811],
    }
    comms = real_pair.communications
    # A device far behind its host turns the step around: collectives are found all the same, the uneven ones too.
    assert comms["match"].value_counts().sort("match").rows() == [("same", 6), ("shapes", 4)]
    reduce = comms.filter((pl.col("comm_type") == "all_reduce") & (pl.col("size_bytes") == 181_240_752))
    assert reduce.select("before_ns", "after_ns", "before_count", "after_count").row(0) == (1_927_750, 12_376_250, 1, 1)
    sums = comms.group_by("comm_type").agg(pl.col("before_ns", "after_ns").sum()).sort("comm_type").rows()
    assert sums[0] == ("all_reduce", 6_003_500, 13_411_000)
    # The profile counts in us: conversion snaps ends that reach into the next activity.
    assert sums[1][1:] == pytest.approx((23_060_000, 25_070_000), abs=1000)


def test_real_compiled_operators_are_new(real_pair):
    new = real_pair.added.filter(pl.col("what") == "op")["name"].head(2).to_list()
    assert new == ["CompiledFunctionBackward", "CompiledFunction"]
    kernels = real_pair.table.filter(pl.col("what") == "kernel")
    gemms = kernels.filter((pl.col("match") == "renamed") & pl.col("after_name").str.contains("volta"))
    assert gemms.height
    assert not gemms["name"].str.contains("volta").any()
