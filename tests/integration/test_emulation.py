"""Collectives between network namespaces follow the shaped bandwidth, and the simulator given the same agrees."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from tests.conftest import ROOT

SKIPPED = 77
# Four processes share what cores there are with whatever else runs.
MOST_ERROR = 0.25


@pytest.fixture(scope="module")
def rows():
    words = [sys.executable, str(ROOT / "benchmarks" / "emulate.py"), "--rates", "25Mb/s,100Mb/s", "--sizes", "2MiB",
             "--repeats", "2", "--json"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_the_simulator_agrees_with_the_links(rows):
    assert len(rows) == 6
    errors = {(row["kind"], row["rate_bits_per_s"]): round(row["error"], 3) for row in rows}
    print("simulated less measured, as a share of measured:", errors)
    assert max(map(abs, errors.values())) < MOST_ERROR, errors


def test_a_link_of_a_quarter_of_the_speed_takes_four_times_as_long(rows):
    slow = {row["kind"]: row["measured_ns"] for row in rows if row["rate_bits_per_s"] == 25_000_000}
    fast = {row["kind"]: row["measured_ns"] for row in rows if row["rate_bits_per_s"] == 100_000_000}
    for kind, spent in slow.items():
        assert spent / fast[kind] == pytest.approx(4, rel=MOST_ERROR)


def test_nothing_is_left_behind(rows):
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert "chakra-" not in left
