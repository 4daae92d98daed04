"""Systems to ASTRA-sim and back: the same times on paper."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra_et.errors import InputError
from chakra_et.specs import (
    AstraConfig,
    Device,
    Dimension,
    System,
    list_systems,
    load_system,
    read_astra_config,
    system_from_astra,
    system_to_astra,
    write_astra_config,
)

GIB = 1 << 30
DEVICE = Device("D", memory_bytes_per_s=2e12, peak_flop_per_s=(("bf16", 1e15),))


def test_from_astra():
    config = AstraConfig(
        ("Ring", "FullyConnected", "Switch"),
        (4, 5, 6),
        (100.0, 10.0, 25.0),
        (500.0, 320.5, 936.25),
        endpoint_delay=7,
        local_mem_bw=1600.0,
        peak_perf=900.0,
    )
    assert system_from_astra(config, "mine") == System(
        "mine",
        "120 ranks, from ASTRA-sim's configuration",
        Device("ASTRA-sim NPU", None, 1.6e12, (("any", 9e14),)),
        (
            Dimension("dim0", "ring", 4, 100.0 * GIB, 507.0),
            Dimension("dim1", "fully_connected", 5, 40.0 * GIB, 327.5),
            Dimension("dim2", "switch", 6, 25.0 * GIB, 1879.5),
        ),
    )


def test_unknown_figures_stay_unknown():
    device = system_from_astra(AstraConfig(("Ring",), (4,), (1.0,), (1.0,))).device
    assert device == Device("ASTRA-sim NPU")


def test_to_astra():
    system = System(
        "s",
        "",
        DEVICE,
        (
            Dimension("a", "fully_connected", 8, 70.0 * GIB, 800.0),
            Dimension("b", "ring", 4, 50.0 * GIB, 1000.0),
            Dimension("c", "switch", None, 25.0 * GIB, 2700.0),
        ),
    )
    config = system_to_astra(system, 96, splits=2)
    assert config == AstraConfig(
        ("FullyConnected", "Ring", "Switch"),
        (8, 4, 3),
        (10.0, 50.0, 25.0),
        (790.0, 990.0, 1345.0),
        all_reduce=("direct", "ring", "ring"),
        all_gather=("direct", "ring", "ring"),
        reduce_scatter=("direct", "ring", "ring"),
        all_to_all=("direct", "ring", "ring"),
        collective_optimization="localBWAware",
        splits=2,
        local_mem_bw=2000.0,
        peak_perf=1000.0,
    )
    small = system_to_astra(system, 16)
    assert (small.topology, small.npus_count) == (("FullyConnected", "FullyConnected"), (8, 2))
    assert small.bandwidth == (10.0, 50.0)


@pytest.mark.parametrize(
    ("system", "world_size", "message"),
    [
        (load_system("h100-dgx"), 1, "expected a job of two ranks or more"),
        (load_system("h100-dgx"), 12, "got 12 ranks in 8 x 2 places"),
        (
            replace(load_system("h100-dgx"), device=Device("D")),
            8,
            "expected device.memory_bandwidth, which ASTRA-sim divides by, got none",
        ),
        (System("s", "", DEVICE, (Dimension("x", "switch", 8, 1e9, 0.5),)), 8, "expected latencies and an endpoint"),
    ],
)
def test_what_has_no_equivalent(system, world_size, message):
    with pytest.raises(InputError, match=message):
        system_to_astra(system, world_size)


@pytest.mark.parametrize("name", list_systems())
def test_presets_can_be_written(name, tmp_path):
    system = load_system(name)
    config = system_to_astra(system, 512 if name.startswith("tpu") else 144)
    assert read_astra_config(*write_astra_config(config, tmp_path)) == config
    assert config.local_mem_bw * 1e9 == pytest.approx(system.device.memory_bytes_per_s)
    assert config.peak_perf * 1e12 == pytest.approx(system.device.peak("bf16"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("Ring", "FullyConnected", "Switch")),
            st.integers(3, 9),
            st.floats(1, 1e4),
            st.floats(0, 1e6),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_there_and_back(rows):
    topology, counts, bandwidth, latency = zip(*rows, strict=True)
    config = AstraConfig(topology, counts, bandwidth, latency, local_mem_bw=1600.0, endpoint_delay=10)
    again = system_to_astra(system_from_astra(config), config.npus)
    assert (again.topology, again.npus_count, again.endpoint_delay) == (topology, counts, 10)
    assert all(math.isclose(new, old) for new, old in zip(again.bandwidth, bandwidth, strict=True))
    assert all(abs(new - old) < 1e-6 for new, old in zip(again.latency_ns, latency, strict=True))
