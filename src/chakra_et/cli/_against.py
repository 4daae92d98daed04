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
KEYS = ["side", "key", "name", "nth"]


def compare(traces: TraceSet, path: str) -> dict[str, Any]:
    """Return the distances between a rank's rebuilt starts and the starts in a profile, as plain data.

    Times count from the first event that both know, so that neither clock nor window matters.

    Raises:
        MismatchError: Trace and profile have nothing in common.
    """
    profile = parse_kineto(path, read_bytes(path))
    rank = _rank(traces, profile)
    trace = traces.trace(rank)
    made = reconstruct(trace)
    recorded = _profile_events(profile)
    both = recorded.join(_rebuilt_events(trace, made.start_ns), on=KEYS).sort("start_ns")
    if both.height == 0:
        raise MismatchError(
            f"{path}: expected events of rank {rank}'s trace, got none; is it the profile of another run?"
        )
    shifted = (both["rebuilt_ns"] - both["start_ns"]).to_numpy()
    error = np.abs(shifted - shifted[0])
    ends = recorded["start_ns"] + recorded["duration_ns"]
    p50, p99 = np.quantile(error, (0.5, 0.99), method="higher")
    return {
        "rank": rank,
        "profile": path,
        "compared": both.height,
        "recorded": recorded.height,
        "start_error_ns": {"p50": int(p50), "p99": int(p99), "max": int(error.max())},
        "makespan_ns": made.makespan_ns,
        "profile_ns": int(ends.max() - recorded["start_ns"].min()),
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


def _profile_events(profile: KinetoProfile) -> pl.DataFrame:
    columns = ("name", "start_ns", "duration_ns")
    device = profile.activities.select(pl.lit("device").alias("side"), pl.col("correlation").alias("key"), *columns)
    host = profile.host.filter(pl.col("rf_id") > 0)
    host = host.select(pl.lit("host").alias("side"), pl.col("rf_id").alias("key"), *columns)
    return _numbered(pl.concat([device, host]), "start_ns")


def _rebuilt_events(trace: Trace, start_ns: npt.NDArray[np.int64]) -> pl.DataFrame:
    wanted = ("name", "type", "is_cpu_op", "gap_kind", "segment", "correlation", "rf_id")
    table = pl.DataFrame([*(trace.column(name) for name in wanted), pl.Series("rebuilt_ns", start_ns)])
    whole = pl.col("gap_kind").is_null() & (pl.col("segment").fill_null(0) == 0)
    table = table.filter(whole & (pl.col("type") != int(NodeType.METADATA_NODE)) & (pl.col("rebuilt_ns") >= 0))
    host = pl.col("is_cpu_op").fill_null(False)
    side = pl.when(host).then(pl.lit("host")).otherwise(pl.lit("device")).alias("side")
    key = pl.when(host).then("rf_id").otherwise("correlation").alias("key")
    return _numbered(table.select(side, key, "name", "rebuilt_ns").drop_nulls("key"), "rebuilt_ns")


def _numbered(table: pl.DataFrame, time: str) -> pl.DataFrame:
    return table.sort(time, maintain_order=True).with_columns(pl.int_range(pl.len()).over(KEYS[:3]).alias("nth"))
