"""The page of a report: its pictures and tables, that plotly takes them, and that it needs nothing beside itself."""

import base64
import gzip
import json
import re

import plotly.graph_objects as go
import pytest

from chakra_et.analysis.analyze import ANALYSES, analyze
from chakra_et.analysis.options import Options
from chakra_et.errors import OutputError
from chakra_et.ir import CommType, ProcessGroup, TraceSet
from chakra_et.reports._page import Listing, Table, page_chunks
from chakra_et.reports.analysis_html import export_report, make_report
from tests.unit.analysis.hand_made import Rank, stepped

NAMES = [*(one.name for one in ANALYSES), "timeline"]
HOSTILE = '</script><b>"&'
QUALITY = {
    "ranks": [
        {
            "rank": rank, "device_activities": 5, "linked": 4, "linkable": 4, "communications": 1,
            "unknown_communications": 0, "start_error_ns": {"max": 3}, "gap_ns": {"unexplained": 7},
            "dropped": ["1 'Trace' record"], "warnings": [f"odd {HOSTILE}"] if rank else [],
        }
        for rank in range(2)
    ],
    "matching": {"findings": ["rank 1 misses a collective"]},
}  # fmt: skip


def rank_of(rank, ranks=2):
    made = Rank(rank, groups=(ProcessGroup("0", tuple(range(ranks)), ranks),), world_size=ranks)
    made.kernel(f"gemm {HOSTILE}", 0, 30)
    made.kernel("softmax", 32, 40, stream=9)
    for at in (40, 60):
        made.collective(CommType.ALL_REDUCE, at + rank % 7, at + 10, at * at)
    return made.build()


def report_of(source, **options):
    return make_report(analyze(source, only=NAMES, options=Options(**options)), "x")


def several(ranks):
    return TraceSet(tuple(rank_of(rank, ranks) for rank in range(ranks)))


def figure(page, name):
    return next(one for one in page.figures if one.name == f"figure-{name}")


def view(page, name):
    """Return the only view of a figure, checked by plotly."""
    (found,) = figure(page, name).views.values()
    go.Figure(found)
    return found


def test_two_ranks():
    page = report_of(several(2))
    assert [one.name.removeprefix("figure-") for one in page.figures] == [
        "breakdown", "timeline", "critical-path", "overlap", "comms", "skew", "kernels", "phases", "sizes",
    ]  # fmt: skip
    for one in page.figures:
        view(page, one.name.removeprefix("figure-"))
        assert one.keys
    assert page.facts[0] == ("70 ns", "the whole profile")
    assert {what: value for value, what in page.facts}["compute"] == "54.3 %"
    assert page.lines[0] == "2 ranks; the whole profile."
    listing = page.parts[0]
    assert isinstance(listing, Listing)
    assert listing.numbered
    headings = [part.heading for part in page.parts if isinstance(part, Table)]
    assert headings[:3] == [
        "Breakdown of each rank's iterations", "Communications by group, type and size", "Arrivals at communications",
    ]  # fmt: skip
    assert len(page.notes) == len(set(page.notes))


def test_iterations_are_told():
    steps = ((0, 10), (10, 20), (20, 31), (31, 40))
    page = report_of(stepped(*steps, kernels=tuple((begin, begin + 1, end - 1) for begin, end in steps)))
    assert page.lines[0] == "1 rank; 2 of 4 iterations (number 1 to 2)."
    assert page.facts[0][1] == "a step"
    assert figure(page, "iterations")


def test_without_communication_nothing_speaks_of_it():
    made = Rank()
    made.kernel("gemm", 0, 30)
    page = report_of(made.build())
    assert [what for _, what in page.facts] == ["the whole profile", "compute", "idle"]
    # A single bar says nothing, but for these.
    assert {one.name for one in page.figures} <= {
        "figure-breakdown", "figure-timeline", "figure-critical-path", "figure-phases",
    }  # fmt: skip


def test_nothing_at_all():
    page = report_of(Rank().build())
    assert page.figures == ()
    assert page.facts == ()
    assert page.notes
    assert b"".join(page_chunks(page))


def test_a_host_has_operators():
    made = Rank()
    made.op("aten::mm", 0, 10)
    made.op("aten::add", 10, 30)
    page = report_of(made.build())
    assert figure(page, "kernels").heading == "Operators by class"


def test_many_ranks_stay_readable():
    page = report_of(several(64))
    for one in page.figures:
        view(page, one.name.removeprefix("figure-"))
        assert one.height <= 900
    lanes = view(page, "timeline")["layout"]["yaxis"]
    assert lanes["range"] == [127.6, -0.6]
    assert lanes["ticktext"][:2] == ["rank 0", "rank 2"]
    assert len(lanes["ticktext"]) <= 40
    heat = view(page, "skew")["data"][0]
    assert len(heat["z"]) == 64
    breakdown = next(part for part in page.tables if part.heading.startswith("Breakdown"))
    assert breakdown.heading.endswith("(the first 25 of 64 rows)")
    assert len(breakdown.rows) == 25


def test_many_communications_are_cut_and_said():
    ranks = []
    for rank in range(2):
        made = Rank(rank, groups=(ProcessGroup("0", (0, 1), 2),), world_size=2)
        for at in range(0, 40_000, 40):
            made.collective(CommType.ALL_REDUCE, at + 3 * rank, at + 10, 64)
        ranks.append(made.build())
    shown = view(report_of(TraceSet(tuple(ranks)), iteration="whole"), "skew")
    assert len(shown["data"][0]["z"][0]) == 600
    assert "(the first 600 of 1,000)" in shown["layout"]["xaxis"]["title"]["text"]


def test_one_large_value_does_not_leave_the_rest_white():
    ranks = []
    for rank in range(2):
        made = Rank(rank, groups=(ProcessGroup("0", (0, 1), 2),), world_size=2)
        for at in range(0, 8000, 200):
            made.collective(CommType.ALL_REDUCE, at + rank * (100 if at == 0 else 10), at + 150, 64)
        ranks.append(made.build())
    shown = view(report_of(TraceSet(tuple(ranks)), iteration="whole"), "skew")
    assert shown["data"][0]["zmax"] == 10
    assert "darkest: 10 ns or more" in shown["layout"]["xaxis"]["title"]["text"]


def test_the_conversion_is_told():
    found = analyze(several(2), only=NAMES)
    page = make_report(found, "x", QUALITY)
    table = next(part for part in page.tables if part.heading == "How the traces were made")
    assert table.rows[0] == ["0", "5", "4", "4", "1", "0", "3 ns", "7 ns"]
    listing = next(part for part in page.parts if getattr(part, "heading", "").startswith("What the conversion"))
    assert listing.items == [
        "Left out (all ranks): 1 'Trace' record", f"Guessed or repaired (rank 1): odd {HOSTILE}",
        "rank 1 misses a collective",
    ]  # fmt: skip
    assert not any(part.heading == "How the traces were made" for part in make_report(found, "x", {}).tables)


def test_the_page_needs_nothing_beside_itself(tmp_path):
    found = analyze(several(2), only=NAMES)
    (path,) = export_report(found, tmp_path / "report.html", title=f"Report {HOSTILE}", quality=QUALITY)
    text = path.read_text(encoding="utf-8")
    packed = re.search(r'<script type="text/plain" id="plotly">([^<]*)</script>', text)
    assert gzip.decompress(base64.b64decode(packed[1])).startswith(b"/**\n* plotly.js")
    rest = text.replace(packed[1], "")
    assert re.findall(r"https?:|src=|@import|url\(", rest) == []
    assert re.findall(r'href="[^"]*"', rest) == ['href="data:,"']
    assert HOSTILE not in rest
    data = json.loads(re.search(r'id="figures">(.*?)</script>', rest, re.DOTALL)[1])
    # Texts of points are in the page once, and points have their numbers.
    (bars, *_) = [one for one in data["figures"]["figure-timeline"][""]["data"] if one["name"] == "compute"]
    assert bars["shared"] == ["text"]
    shown = [data["words"][number] for number in bars["text"]]
    assert f"gemm {HOSTILE}<br>" in shown[0]
    assert len(set(data["words"])) == len(data["words"])
    with pytest.raises(OutputError, match="use --force"):
        export_report(found, path)
    export_report(found, path, title=f"Report {HOSTILE}", quality=QUALITY, force=True)
    assert path.read_text(encoding="utf-8") == text


def test_what_was_not_asked_for_is_left_out():
    page = make_report(analyze(several(2), only=["comms"]), "x")
    assert [one.name for one in page.figures] == ["figure-comms", "figure-sizes"]
    assert page.facts == ()
    assert page.lines[0] == "2 ranks."
