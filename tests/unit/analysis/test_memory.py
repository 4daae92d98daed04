"""Memory in use, its peak, and copies: against hand-made traces, a plain model, and the raw JSON of real profiles."""

import gzip
import json
from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakra_et.analysis.memory import memory
from chakra_et.analysis.options import Options
from chakra_et.errors import InputError
from chakra_et.frontends.pytorch.convert import convert_rank
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto
from chakra_et.ir import NodeType, TraceBuilder, TraceSet

META, COMP = NodeType.METADATA_NODE, NodeType.COMP_NODE
MIB = 1 << 20


class Job:
    """One rank's trace, a line a thing."""

    def __init__(self, rank=0):
        self.builder = TraceBuilder(rank=rank)
        self.held = {}

    def op(self, name, start, duration, parent=None, **columns):
        return self.builder.add(
            name, COMP, start_ns=start, duration_ns=duration, is_cpu_op=True, tid=1, parent=parent, **columns
        )

    def note(self, name, start, span, parent=None):
        return self.builder.add(name, META, start_ns=start, span_ns=span, is_cpu_op=True, tid=1, parent=parent)

    def memory(self, start, size, address, parent=None, device=0, **more):
        self.held[device] = self.held.get(device, more.pop("base", 0)) + size
        sums = {"alloc_total_bytes": self.held[device], "alloc_reserved_bytes": 1000 if device >= 0 else 0}
        block = {"alloc_bytes": size, "alloc_address": address, "device": device, "parent": parent, **sums, **more}
        return self.builder.add("[memory]", META, start_ns=start, is_cpu_op=True, tid=1, **block)

    def kernel(self, start, duration, name="gemm", **columns):
        kind = columns.pop("type", COMP)
        return self.builder.add(name, kind, start_ns=start, duration_ns=duration, is_cpu_op=False, stream=7, **columns)

    def copy(self, start, duration, name, kind, size=None):
        return self.kernel(start, duration, name, copy_kind=kind, tensor_size=size)

    def build(self):
        return self.builder.build()


def usual():
    """A block from before, one that outlives the peak, the peak, and one that is never freed."""
    job = Job()
    step = job.note("ProfilerStep#0", 0, 100)
    outer = job.op("aten::linear", 5, 60, step, module="Model_0/Linear_0")
    inner = job.op("aten::mm", 10, 20, outer)
    job.memory(6, 100, 1000, outer, base=500)
    job.memory(12, 200, 2000, inner)
    job.memory(40, -100, 1000, outer)
    job.memory(50, -50, 7000, step)
    job.memory(70, 10, 1000, step)
    job.kernel(20, 50)
    return job.build()


def test_peak_and_sums():
    found = memory(usual())
    row = found.table.row(0, named=True)
    assert found.table.height == 1
    assert {name: row[name] for name in ("rank", "device", "source", "events", "allocations")} == {
        "rank": 0, "device": 0, "source": "events", "events": 5, "allocations": 3,
    }  # fmt: skip
    assert (row["peak_bytes"], row["peak_ns"], row["peak_iteration"]) == (800, 12, 0)
    assert (row["peak_op"], row["peak_top_op"], row["peak_module"]) == ("aten::mm", "aten::linear", "Model_0/Linear_0")
    assert (row["begin_bytes"], row["end_bytes"]) == (500, 660)
    assert (row["allocated_bytes"], row["freed_bytes"]) == (310, 150)
    assert (row["peak_reserved_bytes"], row["reserved_at_peak_bytes"], row["unused_at_peak_bytes"]) == (1000, 1000, 200)
    assert (row["peak_phase"], row["growth_bytes"]) == (None, None)


def test_what_is_alive_at_the_peak_adds_up_to_it():
    found = memory(usual()).at_peak
    columns = ["size_bytes", "blocks", "origin", "op", "top_op", "address", "alloc_ns", "free_ns", "lifetime_ns"]
    assert found.select(columns).rows() == [
        (200, 1, "seen", "aten::mm", "aten::linear", 2000, 12, None, None),
        (100, 1, "seen", "aten::linear", "aten::linear", 1000, 6, 40, 34),
        (50, 1, "before", None, None, 7000, None, 50, None),
        (450, None, "unseen", None, None, None, None, None, None),
    ]
    assert found["module"].to_list() == ["Model_0/Linear_0", "Model_0/Linear_0", None, None]
    assert found["node"].to_list() == [2, 1, None, None]


def test_blocks_beyond_the_largest_are_put_together():
    job = Job()
    for number in range(60):
        job.memory(number, 100 + number, number)
    job.kernel(0, 100)
    found = memory(job.build()).at_peak
    assert found.height == 51
    assert found["size_bytes"][:2].to_list() == [159, 158]
    assert found.row(50, named=True)["blocks"] == 10
    assert found["size_bytes"].sum() == sum(100 + number for number in range(60))
    assert found["blocks"].sum() == 60


def test_phases():
    def phase_of(*around, more=()):
        job = Job()
        parent = None
        for place, name in enumerate(around):
            parent = (job.note if name.startswith("Optimizer") else job.op)(name, 10 + place, 50 - place, parent)
        for name in more:
            job.op(name, 100, 5)
        job.memory(30, 64, 1, parent)
        job.kernel(0, 5)
        return memory(job.build()).table["peak_phase"].item()

    backward = "autograd::engine::evaluate_function: MmBackward0"
    assert phase_of(backward, "MmBackward0", "aten::mm") == "backward"
    assert phase_of("Optimizer.step#Adam.step", "aten::mul", more=[backward]) == "optimizer"
    assert phase_of("aten::mm") is None


def test_without_the_allocators_sums_there_is_a_least():
    job = Job()
    for time, size in ((1, -300), (2, 100), (3, 250), (4, -100)):
        job.memory(time, size, time, alloc_total_bytes=None, alloc_reserved_bytes=None)
    job.kernel(0, 9)
    row = memory(job.build()).table.row(0, named=True)
    assert (row["begin_bytes"], row["peak_bytes"], row["peak_ns"], row["end_bytes"]) == (300, 350, 3, 250)
    assert row["peak_reserved_bytes"] is None


def test_memory_that_was_there_all_along_can_be_the_peak():
    job = Job()
    job.kernel(2, 9)
    job.memory(5, -100, 1, base=900)
    row = memory(job.build()).table.row(0, named=True)
    assert (row["peak_bytes"], row["peak_ns"], row["peak_op"]) == (900, 2, None)


def steps(sizes, rank=0, base=0):
    """One step of 100 ns each: it allocates a lot, frees that, and keeps what `sizes` says."""
    job = Job(rank)
    for number, kept in enumerate(sizes):
        begin = 100 * number
        step = job.note(f"ProfilerStep#{number}", begin, 100)
        call = job.op("aten::mm", begin + 10, 50, step)
        job.memory(begin + 20, 1000 * (1 + number % 3), number, call, base=base)
        job.memory(begin + 50, kept, 1000 + number, call)
        job.memory(begin + 60, -1000 * (1 + number % 3), number, call)
        job.kernel(begin + 20, 60)
    return job.build()


def test_iterations_and_growth():
    found = memory(steps([8, 8, 8, 8], base=64))
    columns = ["iteration", "begin_bytes", "end_bytes", "peak_bytes", "peak_ns", "allocated_bytes", "freed_bytes"]
    assert found.iterations.select(columns).rows() == [
        (0, 64, 72, 1072, 50, 1008, 1000),
        (1, 72, 80, 2080, 150, 2008, 2000),
        (2, 80, 88, 3088, 250, 3008, 3000),
        (3, 88, 96, 1096, 350, 1008, 1000),
    ]
    assert found.table["growth_bytes"].item() == 8
    assert any("grows with each of 4 iterations" in finding.text for finding in found.findings)
    steady = memory(steps([8, 0, 8, 0]))
    assert not any("grows" in finding.text for finding in steady.findings)


@pytest.mark.parametrize(
    ("chosen", "peak"),
    [(None, (3024, 2)), ("all", (3024, 2)), ("whole", (3024, None)), (1, (2016, 1)), ((0, 3), (1032, 3))],
)
def test_the_peak_of_numbered_iterations(chosen, peak):
    row = memory(steps([8, 8, 8, 8]), options=Options(iteration=chosen)).table.row(0, named=True)
    assert (row["peak_bytes"], row["peak_iteration"]) == peak


def test_an_iteration_without_events_has_what_was_in_use_before():
    job = Job()
    for number in range(3):
        job.note(f"ProfilerStep#{number}", 100 * number, 100)
        job.kernel(100 * number + 10, 20)
    job.memory(10, 700, 1)
    job.memory(250, -700, 1)
    found = memory(job.build(), options=Options(iteration=1))
    assert found.table.select("peak_bytes", "peak_ns", "peak_iteration").row(0) == (700, 100, 1)
    assert found.iterations["peak_bytes"].to_list() == [700, 700, 700]


def copies_job():
    job = Job()
    job.copy(0, 10, "Memcpy HtoD (Pageable -> Device)", "HtoD", 1000)
    job.copy(5, 10, "Memcpy HtoD (Pageable -> Device)", "HtoD", 3000)
    job.copy(100, 20, "Memcpy HtoD (Pinned -> Device)", "HtoD", 8000)
    job.copy(200, 10, "Memcpy DtoD (Device -> Device)", "DtoD")
    job.copy(300, 10, "Memset (Device)", "memset", 500)
    job.kernel(400, 10, "load", type=NodeType.MEM_LOAD_NODE, tensor_size=40)
    job.kernel(500, 100)
    return job


def test_copies_by_kind():
    found = memory(copies_job().build())
    columns = ["kind", "memory", "copies", "bytes", "without_bytes", "time_ns", "duration_ns"]
    assert found.copies.select(columns).rows() == [
        ("DtoD", None, 1, 0, 1, 10, 10),
        ("HtoD", "pageable", 2, 4000, 0, 15, 20),
        ("HtoD", "pinned", 1, 8000, 0, 20, 20),
        ("load", None, 1, 40, 0, 10, 10),
        ("memset", None, 1, 500, 0, 10, 10),
    ]
    rates = found.copies.select(pl.selectors.starts_with("bandwidth")).rows()
    assert rates[0] == (None, None, None, None)
    assert rates[1] == (2e11, 1e11, 3e11, 3e11)
    row = found.table.row(0, named=True)
    assert (row["copies"], row["copied_bytes"], row["copy_ns"]) == (6, 12540, 65)
    kinds = ("htod_bytes", "dtoh_bytes", "dtod_bytes", "ptop_bytes", "memset_bytes")
    assert [row[name] for name in kinds] == [12000, 0, 0, 0, 500]
    assert row["source"] is None
    assert row["peak_bytes"] is None
    assert any("don't tell their size" in note for note in found.notes)
    finding = next(finding for finding in found.findings if "pageable" in finding.text)
    assert finding.cost_ns == 15


def test_bandwidth_over_time_adds_up_what_runs_together():
    found = memory(copies_job().build()).bandwidth.filter(pl.col("kind") == "HtoD")
    rates = [100, 400, 300, 0, 400, 0]
    assert found["time_ns"].to_list() == [0, 5, 10, 15, 100, 120]
    assert found["bandwidth_bytes_per_s"].to_list() == [rate * 10**9 for rate in rates]


def test_copies_are_those_of_the_chosen_iterations():
    job = Job()
    for number in range(4):
        job.note(f"ProfilerStep#{number}", 100 * number, 100)
        job.kernel(100 * number + 10, 20)
        job.copy(100 * number + 40, 10, "Memcpy DtoH (Device -> Pinned)", "DtoH", 64)
    found = memory(job.build())
    assert found.copies.select("iterations", "copies", "bytes").rows() == [(2, 2, 128)]


def test_copies_are_of_the_device_whose_memory_is_known():
    job = Job()
    job.memory(1, 64, 1, device=3)
    job.memory(2, 8, 2, device=-1)
    job.copy(0, 10, "Memset (Device)", "memset", 500)
    found = memory(job.build())
    assert found.table.select("device", "peak_bytes", "copied_bytes").rows() == [(3, 64, 500), (-1, 8, 0)]
    assert found.table["peak_reserved_bytes"].to_list() == [1000, None]
    assert any("host's memory" in note for note in found.notes)


def test_ranks_side_by_side():
    ranks = TraceSet((steps([8] * 3, rank=0), steps([8] * 3, rank=1, base=10_000)))
    found = memory(ranks)
    assert found.table.select("rank", "peak_bytes").rows() == [(0, 3024), (1, 13024)]
    assert any("peaks differ between ranks" in finding.text for finding in found.findings)
    merged = memory(ranks, options=Options(by=("device",))).table
    assert merged.select("device", "events", "peak_bytes").rows() == [(0, 18, 13024)]
    with pytest.raises(InputError, match="rank, device"):
        memory(ranks, options=Options(by=("kind",)))


def test_nothing_known_is_said():
    job = Job()
    job.kernel(0, 10)
    found = memory(job.build())
    assert found.table.select("rank", "device", "source", "peak_bytes", "copies").rows() == [(0, 0, None, None, 0)]
    assert any("profile_memory=True" in note for note in found.notes)
    assert (found.timeline.height, found.at_peak.height, found.copies.height) == (0, 0, 0)


def record(tensor, storage, elements, device="cuda:0", offset=0):
    return [tensor, storage, offset, elements, 4, device]


def used(job, name, start, duration, inputs=(), outputs=(), parent=None):
    texts = [{"values": json.dumps(values), "shapes": "", "types": ""} for values in (list(inputs), list(outputs))]
    return job.op(name, start, duration, parent, inputs=texts[0], outputs=texts[1])


def tensors():
    """Weights (storage 1), an activation (2) that lives on in a view, and its number used again for something else."""
    job = Job()
    weights, act, view = record(1, 1, 100), record(2, 2, 50), record(3, 2, 10, offset=60)
    linear = used(job, "aten::linear", 0, 5, [weights], [act])
    used(job, "aten::empty", 1, 2, [], [act], linear)
    # The rest of the operator, after its callee.
    job.op("aten::linear", 3, 7, linear, segment=1)
    used(job, "aten::slice", 20, 10, [act], [view])
    used(job, "aten::sum", 40, 10, [[view, "x"]], [record(4, 3, 1)])
    used(job, "aten::ones", 60, 10, [], [record(5, 2, 1000)])
    used(job, "aten::item", 80, 10, [record(5, 2, 1000), record(6, 4, 2, "cpu"), record(7, 5, 9, "meta")])
    job.kernel(0, 95)
    return job


def test_tensors_live_from_their_first_to_their_last_use():
    found = memory(tensors().build())
    assert found.table.select("device", "source", "allocations", "peak_bytes", "peak_ns", "peak_op").rows() == [
        (0, "tensors", 3, 4000, 60, "aten::ones"),
        (-1, "tensors", 0, 8, 80, "aten::item"),
    ]
    # Storage 2 is as long as its view reaches: 70 elements.
    line = found.timeline.filter(pl.col("device") == 0).select("time_ns", "in_use_bytes").rows()
    assert line == [
        (0, 0), (0, 400), (0, 680), (10, 280), (40, 284), (50, 4), (50, 0), (60, 4000), (90, 0),
    ]  # fmt: skip
    assert any("lower bound" in note for note in found.notes)
    assert found.table["begin_bytes"].null_count() == 2
    assert "at least" in found.findings[0].text


def test_tensors_alive_at_the_peak():
    job = tensors()
    used(job, "aten::add_", 61, 5, [record(8, 9, 25)], [record(8, 9, 25)])
    found = memory(job.build()).at_peak.filter(pl.col("device") == 0)
    columns = ["size_bytes", "origin", "op", "alloc_ns", "free_ns", "lifetime_ns"]
    assert found.select(columns).rows() == [
        (4000, "seen", "aten::ones", 60, 90, 30),
        (100, "before", None, None, 66, None),
    ]


def test_tensors_without_times_have_an_order():
    trace = tensors().build()
    bare = trace.nodes.filter(pl.col("is_cpu_op")).with_columns(
        start_ns=pl.lit(None, pl.Int64), duration_ns=pl.lit(0, pl.Int64)
    )
    found = memory(trace.with_nodes(bare))
    row = found.table.row(0, named=True)
    assert (row["peak_bytes"], row["peak_ns"], row["peak_op"]) == (4000, None, "aten::ones")
    assert found.timeline["time_ns"].null_count() == found.timeline.height > 0
    assert any("no times" in note for note in found.notes)
    assert json.dumps(found.plot().as_dict(), allow_nan=False)


def test_long_timelines_are_thinned_for_pictures_only():
    numbers = np.random.default_rng(7)
    job = Job()
    live, size = [], []
    for time in range(9000):
        if live and numbers.random() < 0.5:
            address, block = live.pop(int(numbers.integers(len(live))))
            job.memory(time, -block, address)
        else:
            live.append((time, int(numbers.integers(1, 100))))
            job.memory(time, live[-1][1], time)
        size.append(job.held[0])
    job.kernel(0, 10)
    found = memory(job.build())
    line = found.timeline["in_use_bytes"]
    assert found.timeline.height <= 2000
    assert line.max() == max(size) == found.table["peak_bytes"].item()
    assert line[-1] == size[-1]
    assert found.table["peak_ns"].item() == size.index(max(size))
    assert found.timeline["time_ns"].is_sorted()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 50)), min_size=1, max_size=40), st.integers(0, 30))
@settings(deadline=None, max_examples=60)
def test_any_order_of_blocks_is_like_a_plain_model(moves, base):
    job, live, sizes = Job(), {}, [base]
    alive = [dict(live)]
    for time, (address, size) in enumerate(moves):
        if address in live:
            size = -live.pop(address)
        else:
            live[address] = size
        job.memory(time, size, address, base=base)
        sizes.append(sizes[-1] + size)
        alive.append(dict(live))
    job.kernel(0, 99)
    found = memory(job.build())
    point = sizes.index(max(sizes))
    assert found.table.select("peak_bytes", "begin_bytes", "end_bytes").row(0) == (max(sizes), base, sizes[-1])
    seen = found.at_peak.filter(pl.col("origin") == "seen").select("address", "size_bytes").rows()
    assert dict(seen) == alive[point]
    assert found.at_peak["size_bytes"].sum() == max(sizes)


def test_pictures_are_plain_json():
    found = memory(steps([8] * 3))
    plot = found.plot().as_dict()
    assert json.loads(json.dumps(plot, allow_nan=False)) == plot
    line = plot["data"][0]
    assert line["line"]["shape"] == "hv"
    assert len(line["x"]) == len(line["y"]) == found.timeline.height
    peak = plot["data"][-1]
    assert peak["y"][0] == max(line["y"])
    assert "KiB" in plot["layout"]["yaxis"]["title"]["text"]
    bars = memory(copies_job().build()).plot().as_dict()
    assert [bar["type"] for bar in bars["data"]] == ["bar"]
    assert bars["data"][0]["y"][0] == "HtoD"
    nothing = Job()
    nothing.kernel(0, 10)
    assert json.dumps(memory(nothing.build()).plot().as_dict(), allow_nan=False)


def test_several_ranks_are_drawn_by_their_highest():
    plot = memory(TraceSet((steps([8] * 3, rank=0), steps([8] * 3, rank=1, base=10_000)))).plot().as_dict()
    first, mark, second, _ = plot["data"]
    assert (first["name"], second["name"]) == ("rank 0", "rank 1")
    assert len(first["x"]) == len(first["y"]) == 201
    # Time counts from the first operator on, at 10 ns: from 20 to 60 ns, there are 1,000 bytes more.
    at = dict(zip(first["x"], first["y"], strict=True))
    high = [time for time, value in at.items() if time < 90 and value * 1024 >= 1000]
    assert (min(high), max(high)) == pytest.approx((10, 50), abs=2)
    assert max(first["y"]) == mark["y"][0] == 3024 / 1024
    assert max(second["y"]) == 13024 / 1024
    assert "the most in use" in plot["layout"]["xaxis"]["title"]["text"]
    four = memory(TraceSet(tuple(steps([8] * 3, rank=rank, base=10 * (rank % 3)) for rank in range(4)))).plot()
    assert [line["visible"] for line in four.data[::2]] == [True, "legendonly", True, "legendonly"]


def test_the_result_is_plain_json():
    found = json.loads(json.dumps(memory(usual()).as_dict(), allow_nan=False))
    assert found["analysis"] == "memory"
    assert found["rows"][0]["peak_bytes"] == 800
    assert set(found) == {"analysis", "parameters", "rows", "coverage", "notes", "findings"}


REAL = {"qwen": "kineto/qwen_h100.json.gz", "vllm": "vllm-decode-hipgraph/graph_capture.json.gz"}


@pytest.mark.parametrize("name", REAL.values(), ids=REAL.keys())
def test_real_profiles_agree_with_the_raw_events(repository, name):
    path = repository.parent / "shared" / "traces" / name
    if not path.exists():
        pytest.skip("the shared profiles are not here")
    text = gzip.decompress(path.read_bytes())
    raw = [entry["args"] for entry in json.loads(text)["traceEvents"] if entry.get("name") == "[memory]"]
    trace, _ = convert_rank(parse_kineto(str(path), text), None, sources=())
    found = memory(trace)
    assert found.table.filter(pl.col("source") == "events").height == len({entry["Device Id"] for entry in raw})
    for row in found.table.iter_rows(named=True):
        mine = [entry for entry in raw if entry["Device Id"] == row["device"]]
        sizes = [entry["Bytes"] for entry in mine]
        totals = [entry["Total Allocated"] for entry in mine]
        before = totals[0] - sizes[0]
        assert all(later - earlier == size for (earlier, later), size in zip(pairwise(totals), sizes[1:], strict=True))
        assert row["peak_bytes"] == max(before, *totals)
        assert (row["begin_bytes"], row["end_bytes"]) == (before, totals[-1])
        assert row["allocated_bytes"] == sum(size for size in sizes if size > 0)
        assert row["allocated_bytes"] - row["freed_bytes"] == totals[-1] - before
        peak = totals.index(row["peak_bytes"])
        if row["device"] >= 0:
            assert row["reserved_at_peak_bytes"] == mine[peak]["Total Reserved"]
        live = {}
        for entry in mine[: peak + 1]:
            if entry["Bytes"] > 0:
                live[entry["Addr"]] = entry["Bytes"]
            else:
                live.pop(entry["Addr"], None)
        blocks = found.at_peak.filter(pl.col("device") == row["device"])
        assert blocks["size_bytes"].sum() == row["peak_bytes"]
        seen = blocks.filter(pl.col("origin") == "seen")
        assert seen["size_bytes"].sum() == sum(live.values())
        assert seen["blocks"].sum() == len(live)
        assert found.timeline.filter(pl.col("device") == row["device"])["in_use_bytes"].max() == row["peak_bytes"]
    copies = [entry for entry in json.loads(text)["traceEvents"] if entry.get("cat") == "gpu_memcpy"]
    everything = memory(trace, options=Options(iteration="whole")).copies.filter(pl.col("kind") != "memset")
    assert everything["copies"].sum() == len(copies)
    assert everything["bytes"].sum() == sum(entry["args"].get("bytes", 0) for entry in copies)
