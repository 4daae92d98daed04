"""System files are read strictly; presets are complete and say where their figures come from."""

import re
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakra_et.errors import FormatError, InputError, OutputError
from chakra_et.specs import Device, Dimension, System, list_systems, load_system, with_overrides, write_system
from chakra_et.specs.system import DTYPES, TOPOLOGIES

PRESETS = (
    "a100-dgx",
    "b200-dgx",
    "ethernet",
    "gb200-nvl72",
    "h100-dgx",
    "h200-hgx",
    "mi300x-platform",
    "tpu-v5e",
    "tpu-v6e",
)
FILE = """
name = "mine"
description = "Mine"
[device]
name = "D"
memory = "80GB"
memory_bandwidth = 2039
[device.peak]
bf16 = "312TFLOP/s"
[[dimensions]]
name = "scale_up"
topology = "fully_connected"
size = 8
bandwidth = "300GB/s"
latency = "0.6us"
[[dimensions]]
name = "scale_out"
topology = "switch"
size = "rest"
bandwidth = "200Gb/s"
latency = 2700
"""
MINE = System(
    "mine",
    "Mine",
    Device("D", 80_000_000_000, 2039e9, (("bf16", 312e12),)),
    (
        Dimension("scale_up", "fully_connected", 8, 300e9, 600.0),
        Dimension("scale_out", "switch", None, 25e9, 2700.0),
    ),
)


def read(place, text):
    path = place / "mine.toml"
    path.write_text(text)
    return load_system(path)


def test_a_file(tmp_path):
    assert read(tmp_path, FILE) == MINE


def test_a_device_may_be_unknown_but_for_its_name(tmp_path):
    start, _, rest = FILE.partition("memory =")
    system = read(tmp_path, start + "[[dimensions]]" + rest.partition("[[dimensions]]")[2])
    assert system.device == Device("D")
    assert load_system(write_system(system, tmp_path / "again.toml")) == system


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('name = "mine"', "", ": name: expected a text, got nothing"),
        ('name = "mine"', "name = 3", ": name: expected a text, got 3"),
        ('name = "mine"', "nome = 3\nname = 'x'", ": expected only the keys name, description, .*, got 'nome'"),
        ("[device]", "[devise]", ": device: name: expected a text, got nothing"),
        ('"80GB"', '"80 apples"', ": device: memory: expected a size such as 80GB or 16GiB, got '80 apples'"),
        ('"80GB"', '"0GB"', ": device.memory: expected a number above 0, got 0"),
        ('"80GB"', "true", ": device: memory: expected a text with a number and a unit, got true"),
        ("2039", '"2039GB"', ": device: memory_bandwidth: expected a bandwidth such as 450GB/s"),
        ("2039", "2039\ncolor = 'red'", ": device: expected only the keys name, memory, .*, got 'color'"),
        ("bf16", "bf17", ": device.peak: expected one of fp64, fp32, .*, got 'bf17'"),
        ('"312TFLOP/s"', '"312TFLOPS"', ": device.peak: bf16: expected a rate such as 989TFLOP/s"),
        ("[device.peak]\nbf16 =", "peak =", ": device.peak: expected keys with values, got '312TFLOP/s'"),
        ('"fully_connected"', '"torus"', r": dimensions\[0\]: topology: expected one of switch, fully_connected, ring"),
        ("size = 8", "size = 0", r": dimensions\[0\]: size: expected a number of 1 or more, or 'rest', got 0"),
        ("size = 8", "size = '8'", r": dimensions\[0\]: size: expected a number of 1 or more, or 'rest', got '8'"),
        ("size = 8", "", r": dimensions\[0\]: size: expected a number of 1 or more, or 'rest', got nothing"),
        ("size = 8", "size = 'rest'", ": scale_up.size: expected a number, got 'rest'; only the last dimension"),
        ("size = 8", "size = 8\nsizes = 8", r": dimensions\[0\]: expected only the keys name, .*, got 'sizes'"),
        ('"200Gb/s"', "-1", r": dimensions\[1\]: bandwidth: expected a bandwidth such as 450GB/s, .*, got '-1'"),
        ("2700", "nan", r": dimensions\[1\]: latency: expected a time such as 600ns or 2.7us, got 'nan'"),
        ('"scale_out"', '"scale_up"', ": dimensions: expected different names, got scale_up, scale_up"),
        ('"scale_out"', '"Scale Out"', ": dimension: expected a name in lower case such as scale_up"),
        ("[[dimensions]]", "[dimensions]", ": expected TOML, got an error"),
        ("= ", "", ": expected TOML, got an error"),
    ],
)
def test_wrong_files(before, after, message, tmp_path):
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "mine.toml")) + message):
        read(tmp_path, FILE.replace(before, after))


def test_no_dimensions(tmp_path):
    with pytest.raises(InputError, match="dimensions: expected a list of tables, got nothing"):
        read(tmp_path, FILE.partition("[[dimensions]]")[0])


def test_what_is_no_text(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xff")
    with pytest.raises(FormatError, match="expected text in UTF-8"):
        load_system(tmp_path / "mine.toml")


def test_unknown_names():
    with pytest.raises(InputError, match=r"h100: expected the name of a system .* systems are a100-dgx, b200-dgx"):
        load_system("h100")
    with pytest.raises(InputError, match=r"h100\.toml: expected a file, got nothing of that name"):
        load_system("h100.toml")
    with pytest.raises(InputError, match="h100-dgx: expected the name of a system"):
        load_system(Path("h100-dgx"))


def test_presets_are_listed():
    assert list_systems() == PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_complete_and_plausible(name, tmp_path):
    system = load_system(name)
    assert system.name == name
    assert system.description
    assert load_system(write_system(system, tmp_path / "again.toml")) == system
    device = system.device
    assert 16e9 <= device.memory_bytes <= 1e12
    assert 100e9 < device.memory_bytes_per_s < 100e12
    peaks = dict(device.peak_flop_per_s)
    order = [peaks[dtype] for dtype in ("fp64", "fp32", "tf32", "bf16", "fp8", "fp4") if dtype in peaks]
    assert order == sorted(order)
    assert 50 < device.peak("bf16") / device.memory_bytes_per_s < 1000  # operations a byte
    assert system.dimensions[-1].name == "scale_out"
    assert system.dimensions[-1].size is None
    for inner, outer in zip(system.dimensions, system.dimensions[1:], strict=False):
        assert inner.rank_bytes_per_s(inner.size) >= outer.rank_bytes_per_s(2)
        assert inner.latency_ns <= outer.latency_ns
    assert device.memory_bytes_per_s > sum(d.rank_bytes_per_s(d.size or 2) for d in system.dimensions)


@pytest.mark.parametrize("name", PRESETS)
def test_every_figure_has_its_source(name):
    text = (resources.files("chakra_et.specs") / "presets" / "systems" / f"{name}.toml").read_text(encoding="utf-8")
    sources = re.findall(r"^#   \[(\S+)\] ", text, re.MULTILINE)
    cited = set()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    for number, line in enumerate(lines):
        value, _, comment = line.partition("#")
        if not value.strip() or not re.search(r'= (\d|"[\d.]+)', value):
            continue
        above = number - 1
        while not comment and lines[above].startswith("#"):
            cited |= set(re.findall(r"\[(\S+?)\]", lines[above]))
            above -= 1
        assert comment or above < number - 1, f"{name}: no source for: {line}"
        cited |= set(re.findall(r"\[(\S+?)\]", comment))
    assert cited == set(sources)


def test_overrides():
    system = with_overrides(
        MINE,
        {
            "scale_up.size": "72",
            "scale_up.bandwidth": "900GB/s",
            "scale_up.topology": "switch",
            "scale_out.latency": "5us",
            "scale_out.size": "16",
            "device.memory": "96GiB",
            "device.memory_bandwidth": "8",
            "device.peak.fp8": "2PFLOP/s",
        },
    )
    assert system == System(
        "mine",
        "Mine",
        Device("D", 96 << 30, 8e9, (("bf16", 312e12), ("fp8", 2e15))),
        (Dimension("scale_up", "switch", 72, 900e9, 600.0), Dimension("scale_out", "switch", 16, 25e9, 5000.0)),
    )
    assert with_overrides(system, {"scale_out.size": "rest"}).dimensions[-1].size is None
    assert with_overrides(MINE, {}) == MINE


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "scale_up.speed",
            "1",
            "system mine: expected one of scale_up.topology, .*any, got 'scale_up.speed'",
        ),
        ("scale_up", "1", "expected one of scale_up.topology, scale_up.size, .*, got 'scale_up'"),
        ("device.peak", "1", "got 'device.peak'"),
        ("device.name", "1", "got 'device.name'"),
        (
            "scale_up.size",
            "many",
            r"system mine: dimensions\[0\]: size: expected a number of 1 or more, or",
        ),
        ("scale_up.size", "0", "size: expected a number of 1 or more"),
        ("scale_up.size", "9" * 30, "size: expected a number of 1 or more"),
        ("scale_up.size", "rest", "scale_up.size: expected a number, got 'rest'"),
        ("scale_up.bandwidth", "fast", "bandwidth: expected a bandwidth such as 450GB/s"),
        ("device.peak.fp8", "0", "device.peak.fp8: expected a number above 0"),
    ],
)
def test_wrong_overrides(key, value, message):
    with pytest.raises(InputError, match=message):
        with_overrides(MINE, {key: value})


def test_writing_overwrites_nothing(tmp_path):
    path = write_system(MINE, tmp_path / "a" / "mine.toml")
    with pytest.raises(OutputError, match="expected a new file, got an existing one"):
        write_system(MINE, path)
    assert write_system(MINE, path, force=True) == path


POSITIVE = st.floats(min_value=1e-3, max_value=1e18)
DIMENSIONS = st.lists(
    st.tuples(st.sampled_from(TOPOLOGIES), st.integers(1, 10**6), POSITIVE, st.floats(0, 1e12)), min_size=1, max_size=4
)
DEVICES = st.builds(
    Device,
    st.text(st.characters(exclude_categories=("Cs",))),
    st.none() | st.integers(1, 2**60),
    st.none() | POSITIVE,
    st.dictionaries(st.sampled_from(DTYPES), POSITIVE).map(lambda peaks: tuple(peaks.items())),
)


@given(st.text(st.characters(exclude_categories=("Cs",))), DEVICES, DIMENSIONS, st.booleans())
def test_any_system_is_written_and_read_back(tmp_path_factory, name, device, rows, rest):
    dimensions = [
        Dimension(f"d{index}", topology, size, bandwidth, latency)
        for index, (topology, size, bandwidth, latency) in enumerate(rows)
    ]
    if rest:
        last = dimensions[-1]
        dimensions[-1] = Dimension(last.name, last.topology, None, last.bandwidth_bytes_per_s, last.latency_ns)
    system = System(name, name, device, tuple(dimensions))
    path = write_system(system, tmp_path_factory.getbasetemp() / "any.toml", force=True)
    assert load_system(path) == system
    assert with_overrides(system, {}) == system
