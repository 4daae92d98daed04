import pytest

from chakra_et.errors import InputError
from chakra_et.units import format_bytes, format_count, format_ns, format_share, parse_ns


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
