"""Compare a rebuilt schedule with a profile that is read afresh: an independent look at a trace's times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from chakra_et.errors import MismatchError
from chakra_et.frontends.pytorch.parse_kineto import KinetoProfile, parse_kineto
from chakra_et.io import read_bytes
from chakra_et.ir import NodeType, Trace, TraceSet
from chakra_et.passes.reconstruct import reconstruct

if TYPE_CHECKING:
    import numpy.typing as npt

# What names the same thing in trace and profile; the n-th in time of equal ones meets the n-th.
KEYS = ["side", "key", "name"]


def compare(traces: TraceSet, path: str) -> dict[str, Any]:
    """Return the distances between a rank's rebuilt starts and the starts in a profile, as plain data.

    Times count from the first event that both know, so that neither clock nor window matters. Events are found again by
    correlation and record function id; in a profile that has neither, by name and order on
    a thread or stream, if the trace has as many.

    Raises:
        MismatchError: Trace and profile have nothing in common.
    """
    profile = parse_kineto(path, read_bytes(path))
    rank = _rank(traces, profile)
    trace = traces.trace(rank)
    made = reconstruct(trace)
    recorded, rebuilt = _profile_events(profile), _rebuilt_events(trace, made.start_ns)
    by_ids = bool((recorded["key"] >= 0).any())
    both = _joined(recorded, rebuilt, by_ids=by_ids)
    if both.height == 0:
        how = "" if by_ids else " (by name: it has no ids to compare by)"
        raise MismatchError(
            f"{path}: expected events of rank {rank}'s trace, got none{how}; is it the profile of another run?"
        )
    shifted = (both["rebuilt_ns"] - both["start_ns"]).to_numpy()
    error = np.abs(shifted - shifted[0])
    p50, p99 = np.quantile(error, (0.5, 0.99), method="higher")
    return {
        "rank": rank,
        "profile": path,
        "matched_by": "ids" if by_ids else "names",
        "compared": both.height,
        "recorded": recorded.filter(pl.col("key") >= 0).height if by_ids else recorded.height,
        "start_error_ns": {"p50": int(p50), "p99": int(p99), "max": int(error.max())},
        "makespan_ns": made.makespan_ns,
        "profile_ns": _window_ns(profile),
    }


def _rank(traces: TraceSet, profile: KinetoProfile) -> int:
    if profile.rank is None:
        if len(traces) != 1:
            raise MismatchError(
                f"{profile.path}: expected a profile that states its rank, got none; name one trace file"
            )
        return traces.ranks[0]
    if profile.rank not in traces.ranks:
        raise MismatchError(
            f"{profile.path}: expected the profile of a rank in {list(traces.ranks)}, got rank {profile.rank}; "
            "name the profile that the trace was made from"
        )
    return profile.rank


def _window_ns(profile: KinetoProfile) -> int:
    """Return the time from the first start to the last end of all that a trace is made from, ranges included."""
    times = pl.concat([table.select("start_ns", "duration_ns") for table in (profile.host, profile.activities)])
    ends = times["start_ns"] + times["duration_ns"]
    return int(ends.max() - times["start_ns"].min())


def _profile_events(profile: KinetoProfile) -> pl.DataFrame:
    columns = ("name", "start_ns")
    number = pl.when(pl.col("rf_id") > 0).then("rf_id").otherwise(-1).alias("key")
    host = profile.host.select(pl.lit("host").alias("side"), number, pl.col("tid").alias("lane"), *columns)
    names = (pl.lit("device").alias("side"), pl.col("correlation").alias("key"), pl.col("stream").alias("lane"))
    return pl.concat([profile.activities.select(*names, *columns), host])


def _rebuilt_events(trace: Trace, start_ns: npt.NDArray[np.int64]) -> pl.DataFrame:
    wanted = ("name", "type", "is_cpu_op", "gap_kind", "segment", "correlation", "rf_id", "tid", "stream")
    table = pl.DataFrame([*(trace.column(name) for name in wanted), pl.Series("rebuilt_ns", start_ns)])
    whole = pl.col("gap_kind").is_null() & (pl.col("segment").fill_null(0) == 0)
    table = table.filter(whole & (pl.col("type") != int(NodeType.METADATA_NODE)) & (pl.col("rebuilt_ns") >= 0))
    host = pl.col("is_cpu_op").fill_null(False)
    side = pl.when(host).then(pl.lit("host")).otherwise(pl.lit("device")).alias("side")
    key = pl.when(host).then("rf_id").otherwise("correlation").fill_null(-1).alias("key")
    return table.select(side, key, pl.when(host).then("tid").otherwise("stream").alias("lane"), "name", "rebuilt_ns")


def _joined(recorded: pl.DataFrame, rebuilt: pl.DataFrame, *, by_ids: bool) -> pl.DataFrame:
    """Return the events of both tables; without ids, those of names that a thread or stream has as often in both."""
    tables = []
    for table, time in ((recorded, "start_ns"), (rebuilt, "rebuilt_ns")):
        named = table.filter(pl.col("key") >= 0) if by_ids else table.with_columns(pl.col("lane").alias("key"))
        nth, count = pl.int_range(pl.len()).over(KEYS).alias("nth"), pl.len().over(KEYS).alias("count")
        tables.append(named.sort(time, maintain_order=True).with_columns(nth, count))
    return tables[0].join(tables[1], on=[*KEYS, "nth"] if by_ids else [*KEYS, "nth", "count"]).sort("start_ns")
