"""The communications of all ranks, each once."""

import polars as pl

from chakra_et.analysis import meetings
from chakra_et.analysis.meetings import clocks_of, joined, measure_communications
from chakra_et.analysis.options import Options
from chakra_et.analysis.run import make_job, measure_all
from chakra_et.ir import CommType, ProcessGroup, TraceSet
from tests.unit.analysis.hand_made import Rank

GROUPS = (ProcessGroup("0", (0, 1), 2), ProcessGroup("1", (1, 2), 2))
AHEAD = 1_000_000


def often_and_once():
    """Ranks 0 and 1 meet five times; rank 2, whose clock is ahead, meets rank 1 once, at the end."""
    ranks = [Rank(number, groups=GROUPS, origin=AHEAD * (number == 2)) for number in range(3)]
    for turn in range(5):
        for rank in ranks[:2]:
            rank.collective(CommType.ALL_REDUCE, 100 * turn, 100 * turn + 50, 64, pg_name="0")
    for rank in ranks[1:]:
        rank.collective(CommType.ALL_REDUCE, 600, 650, 64, pg_name="1")
    return TraceSet(tuple(rank.build() for rank in ranks))


def communications(source):
    measured = measure_all([measure_communications], source, Options())
    return joined({rank: one.parts[0] for rank, one in measured.items()}, make_job(measured, Options()))


def test_of_many_meetings_some_tell_the_clocks_of_every_group(monkeypatch):
    table = communications(often_and_once())
    assert table["meeting"].n_unique() == 6
    whole = clocks_of(table)
    assert whole.select("rank", "offset_ns", "meetings").rows() == [(0, 0, 0), (1, 0, 5), (2, -AHEAD, 1)]
    monkeypatch.setattr(meetings, "_PAIRS", 8)
    assert clocks_of(table).select("rank", "offset_ns", "meetings").rows() == [(0, 0, 0), (1, 0, 2), (2, -AHEAD, 1)]
    assert clocks_of(table.filter(pl.col("pg_name") == "0")).height == 2
