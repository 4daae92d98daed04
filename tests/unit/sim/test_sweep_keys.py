"""Keys: columns, units, and that a value that is set is the one that is read back."""

import pytest

from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.sweep_keys import changed_options, find_parameter, parse_value, value_of
from chakra_et.specs import load_system, with_overrides

DGX = load_system("h100-dgx")


@pytest.mark.parametrize(
    ("key", "text", "column", "unit", "value"),
    [
        ("scale_up.size", "72", "scale_up.size", "", 72),
        ("scale_out.size", "rest", "scale_out.size", "", "rest"),
        ("scale_up.topology", "ring", "scale_up.topology", "", "ring"),
        ("scale_up.bandwidth", "3.6TB/s", "scale_up.bandwidth_gb_per_s", "GB/s", 3600.0),
        ("scale_out.latency", "2us", "scale_out.latency_ns", "ns", 2000.0),
        ("device.memory", "141GB", "device.memory_gb", "GB", 141.0),
        ("device.memory_bandwidth", "4.8TB/s", "device.memory_bandwidth_gb_per_s", "GB/s", 4800.0),
        ("device.peak.bf16", "2PFLOP/s", "device.peak.bf16_tflop_per_s", "TFLOP/s", 2000.0),
    ],
)
def test_keys_of_systems(key, text, column, unit, value):
    parameter = find_parameter(key)
    assert (parameter.column, parameter.unit, parameter.of_system) == (column, unit, True)
    assert value_of(parameter, with_overrides(DGX, {key: text}), SimulateOptions()) == value


@pytest.mark.parametrize(
    ("key", "text", "column", "value"),
    [
        ("comm", "calibrated", "comm", "calibrated"),
        ("compute", "roofline", "compute", "roofline"),
        ("resources", "engines", "resources", "engines"),
        ("sends", "eager", "sends", "eager"),
        ("algorithm", "tree", "algorithm", "tree"),
        ("algorithm.all_reduce", "tree", "algorithm.all_reduce", "tree"),
        ("dtype", "fp8", "dtype", "fp8"),
        ("comm_scale", "0.5", "comm_scale", 0.5),
        ("compute_scale", "2", "compute_scale", 2.0),
        ("compute_scale.gemm", "2", "compute_scale.gemm", 2.0),
        ("compute_scale.*", "3", "compute_scale.*", 3.0),
        ("host_scale", "0", "host_scale", 0.0),
        ("overlap_slowdown", "inf", "overlap_slowdown", float("inf")),
        ("channels", "4", "channels", 4),
        ("rank_delay.3", "1ms", "rank_delay.3_ns", 1e6),
    ],
)
def test_options(key, text, column, value):
    parameter = find_parameter(key)
    assert (parameter.column, parameter.of_system) == (column, False)
    changed = changed_options(SimulateOptions(), {key: text})
    assert value_of(parameter, None, changed) == value
    assert value_of(parameter, None, SimulateOptions()) != value


def test_parts_are_changed_after_the_whole():
    both = {"compute_scale.gemm": "3", "compute_scale": "2", "rank_delay.1": "5", "rank_delay.2": "6"}
    changed = changed_options(SimulateOptions(rank_delay_ns={1: 9, 7: 1}), both)
    assert changed.compute_scale == {"*": 2.0, "gemm": 3.0}
    assert changed.rank_delay_ns == {1: 5, 7: 1, 2: 6}


def test_what_is_not_there():
    options = SimulateOptions(compute_scale={"gemm": 2.0}, algorithm={"all_reduce": "tree"})
    assert value_of(find_parameter("compute_scale"), None, options) is None
    assert value_of(find_parameter("compute_scale.copy"), None, options) == 1.0
    assert value_of(find_parameter("algorithm"), None, options) is None
    assert value_of(find_parameter("algorithm.all_gather"), None, options) == "auto"
    assert value_of(find_parameter("algorithm.all_gather"), None, SimulateOptions(algorithm="ring")) == "ring"
    assert value_of(find_parameter("algorithm.all_to_all"), None, SimulateOptions(algorithm="ring")) == "auto"
    assert value_of(find_parameter("scale_up.size"), None, options) is None
    assert value_of(find_parameter("scale_in.size"), DGX, options) is None
    assert value_of(find_parameter("device.peak.fp4"), DGX, options) is None
    assert value_of(find_parameter("system"), None, options) is None


def test_a_system_is_a_value():
    assert parse_value(find_parameter("system"), DGX) == "h100-dgx"
