"""Systems: what bandwidths mean, how a job fills dimensions, what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra_et.errors import InputError
from chakra_et.specs.system import Device, Dimension, System


def make(*sizes, topology="switch"):
    dimensions = [Dimension(f"d{index}", topology, size, 50e9, 500.0) for index, size in enumerate(sizes)]
    return System("s", "", Device("D"), tuple(dimensions))


@pytest.mark.parametrize(
    ("system", "world_size", "sizes"),
    [
        (make(8, None), 1, (1, 1)),
        (make(8, None), 4, (4, 1)),
        (make(8, None), 8, (8, 1)),
        (make(8, None), 9, (8, 2)),
        (make(8, None), 1024, (8, 128)),
        (make(16, 16, None), 20, (16, 2, 1)),
        (make(16, 16, None), 512, (16, 16, 2)),
        (make(16, 16), 256, (16, 16)),
        (make(None), 7, (7,)),
    ],
)
def test_sizes(system, world_size, sizes):
    assert system.sizes(world_size) == sizes


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.booleans(), st.integers(1, 500))
def test_sizes_hold_the_job_and_no_group_too_many(sizes, rest, world_size):
    system = make(*sizes, *([None] if rest else []))
    if not rest and world_size > math.prod(sizes):
        with pytest.raises(InputError):
            system.sizes(world_size)
        return
    found = system.sizes(world_size)
    inner = math.prod(found[:-1])
    assert inner * (found[-1] - 1) < world_size <= inner * found[-1]


def test_jobs_that_do_not_fit():
    with pytest.raises(InputError, match=r"system s: expected a job of 256 ranks at most, got 257; override d1.size"):
        make(16, 16).sizes(257)
    with pytest.raises(InputError, match="system s: expected a job with 1 rank or more, got 0"):
        make(8).sizes(0)


@pytest.mark.parametrize(
    ("topology", "size", "job", "link", "rank"),
    [
        ("switch", 8, 8, 70.0, 70.0),
        ("switch", None, 3, 70.0, 70.0),
        ("ring", 8, 8, 70.0, 140.0),
        ("ring", 8, 2, 70.0, 70.0),
        ("fully_connected", 8, 8, 10.0, 70.0),
        ("fully_connected", 8, 4, 10.0, 30.0),
        ("fully_connected", None, 8, 10.0, 70.0),
        ("switch", 8, 1, 70.0, 0.0),
        ("ring", 8, 1, 70.0, 0.0),
        ("fully_connected", None, 1, 70.0, 0.0),
    ],
)
def test_bandwidths(topology, size, job, link, rank):
    dimension = Dimension("x", topology, size, 70.0, 0.0)
    assert dimension.link_bytes_per_s(job) == link
    assert dimension.rank_bytes_per_s(job) == rank


def test_peaks():
    device = Device("D", peak_flop_per_s=(("bf16", 2.0), ("fp8", 4.0)))
    assert device.peak("fp8") == 4.0
    with pytest.raises(InputError, match=r"device D: expected a dtype with a known peak \(bf16, fp8\), got 'fp64'"):
        device.peak("fp64")
    with pytest.raises(InputError, match=r"known peak \(none at all\), got 'bf16'"):
        Device("D").peak("bf16")
    assert Device("D", peak_flop_per_s=(("any", 3.0),)).peak("fp64") == 3.0


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Device("D", memory_bytes=0), "device.memory: expected a number above 0, got 0"),
        (lambda: Device("D", memory_bytes_per_s=math.inf), "device.memory_bandwidth: expected a number above 0"),
        (lambda: Device("D", peak_flop_per_s=(("bf17", 1.0),)), "device.peak: expected one of fp64, .*, got 'bf17'"),
        (lambda: Device("D", peak_flop_per_s=(("bf16", -1.0),)), "device.peak.bf16: expected a number above 0"),
        (lambda: Dimension("Up", "ring", 8, 1.0, 1.0), "dimension: expected a name in lower case .*, got 'Up'"),
        (lambda: Dimension("device", "ring", 8, 1.0, 1.0), "dimension: expected a name in lower case"),
        (lambda: Dimension("x", "torus", 8, 1.0, 1.0), "x.topology: expected one of switch, .*; a torus is several"),
        (lambda: Dimension("x", "ring", 0, 1.0, 1.0), "x.size: expected a number above 0, got 0"),
        (lambda: Dimension("x", "ring", 8, 0.0, 1.0), "x.bandwidth: expected a number above 0"),
        (lambda: Dimension("x", "ring", 8, 1.0, -1.0), "x.latency: expected a time of 0 or more, got -1.0"),
        (lambda: make(), "dimensions: expected one or more, got none"),
        (lambda: make(None, 8), "d0.size: expected a number, got 'rest'; only the last"),
        (
            lambda: System("s", "", Device("D"), (Dimension("x", "ring", 8, 1.0, 1.0),) * 2),
            "dimensions: expected different names, got x, x",
        ),
    ],
)
def test_refused(build, message):
    with pytest.raises(InputError, match=message):
        build()
