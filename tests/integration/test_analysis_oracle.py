"""Values that another program measured from the raw profiles, reproduced to the digits that it printed.

Its bandwidths are labelled GB/s, and are GiB/s (2^30 bytes); its mean bandwidth is the mean of the ratios over the fp16
all-reduces. Its skews are over those too, its shares of last arrivals over all of them.
"""

import functools

import polars as pl
import pytest

from chakra_et.analysis.breakdown import breakdown
from chakra_et.analysis.comms import comms
from chakra_et.analysis.meetings import joined, measure_communications, meetings_of
from chakra_et.analysis.options import Options
from chakra_et.analysis.overlap import overlap
from chakra_et.analysis.run import make_job, measure_all
from chakra_et.analysis.skew import skew
from chakra_et.analysis.view import RankView
from chakra_et.conversion import convert
from tests.conftest import ROOT

TRACES = ROOT.parent / "shared" / "traces"

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason="the folder of real profiles isn't there")

WHOLE = Options(iteration="whole")
LINKED = Options(iteration="whole", linked_only=True)
A100, MI300X = "kineto/nccl_2rank_a100.json.gz", "kineto/resnet_8rank_mi300.json.gz"
GIB = 1 << 30


@functools.cache
def traces(name):
    return convert(TRACES / name).traces


@functools.cache
def megatron():
    return convert(TRACES / "megatron-tp8-a100").traces


@pytest.mark.parametrize(
    ("name", "options", "printed"),
    [
        (A100, WHOLE, ("660.551", "157.500", "46.876", "39.559", "15.61")),
        ("megatron-tp8-a100/megatron_kineto_0.json.gz", WHOLE, ("595.241", "372.727", "241.191", "241.191", "0")),
        (MI300X, WHOLE, ("86.568", "84.002", "71.517", "55.625", "22.22")),
        (MI300X, LINKED, ("56.518", "56.234", "47.200", "35.283", "25.25")),
    ],
)
def test_times_of_the_device(name, options, printed):
    source = traces(name)
    row = breakdown(source, options=options).table.row(0, named=True)
    times = [row[f"{what}_ns"] / 1e6 for what in ("span", "busy", "communication", "exposed_communication")]
    share = overlap(source, options=options).table["overlap_share"].item()
    assert (*(f"{time:.3f}" for time in times), f"{100 * share:.2f}".removesuffix(".00")) == printed


def test_activities_launched_before_the_profile():
    facts = RankView(traces(MI300X).traces[0], 0, WHOLE).facts
    assert (facts.unlinked, facts.activities) == (968, 3_653)


def test_communication_that_is_not_named_nccl():
    view = RankView(next(iter(traces("kineto/eager_8rank_b200.json.gz"))), 0, WHOLE)
    found = view.activities.filter(pl.col("name").str.contains("multimem_all_reduce_kernel"))
    row = breakdown(view.trace, options=WHOLE).table.row(0, named=True)
    only = view.activities.filter(pl.col("category") == "communication")
    assert (found.height, only.height) == (73, 74)  # and one all-gather of NCCL's
    time = (found["end_ns"] - found["start_ns"]).sum()
    assert (f"{time / 1e6:.2f}", f"{row['busy_ns'] / 1e6:.2f}") == ("2.12", "11.60")
    assert f"{row['communication_ns'] / 1e6:.3f}" == "2.142"


def test_bus_bandwidth():
    """81 all-reduces of 64 MiB in fp16."""
    found = comms(megatron(), options=WHOLE)
    row = found.table.filter(size_class_bytes=64 << 20).row(0, named=True)
    assert (row["comm_type"], row["count"], row["ranks"], row["group_size"]) == ("all_reduce", 81, 8, 8)
    assert row["size_bytes"] == 81 * (64 << 20)
    assert not row["lower_bound"]
    assert f"{row['transfer_mean_ns'] / 1e3:.1f}" == "617.3"
    assert f"{row['algorithm_bytes_per_s'] / GIB:.1f}" == "101.5"
    assert f"{row['bus_gib_per_s']:.1f}" == f"{row['bus_bytes_per_s'] / GIB:.1f}" == "177.7"
    assert f"{row['bus_median_bytes_per_s'] / GIB:.1f}" == "181.4"
    # The same in GB/s of 10^9 bytes, as this project writes them.
    assert f"{row['bus_bytes_per_s'] / 1e9:.1f}" == "190.8"


def test_the_smallest_duration_of_each_meeting():
    options = WHOLE
    measured = measure_all([measure_communications], megatron(), options)
    job = make_job(measured, options)
    found = meetings_of(joined({rank: measured[rank].parts[0] for rank in job.ranks}, job), job)
    assert found.height == 84
    assert (found.filter(pl.col("size_bytes") == 64 << 20)["transfer_ns"].median()) == 603_000


def test_skew_of_starts():
    """As recorded: causality leaves the clocks where they are."""
    result = skew(megatron(), options=WHOLE)
    assert result.clocks["offset_ns"].to_list() == [0] * 8
    skews = _of_fp16(result)["skew_ns"] / 1e6
    assert (f"{skews.mean():.2f}", f"{skews.median():.2f}", f"{skews.max():.1f}") == ("5.26", "2.66", "41.7")


def _of_fp16(result):
    """The meetings of fp16 all-reduces: all but the three with 4 x 2048 fp32."""
    sizes = pl.concat(
        RankView(trace, rank, WHOLE).communications.select("comm_size").head(84).with_row_index("place")
        for rank, trace in enumerate(megatron())
    )
    large = sizes.group_by("place").agg(pl.col("comm_size").min()).sort("place")
    return result.meetings.sort("first_ns").filter(large["comm_size"] == 64 << 20)


def test_who_arrives_last():
    table = skew(megatron(), options=WHOLE).table
    last = {rank: f"{100 * share:.1f}" for rank, share in table.select("rank", "last_share").iter_rows()}
    assert (last[0], last[6]) == ("38.1", "33.3")
    assert table["last_count"].sum() == 84
