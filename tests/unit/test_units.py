import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra_et.errors import InputError
from chakra_et.units import (
    format_bytes,
    format_count,
    format_exactly,
    format_list,
    format_name,
    format_ns,
    format_ranks,
    format_share,
    parse_bandwidth,
    parse_bytes,
    parse_flop_rate,
    parse_latency_ns,
    parse_ns,
)


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [(0, "0 ns"), (999, "999 ns"), (1000, "1.000 us"), (-2_500_000, "-2.500 ms"), (3e9, "3.000 s"), (None, "-")],
)
def test_format_ns(value_ns, text):
    assert format_ns(value_ns) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (None, "-")]
)
def test_format_bytes(size, text):
    assert format_bytes(size) == text


def test_format_count_and_share():
    assert format_count(1234567) == "1,234,567"
    assert format_count(None) == "-"
    assert format_share(1, 4) == "25.0 %"
    assert format_share(1, 0) == "-"


def test_long_names_and_lists_are_cut():
    assert format_name("k" * 60) == "k" * 60
    assert format_name("k" * 61) == "k" * 57 + "..."
    assert format_list([]) == ""
    assert format_list("abc", most=3) == "a, b, c"
    assert format_ranks([7]) == "rank 7"
    assert format_ranks(range(10_000)) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 9992 more"


@pytest.mark.parametrize(
    ("text", "value_ns"),
    [("12", 12), ("12ns", 12), ("1.5us", 1500), (" 10 ms ", 10_000_000), ("2s", 2_000_000_000), ("-1us", -1000)],
)
def test_parse_ns(text, value_ns):
    assert parse_ns(text) == value_ns


@pytest.mark.parametrize("text", ["", "ms", "1h", "1,5ms", "1e3us", "nan"])
def test_parse_ns_refuses(text):
    with pytest.raises(InputError, match="expected a time such as 12ms"):
        parse_ns(text)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_bytes, "0", 0),
        (parse_bytes, "512", 512),
        (parse_bytes, "512B", 512),
        (parse_bytes, "80GB", 80_000_000_000),
        (parse_bytes, "16 GiB", 16 << 30),
        (parse_bytes, "1.5KiB", 1536),
        (parse_bandwidth, "450", 450e9),
        (parse_bandwidth, "450GB/s", 450e9),
        (parse_bandwidth, "0.1GB/s", 1e8),
        (parse_bandwidth, "1GiB/s", float(1 << 30)),
        (parse_bandwidth, "3.35TB/s", 3.35e12),
        (parse_bandwidth, "400Gb/s", 50e9),
        (parse_bandwidth, "1kb/s", 125.0),
        (parse_flop_rate, "989.4TFLOP/s", 989.4e12),
        (parse_flop_rate, "2.5 PFLOP/s", 2.5e15),
        (parse_flop_rate, "1000", 1000.0),
        (parse_latency_ns, "600", 600.0),
        (parse_latency_ns, "936.25ns", 936.25),
        (parse_latency_ns, "2.7us", 2700.0),
    ],
)
def test_quantities(parse, text, value):
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_bytes, "80gb"),
        (parse_bytes, "80GB/s"),
        (parse_bandwidth, "450GB"),
        (parse_bandwidth, "-1GB/s"),
        (parse_bandwidth, "inf"),
        (parse_bandwidth, "1e3GB/s"),
        (parse_bandwidth, "450gbps"),
        (parse_flop_rate, "989TFLOPS"),
        (parse_latency_ns, "-1us"),
        (parse_latency_ns, ""),
    ],
)
def test_quantities_refused(parse, text):
    with pytest.raises(InputError, match=f"expected a .* such as .*, got '{text}'; units are "):
        parse(text)


@given(st.floats(min_value=0, max_value=1e18))
def test_exact_formatting_parses_back(value):
    assert parse_bandwidth(format_exactly(value, "GB/s")) == value
    assert parse_flop_rate(format_exactly(value, "TFLOP/s")) == value
    assert parse_latency_ns(format_exactly(value, "us")) == value


@given(st.integers(min_value=0, max_value=2**60))
def test_exact_sizes_parse_back(value):
    assert parse_bytes(format_exactly(value, "GB")) == value


def test_exact_formatting_is_short():
    assert format_exactly(3.35e12, "TB/s") == "3.35TB/s"
    assert format_exactly(80_000_000_000, "GB") == "80GB"
    assert format_exactly(80.9 * 2**30, "GiB/s") == "80.9GiB/s"
