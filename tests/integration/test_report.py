"""`chakra report`: the page opens in a browser without a network, draws each figure, and shows the numbers."""

import json
import re

import pytest

import chakra_et as chakra_api
from chakra_et.analysis.analyze import ANALYSES
from chakra_et.analysis.breakdown import breakdown
from chakra_et.testing import programs
from chakra_et.testing import run as run_program
from chakra_et.units import format_ns, format_share
from tests.conftest import ROOT
from tests.integration.browser import needs_chromium, open_page

MEGATRON = ROOT.parent / "shared" / "traces" / "megatron-tp8-a100"
ALWAYS = {"breakdown", "timeline", "critical-path", "kernels", "phases"}


def write_profiles(folder, program, ranks):
    """Run a program on the model machine, and write its profiles."""
    folder.mkdir()
    done = run_program(program)
    for rank in range(ranks):
        (folder / f"host.{rank}.json").write_text(json.dumps(done.host_trace(rank)))
        (folder / f"device.{rank}.json").write_text(json.dumps(done.profile(rank)))
    return folder


def requests(page):
    """Return what a page asks for elsewhere; its library, which is packed, and what its scripts hold apart."""
    text = re.sub(r'<script type="text/plain" id="plotly">[^<]*', "", page.read_text(encoding="utf-8"))
    plain = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    return re.findall(
        r"""(?:src|href)\s*=\s*["']?(?!data:,)[^"'\s>]+|url\([^)]*|@import[^;]*|https?:[^"'\s<]*""", plain
    )


def check_page(page, traces, folder):
    """Open a page; return it, with what every report must hold checked."""
    opened = open_page(page, folder)
    assert opened.drawn
    assert opened.console == []
    assert [name for name, marks in opened.figures.items() if not marks] == []
    assert set(opened.figures) >= ALWAYS
    asked = [one for one in requests(page) if not one.startswith(("src = URL.createObjectURL", 'href="data:,'))]
    assert asked == []
    table = breakdown(traces).table
    span = int(table["span_ns"].sum())
    assert f"{format_ns(span / int(table['iterations'].sum()))} " in opened.text
    assert f"{format_share(int(table['compute_ns'].sum()), span)} compute" in opened.text
    assert "Findings (what something costs is a ceiling)" in opened.text
    assert "NaN" not in opened.text
    assert "undefined" not in opened.text
    return opened


@needs_chromium
def test_the_bundled_sample_converted_in_memory(chakra, sample, converted, tmp_path):
    page = tmp_path / "report.html"
    run = chakra("report", sample, "-o", page, "--title", "The <sample> & more")
    assert (run.code, run.err) == (0, "")
    assert run.out.splitlines()[-1] == f"Wrote {page}"
    opened = check_page(page, str(converted), tmp_path / "profile")
    assert "The <sample> & more" in opened.text
    assert set(opened.figures) >= {"overlap", "skew"}
    # Of one size and one group: a single bar says nothing.
    assert not {"launches", "comms", "sizes"} & set(opened.figures)
    table = breakdown(str(converted)).table
    exposed = format_share(int(table["exposed_communication_ns"].sum()), int(table["span_ns"].sum()))
    assert f"{exposed} exposed communication" in opened.text
    assert "How the traces were made" in opened.text
    assert "Operators by class" in opened.text


@pytest.fixture(scope="module")
def gpu_traces(chakra, tmp_path_factory):
    """The folder of the traces that ``chakra demo`` generates."""
    folder = tmp_path_factory.mktemp("gpu")
    profiles = write_profiles(folder / "profiles", programs.training_step(ranks=2), 2)
    run = chakra("convert", profiles, "-o", folder / "et")
    assert run.code == 0, run.err
    return folder / "et"


@needs_chromium
@pytest.mark.parametrize("width", [1100, 420])
def test_a_generated_gpu_job(chakra, gpu_traces, tmp_path, width):
    page = tmp_path / "report.html"
    assert chakra("report", gpu_traces, "-o", page, "--system", "h100-dgx").code == 0
    opened = check_page(page, str(gpu_traces), tmp_path / "profile")
    assert set(opened.figures) >= {"overlap", "skew", "ops", "launches"}
    assert "model FLOP utilization" in opened.text
    # Legends can be switched.
    assert re.search(r'<div class="keys"><button[^>]*><i style="background: [^"]*"></i>compute</button>', opened.dom)
    if width == 420:
        narrow = open_page(page, tmp_path / "narrow", width)
        assert narrow.figures == opened.figures


@needs_chromium
def test_eight_ranks_of_twenty_thousand_nodes_open_in_a_second(tmp_path):
    """On an idle machine, a second covers it; here there is room for what else runs."""
    program = programs.training_step(ranks=8, layers=32, iterations=12)
    traces = chakra_api.convert(write_profiles(tmp_path / "profiles", program, 8)).traces
    assert min(map(len, traces.traces)) >= 20_000
    page = tmp_path / "report.html"
    names = [*(one.name for one in ANALYSES), "timeline"]
    chakra_api.export_report(chakra_api.analyze(traces, only=names), page)
    assert page.stat().st_size < 2_000_000
    empty = tmp_path / "empty.html"
    empty.write_text("<!DOCTYPE html><title>empty</title>")
    start = min(open_page(empty, tmp_path / "browser").seconds for _ in range(2))
    opened = open_page(page, tmp_path / "browser")
    assert opened.drawn
    assert opened.console == []
    assert all(opened.figures.values())
    assert opened.seconds - start < 5


@needs_chromium
@pytest.mark.skipif(not MEGATRON.is_dir(), reason="the folder of real profiles isn't there")
def test_a_real_set(chakra, tmp_path):
    traces, page = tmp_path / "et", tmp_path / "report.html"
    assert chakra("convert", MEGATRON, "-o", traces).code == 0
    assert chakra("report", traces, "-o", page).code == 0
    opened = check_page(page, str(traces), tmp_path / "profile")
    assert set(opened.figures) >= {"overlap", "comms", "skew", "ops", "launches", "memory", "sizes"}
    # A bar a rank and part, a cell of the map a rank and all-reduce.
    assert opened.figures["breakdown"] == 3 * 8
    assert "rank 0 arrives last in" in opened.text
    assert page.stat().st_size < 2_000_000
