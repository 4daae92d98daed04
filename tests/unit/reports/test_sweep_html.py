"""The page of a sweep: which picture it draws, that plotly takes it, and that it needs nothing beside itself."""

import base64
import gzip
import hashlib
import html
import json
import re

import plotly.graph_objects as go
import pytest

from chakra_et.errors import OutputError
from chakra_et.reports._sweep_axes import make_plan, unit_of_times
from chakra_et.reports._sweep_lines import MOST_BARS
from chakra_et.reports.sweep_html import export_sweep_html, make_page
from chakra_et.sim.sweep_points import Base, grid_points, resolve_points
from chakra_et.sim.sweep_result import make_result
from chakra_et.specs import load_system
from tests.conftest import ROOT

README = ROOT / "src" / "chakra_et" / "reports" / "_plotly" / "README.md"
HOSTILE = '</script><b>"&'


def row(point, failing):
    """Return what a formula says of a point."""
    if failing(point):
        return {"error": f"too large {HOSTILE}"}
    up, out = (dimension.bandwidth_bytes_per_s / 1e9 for dimension in point.system.dimensions[:2])
    bounds = {"compute": 4_000_000, "scale_up": round(2e9 / up), "scale_out": round(3e8 / out)}
    bounds = dict(sorted(bounds.items(), key=lambda item: -item[1]))
    finish = round(sum(bounds.values()) * point.options.comm_scale)
    times = {
        f"{name}_{kind}_ns": 7
        for name in ("compute", "communication", "exposed_communication")
        for kind in ("mean", "max")
    }
    counts = {"iterations": 1, "ranks": 8, "folded_classes": 1, "notes": [HOSTILE]}
    return {"finish_ns": finish, "spread_ns": 0, **times, "bounds": bounds, **counts}


def result_of(grid=None, points=(), failing=lambda point: False):
    """Return the result of a sweep by formula."""
    parameters, base, found = resolve_points([*grid_points(grid or {}), *points], Base(load_system("h100-dgx")))
    pairs = [(point, row(point, failing)) for point in found]
    return make_result(parameters, (base, row(base, lambda point: False)), pairs, reused=0, seconds=1.0)


def checked(page):
    """Let plotly check all figures of a page, and return their views."""
    views = [view for figure in page.figures for view in figure.views.values()]
    for view in views:
        go.Figure(view)
    return views


UP, OUT, SIZE = (
    {"scale_up.bandwidth": "150..1200x2"},
    {"scale_out.bandwidth": "25,50,100GB/s"},
    {"scale_up.size": "4,8,16,32,64"},
)


def test_two_keys_make_heat_maps():
    result = result_of({**OUT, **UP})
    plan = make_plan(result)
    assert (plan.across.key, plan.up.key, plan.beside, plan.chosen) == (
        "scale_up.bandwidth",
        "scale_out.bandwidth",
        None,
        (),
    )
    time, bounds = checked(make_page(result, "x"))
    heat = time["data"][0]
    assert heat["type"] == "heatmap"
    assert heat["text"] == [
        ["29.3", "22.7", "19.3", "17.7"],
        ["23.3", "16.7", "13.3", "11.7"],
        ["20.3", "13.7", "10.3", "8.67"],
    ]
    assert heat["customdata"] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert time["layout"]["xaxis"]["ticktext"] == ["150", "300", "600", "1200"]
    assert time["layout"]["xaxis"]["title"]["text"] == "scale_up.bandwidth, GB/s"
    assert [shape["line"]["dash"] for shape in time["layout"]["shapes"]] == ["solid"]
    assert bounds["data"][0]["text"][0] == ["45%", "53%", "62%", "68%"]
    assert [trace["name"] for trace in bounds["data"][1:]] == ["compute", "scale_out", "scale_up"]


def test_a_third_key_makes_maps_side_by_side():
    result = result_of({**OUT, **SIZE, **UP})
    plan = make_plan(result)
    assert (plan.across.key, plan.up.key, plan.beside.key) == (
        "scale_up.size",
        "scale_up.bandwidth",
        "scale_out.bandwidth",
    )
    time, _ = checked(make_page(result, "x"))
    assert [trace["xaxis"] for trace in time["data"]] == ["x", "x2", "x3"]
    assert [trace["showscale"] for trace in time["data"]] == [True, False, False]
    titles = [note["text"] for note in time["layout"]["annotations"]]
    assert titles == [f"<b>scale_out.bandwidth = {value} GB/s</b>" for value in (25, 50, 100)]
    domains = [tuple(time["layout"][name]["domain"]) for name in ("xaxis", "xaxis2", "xaxis3")]
    assert all(left < right <= 1 for left, right in domains)


def test_the_base_has_a_frame_where_it_is_a_point():
    (view, _) = checked(make_page(result_of({**UP, "scale_out.bandwidth": "25,50GB/s", **SIZE}), "x"))
    assert [shape["line"]["dash"] for shape in view["layout"]["shapes"]] == ["solid"]
    (view, _) = checked(make_page(result_of({"scale_up.bandwidth": "450,900", "scale_out.bandwidth": "25,50"}), "x"))
    solid, dotted = view["layout"]["shapes"]
    assert (dotted["x0"], dotted["y0"], dotted["xref"]) == (-0.48, 0.54, "x")
    assert (solid["x0"], solid["y0"]) == (0.52, 0.54)


def test_further_keys_are_chosen():
    grid = {**OUT, **SIZE, **UP, "comm_scale": [1, 2], "algorithm": "ring,tree"}
    page = make_page(result_of(grid), "x")
    assert [(choice.label, choice.options) for choice in page.figures[0].choices] == [
        ("comm_scale", ("1", "2")), ("algorithm", ("ring", "tree")),
    ]  # fmt: skip
    assert list(page.figures[0].views) == [("1", "ring"), ("1", "tree"), ("2", "ring"), ("2", "tree")]
    checked(page)
    points = {
        point
        for view in page.figures[0].views.values()
        for trace in view["data"]
        for line in trace["customdata"]
        for point in line
    }
    assert points == set(range(3 * 5 * 4 * 2 * 2))


def test_one_key_makes_lines():
    time, shares = checked(make_page(result_of({"scale_out.bandwidth": "12.5..400x2"}), "x"))
    assert time["data"][0]["x"] == [12.5, 25.0, 50.0, 100.0, 200.0, 400.0]
    assert time["layout"]["xaxis"]["type"] == "log"
    assert time["data"][0]["marker"]["color"][0] != time["data"][0]["marker"]["color"][-1]
    assert {trace["name"] for trace in shares["data"]} == {"compute", "scale_up", "scale_out"}
    heights = [sum(values) for values in zip(*(trace["y"] for trace in shares["data"]), strict=True)]
    assert heights == pytest.approx(time["data"][0]["y"])
    (time, _) = checked(make_page(result_of({"comm_scale": [1, 2, 0.5]}), "x"))
    assert (time["data"][0]["x"], time["layout"]["xaxis"]["type"]) == ([0.5, 1.0, 2.0], "linear")


def test_points_that_are_no_grid_make_bars():
    points = [{"scale_up.bandwidth": 100 + step, "scale_out.bandwidth": 30 + 2 * step} for step in range(60)]
    (view,) = checked(make_page(result_of(points=points), "x"))
    assert len(view["data"][0]["x"]) == MOST_BARS
    assert view["layout"]["yaxis"]["ticktext"][0] == "scale_up.bandwidth = 159 GB/s, scale_out.bandwidth = 148 GB/s"
    (view,) = checked(make_page(result_of({"algorithm": "ring,tree"}), "x"))
    assert view["layout"]["yaxis"]["ticktext"] == ["algorithm = ring", "algorithm = tree"]
    (view,) = checked(make_page(result_of(points=[{"comm_scale": 2}]), "x"))
    assert view["layout"]["yaxis"]["ticktext"] == ["comm_scale = 2"]


def test_large_grids_leave_out_texts_and_labels():
    result = result_of({"scale_up.bandwidth": "100..6400+100", "scale_out.bandwidth": "10..400+10"})
    view, _ = checked(make_page(result, "x"))
    assert "text" not in view["data"][0]
    assert view["layout"]["height"] < 700
    assert len(view["layout"]["xaxis"]["ticktext"]) < 30


def test_sizes_with_rest_are_in_order():
    result = result_of({"scale_out.size": "16,4,rest", **UP})
    assert make_plan(result).up.values == ("4", "16", "rest")
    checked(make_page(result, "x"))


def test_infinity_is_a_word(tmp_path):
    result = result_of({"overlap_slowdown": "1,2,inf", **UP})
    assert [row["overlap_slowdown"] for row in result.as_dict()["points"][::4]] == [1.0, 2.0, "inf"]
    (path,) = export_sweep_html(result, tmp_path / "sweep.html")
    assert "Infinity" not in path.read_text(encoding="utf-8").split('id="figures">')[1].split("</script>")[0]
    assert make_plan(result_of({"overlap_slowdown": "1,inf"})).across is None


def test_points_that_failed_are_gray_and_listed():
    result = result_of({**OUT, **UP}, failing=lambda point: point.system.dimensions[1].bandwidth_bytes_per_s < 30e9)
    page = make_page(result, "x")
    view, _ = checked(page)
    assert view["data"][1]["z"] == [[0.0] * 4, [None] * 4, [None] * 4]
    assert page.lines[0] == "12 points; each covers all 8 ranks; 4 can't be simulated."
    (cells,) = page.tables[-1].rows
    assert cells == ["4", "scale_out.bandwidth = 25 GB/s, scale_up.bandwidth = 150 GB/s", f"too large {HOSTILE}"]
    assert "too large &lt;/script&gt;" in page.texts[0]


def test_without_any_result_there_is_no_figure():
    page = make_page(result_of({**OUT, **UP}, failing=lambda point: True), "x")
    assert page.figures == ()
    assert page.lines[0] == "12 points; 12 can't be simulated."


@pytest.mark.parametrize(("time", "unit"), [(0, "ns"), (999, "ns"), (1000, "us"), (5e6, "ms"), (2e9, "s")])
def test_units(time, unit):
    assert unit_of_times(time)[0] == unit


def test_the_page_needs_nothing_beside_itself(tmp_path):
    result = result_of({**OUT, **UP})
    (path,) = export_sweep_html(result, tmp_path / "sweep.html", title=f"Sweep {HOSTILE}")
    text = path.read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    packed = re.search(r'<script type="text/plain" id="plotly">([^<]*)</script>', text)
    script = gzip.decompress(base64.b64decode(packed[1]))
    assert script.startswith(b"/**\n* plotly.js (cartesian - minified) v4.1.1\n")
    assert hashlib.sha256(script).hexdigest() in README.read_text(encoding="utf-8")
    rest = text.replace(packed[1], "")
    assert re.findall(r"https?:|src=|@import|url\(", rest) == []
    assert re.findall(r'href="[^"]*"', rest) == ['href="data:,"']
    assert f"<h1>Sweep {html.escape(HOSTILE)}</h1>" in rest
    assert HOSTILE not in rest
    data = json.loads(re.search(r'id="figures">(.*?)</script>', rest, re.DOTALL)[1])
    assert list(data["figures"]) == ["time", "bounds"]
    assert len(data["texts"]) == 12
    assert "1 note" in data["texts"][0]
    with pytest.raises(OutputError, match="use --force"):
        export_sweep_html(result, path)
    export_sweep_html(result, path, title=f"Sweep {HOSTILE}", force=True)
    assert path.read_text(encoding="utf-8") == text
