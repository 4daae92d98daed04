"""Points: how people write them, what is checked before anything runs, and what each point simulates."""

import pytest

from chakra_et.errors import InputError
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.sweep_points import (
    MOST_POINTS,
    Base,
    grid_points,
    parse_point,
    parse_values,
    read_points,
    resolve_points,
)
from chakra_et.specs import load_system, with_overrides

DGX = load_system("h100-dgx")


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("4,8,16", ("4", "8", "16")),
        ("150..3600x2", ("150", "300", "600", "1200", "2400", "3600")),
        ("100..400x2", ("100", "200", "400")),
        ("10..45+10", ("10", "20", "30", "40", "45")),
        ("1..2+0.5", ("1", "1.5", "2")),
        ("0.1..0.3+0.1", ("0.1", "0.2", "0.3")),
        ("7..7x2", ("7",)),
        ("1, 2 ,8..32x2", ("1", "2", "8", "16", "32")),
        ("5,5,5", ("5",)),
        ("12.5,25,50GB/s", ("12.5GB/s", "25GB/s", "50GB/s")),
        ("500MB/s,1,2GB/s", ("500MB/s", "1GB/s", "2GB/s")),
        ("150..600GB/sx2", ("150GB/s", "300GB/s", "600GB/s")),
        ("150GB/s..600x2", ("150GB/s", "300GB/s", "600GB/s")),
        ("100..300+100GB/s", ("100GB/s", "200GB/s", "300GB/s")),
        ("1..4x2TB/s", ("1TB/s", "2TB/s", "4TB/s")),
        ("400Gb/s", ("400Gb/s",)),
    ],
)
def test_values(text, values):
    assert parse_values("scale_out.bandwidth", text) == values


def test_words_are_no_ranges():
    assert parse_values("system", "h100-dgx,../mine..toml") == ("h100-dgx", "../mine..toml")
    assert parse_values("scale_out.size", "2,4,rest") == ("2", "4", "rest")
    assert parse_values("algorithm", "ring,tree") == ("ring", "tree")


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("scale_up.bandwidth", "3600..150x2", "scale_up.bandwidth: expected a factor above 1, and the smaller end"),
        ("scale_up.bandwidth", "1..8x1", "a factor above 1"),
        ("scale_up.bandwidth", "0..8x2", "a factor above 1"),
        ("scale_up.bandwidth", "1..8+0", "a step above 0"),
        ("scale_up.bandwidth", "1..8", "expected a range such as 150..3600x2 or 10..50+10, got '1..8'"),
        ("scale_up.bandwidth", "1MB/s..8GB/sx2", "expected one unit in a range"),
        ("scale_up.bandwidth", "1..8x2parsec", "scale_up.bandwidth: expected a bandwidth such as"),
        ("scale_up.bandwidth", "1,,2", "remove the empty one"),
        ("scale_up.bandwidth", "fast", "scale_up.bandwidth: expected a bandwidth such as"),
        ("scale_up.bandwidth", "1..100000000000+1", "expected 1,000,000 values at most"),
        ("scale_up.size", "4..100x1.5", "scale_up.size: expected a whole number, 1 or more, got '13.5'"),
        ("scale_up.size", "0", "expected a whole number, 1 or more"),
        ("comm_scale", "-1", "comm_scale: expected a factor of 0 or more"),
        ("comm_scale", "nan", "comm_scale: expected a factor of 0 or more"),
        ("scale_up.speed", "1", "got 'scale_up.speed'"),
        ("bandwith", "1", "got 'bandwith'"),
        ("device.peak.fp5", "1", "got 'device.peak.fp5'"),
        ("iteration", "1", "the same in all"),
        ("compute_scale.gem", "1", "expected a kind of kv_cache"),
        ("rank_delay.x", "1us", "expected a rank such as rank_delay.3"),
        ("rank_delay", "1us", "got 'rank_delay'"),
    ],
)  # fmt: skip
def test_wrong_values_are_named(key, text, said):
    with pytest.raises(InputError) as caught:
        parse_values(key, text)
    assert said in str(caught.value)


def test_grid_is_all_combinations_the_last_key_first():
    points = grid_points({"scale_up.size": "4,8", "scale_out.bandwidth": [25, "50GB/s"], "comm_scale": (1,)})
    assert [tuple(point.values()) for point in points] == [
        ("4", 25, 1), ("4", "50GB/s", 1), ("8", 25, 1), ("8", "50GB/s", 1),
    ]  # fmt: skip
    assert grid_points({}) == []


def test_grid_has_limits():
    with pytest.raises(InputError, match="size: expected one value or more, got none"):
        grid_points({"scale_up.size": []})
    with pytest.raises(InputError, match="points at most, got a grid of more"):
        grid_points({"comm_scale": range(MOST_POINTS), "host_scale": [1, 2]})


def test_point():
    assert parse_point("scale_up.size=72, comm_scale = 2") == {"scale_up.size": "72", "comm_scale": "2"}
    for text in ("scale_up.size", "=3", "a=", "a=1,,b=2"):
        with pytest.raises(InputError, match="expected KEY=VALUE"):
            parse_point(text)
    with pytest.raises(InputError, match="got a twice"):
        parse_point("a=1,a=2")


def test_file_of_points(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text('\ufeffscale_up.size, scale_out.bandwidth\n4,25\n\n8,\n"16","50GB/s"\n', encoding="utf-8")
    assert read_points(path) == [
        {"scale_up.size": "4", "scale_out.bandwidth": "25"},
        {"scale_up.size": "8"},
        {"scale_up.size": "16", "scale_out.bandwidth": "50GB/s"},
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "expected a line of keys and lines of values, got 1 in all"),
        ("a,a\n1,2\n", "expected each key once, got 'a' twice"),
        ("a,b\n1,2\n1\n", "row 3: expected 2 values, got 1"),
    ],
)
def test_wrong_files(tmp_path, text, said):
    path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_points(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "points.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="expected a CSV file in UTF-8"):
        read_points(path)


def test_points_say_what_is_simulated():
    parameters, base, points = resolve_points(
        [{"scale_up.bandwidth": "900GB/s", "scale_up.latency": "1us"}, {"comm_scale": 2}], Base(DGX)
    )
    assert [one.column for one in parameters] == ["scale_up.bandwidth_gb_per_s", "scale_up.latency_ns", "comm_scale"]
    assert base.values == (450.0, DGX.dimensions[0].latency_ns, 1.0)
    assert points[0].system == with_overrides(DGX, {"scale_up.bandwidth": "900GB/s", "scale_up.latency": "1us"})
    assert points[0].values == (900.0, 1000.0, 1.0)
    assert points[1].system == DGX
    assert points[1].options == SimulateOptions(comm_scale=2.0)
    assert points[1].values == (450.0, base.values[1], 2.0)


def test_equal_points_are_one():
    _, _, points = resolve_points(
        [{"scale_up.bandwidth": text} for text in ("900", "900GB/s", "0.9TB/s", "901")], Base(DGX)
    )
    assert [point.values for point in points] == [(900.0,), (901.0,)]


def test_systems_may_differ():
    parameters, base, points = resolve_points(
        [{"system": "h100-dgx"}, {"system": DGX, "scale_up.size": "4"}, {"system": "b200-dgx", "scale_up.size": 2}],
        Base(overrides={"scale_up.latency": "1us"}),
    )  # fmt: skip
    assert base.system == points[0].system
    assert [one.numeric for one in parameters] == [False, True]
    assert [point.values for point in points] == [("h100-dgx", 8), ("h100-dgx", 4), ("b200-dgx", 2)]
    assert [point.system.dimensions[0].latency_ns for point in points] == [1000.0] * 3


def test_the_base_keeps_its_options():
    base = Base(DGX, SimulateOptions(compute_scale=2.0, algorithm="ring"), {"scale_up.size": "4"})
    _, own, (point,) = resolve_points([{"compute_scale.gemm": 0.5, "algorithm.all_reduce": "tree"}], base)
    assert own.system.dimensions[0].size == 4
    assert own.values == (2.0, "ring")
    assert point.values == (0.5, "tree")
    assert point.options.compute_scale == {"*": 2.0, "gemm": 0.5}
    assert point.options.algorithm["all_reduce"] == "tree"
    assert point.options.algorithm["all_gather"] == "ring"


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ({"scale_in.size": 4}, "point scale_in.size=4: system h100-dgx: expected one of scale_up.topology"),
        ({"scale_up.size": 4.5}, "scale_up.size: expected a whole number"),
        ({"scale_up.topology": "cube"}, "point scale_up.topology=cube: "),
        ({"algorithm": "quick"}, "point algorithm=quick: algorithm: expected ring"),
        ({"algorithm.all_to_all": "ring"}, "algorithm of all_to_all: expected direct"),
        ({"algorithm.all_of_it": "ring"}, "got 'all_of_it'"),
        ({"comm": "magic"}, "point comm=magic: comm: expected one of auto"),
        ({"dtype": "bf61"}, "dtype: expected one of fp64"),
        ({"system": "h100"}, "h100: expected the name of a system"),
        ({"channels": 0}, "channels: expected a whole number, 1 or more"),
        ({"comm_scale": "inf"}, "comm_scale: expected a factor of 0 or more, got inf"),
        ({"scale_up.size": DGX}, "scale_up.size: expected a value, got a system"),
        ({"scale_up.bandwidth": "0"}, "scale_up.bandwidth: expected a number above 0"),
    ],
)
def test_wrong_points_are_named(point, said):
    with pytest.raises(InputError) as caught:
        resolve_points([{"comm_scale": 1}, point], Base(DGX))
    assert said in str(caught.value)


def test_points_of_no_system():
    with pytest.raises(InputError, match="size: expected a system to change, got none"):
        resolve_points([{"scale_up.size": 4}], Base())
    with pytest.raises(InputError, match="size: expected a system to change, got none"):
        resolve_points([{"comm_scale": 4}], Base(overrides={"scale_up.size": "4"}))
    with pytest.raises(InputError, match="expected points to simulate, got none"):
        resolve_points([], Base(DGX))
