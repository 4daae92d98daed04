"""Copies and sets of memory: how much of which kind, and how fast.

Shape letters: C copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from chakra_et.analysis.activities import CATEGORIES
from chakra_et.analysis.expressions import union_ns
from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType

__all__ = ["bandwidth_over_time", "find_copies", "measure_copies"]

_QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9}
_NS = 1_000_000_000


def find_copies(view: RankView, devices: Sequence[int] = ()) -> pl.DataFrame:
    """Return the copies and sets of the chosen stretches, [C], by start.

    Args:
        view: The rank.
        devices: Devices whose memory it uses: where there is one, it is that of copies which don't tell theirs.

    Returns:
        Columns ``device``, ``kind`` (``HtoD``, ``DtoH``, ``DtoD``, ``PtoP``, ``HtoH``, ``memset``; ``load``, ``store``
        where only the node's type tells), ``memory`` (``pinned`` or ``pageable`` where the copy's name tells what the
        host's side was, else null), ``start_ns``, ``end_ns``, ``bytes`` (null if unknown).
    """
    table = view.activities.filter((pl.col("category") == CATEGORIES[2]) & pl.col("window").is_not_null())
    rows = table["row"]
    names = table["name"].unique()
    lower = names.str.to_lowercase()
    memory = pl.select(
        pl.when(lower.str.contains("pageable")).then(pl.lit("pageable"))
        .when(lower.str.contains("pinned")).then(pl.lit("pinned"))
    ).to_series()  # fmt: skip
    types = view.nodes["type"].gather(rows)
    kinds = view.trace.column("copy_kind").gather(rows)
    stated = {int(NodeType.MEM_LOAD_NODE): "load", int(NodeType.MEM_STORE_NODE): "store"}
    guess = types.replace_strict(stated, default="copy", return_dtype=pl.String)
    told = view.trace.column("device").gather(rows)
    alone = told.null_count() == len(told) and len(devices) == 1
    return table.select(
        pl.lit(devices[0], pl.Int64).alias("device") if alone else pl.col("device"),
        pl.coalesce(kinds, guess).alias("kind"),
        pl.col("name").replace_strict(names, memory, return_dtype=pl.String).alias("memory"),
        "start_ns",
        "end_ns",
        "bytes",
    )


def measure_copies(copies: pl.DataFrame) -> pl.DataFrame:
    """Add up copies by device, kind and memory.

    Args:
        copies: As `find_copies` returns them.

    Returns:
        Columns ``device``, ``kind``, ``memory``, ``copies``, ``bytes``, ``without_bytes`` (copies whose size nothing
        tells), ``time_ns`` (in which any of them runs), ``duration_ns`` (all of them added up),
        ``bandwidth_bytes_per_s`` (bytes by the added durations of those with a size) and its percentiles over copies
        ``bandwidth_p10_bytes_per_s``, ``..p50..``, ``..p90..``; null where no copy has size and duration.
    """
    key = ["device", "kind", "memory"]
    duration = pl.col("end_ns") - pl.col("start_ns")
    sized = pl.col("bytes").is_not_null() & (duration > 0)
    rate = (pl.col("bytes") * float(_NS) / duration).filter(sized)
    spent = duration.filter(sized).sum()
    return (
        copies.group_by(key)
        .agg(
            copies=pl.len().cast(pl.Int64),
            bytes=pl.col("bytes").sum(),
            without_bytes=pl.col("bytes").null_count().cast(pl.Int64),
            time_ns=union_ns(),
            duration_ns=duration.sum(),
            bandwidth_bytes_per_s=pl.when(spent > 0).then(pl.col("bytes").filter(sized).sum() * float(_NS) / spent),
            **{f"bandwidth_{name}_bytes_per_s": rate.quantile(share) for name, share in _QUANTILES.items()},
        )
        .sort(*key, nulls_last=True)
    )


def bandwidth_over_time(copies: pl.DataFrame) -> pl.DataFrame:
    """Return the bandwidth of the copies that run at a time, each taken to go at its own mean rate.

    That is HolisticTraceAnalysis' memory bandwidth, in ns and bytes a second, by kind of copy.

    Args:
        copies: As `find_copies` returns them.

    Returns:
        Columns ``device``, ``kind``, ``time_ns``, ``bandwidth_bytes_per_s`` (int64: from then on), by device, kind and
        time.
    """
    duration = pl.col("end_ns") - pl.col("start_ns")
    sized = copies.filter(pl.col("bytes").is_not_null() & (duration > 0)).with_columns(
        rate=(pl.col("bytes") * float(_NS) / duration).round().cast(pl.Int64)
    )
    key = ["device", "kind"]
    ends = (("start_ns", pl.col("rate")), ("end_ns", -pl.col("rate")))
    changes = pl.concat(sized.select(*key, pl.col(name).alias("time_ns"), rate.alias("rate")) for name, rate in ends)
    return (
        changes.group_by(*key, "time_ns")
        .agg(pl.col("rate").sum())
        .sort(*key, "time_ns")
        .select(*key, "time_ns", bandwidth_bytes_per_s=pl.col("rate").cum_sum().over(key))
    )
