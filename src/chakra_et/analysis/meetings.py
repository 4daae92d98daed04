"""The communications of all ranks, each once: who took part, how long the data moved, and at what bandwidth.

Shape letters: C communications of all ranks, M meetings.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from chakra_et.analysis.axes import axis_of, bus_factor, full_bytes, scope_of
from chakra_et.analysis.run import Job
from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType
from chakra_et.ir.clocks import offset_bounds
from chakra_et.ir.communications import meet

__all__ = ["clocks_of", "joined", "measure_communications", "meetings_of", "size_class"]

# A clock's offset needs no more meetings than this; comparing all pairs of ranks in all of them takes long.
_PAIRS = 4_000_000
_KEEP = (
    "rank", "type", "kind", "start_ns", "end_ns", "ready_ns", "duration_ns", "pg_name", "comm_seq", "comm_type",
    "comm_size", "comm_dtype", "comm_src", "comm_dst", "comm_tag", "comm_root", "wait_ns", "transfer_ns",
    "in_split_sizes", "out_split_sizes", "iteration", "window",
)  # fmt: skip


def measure_communications(view: RankView) -> pl.DataFrame:
    """Return the communications of one rank, [C], by start.

    Returns:
        The columns that tell a communication, and on its rank: ``compute_to_start_ns``, ``compute_to_end_ns`` (time in
        which something computed until then), ``left_ns`` (when the last communication ended that
        was over by `ready_ns`), ``computed_ns`` (time in which something computed from then to `ready_ns`),
        ``place`` (of its start in its stretch, 0 to 1).
    """
    table = view.communications
    start, end, ready = (table[name].to_numpy() for name in ("start_ns", "end_ns", "ready_ns"))
    compute = view.cover("compute")
    first = min([window.begin_ns for window in view.all_windows], default=0)
    over = np.append(np.int64(first), np.sort(end))
    left = np.minimum(over[np.searchsorted(over[1:], ready, side="right")], ready)
    begins, ends = view.window_bounds
    spans = np.maximum(ends - begins, 1)
    window = table["window"].fill_null(0).to_numpy()
    place = (start - begins[window]) / spans[window] if len(begins) else np.zeros(len(start))
    return table.select(*_KEEP).with_columns(
        compute_to_start_ns=pl.Series(compute.until(start)),
        compute_to_end_ns=pl.Series(compute.until(end)),
        left_ns=pl.Series(left),
        computed_ns=pl.Series(compute.between(left, ready)),
        place=pl.Series(place),
    )


def joined(parts: Mapping[int, pl.DataFrame], job: Job) -> pl.DataFrame:
    """Return the communications of all ranks, [C], with the number of their ``meeting`` and its ``members``.

    A communication that only its kernel's name tells meets nobody. One that any rank starts in a chosen stretch is
    ``chosen``, and of that iteration for all who take part.
    """
    table = pl.concat([parts[rank] for rank in job.ranks])
    found = meet(table.filter(pl.col("type").is_not_null()), job.groups)
    alone = table.filter(pl.col("type").is_null())
    last = found.select(pl.col("meeting").max()).item()
    number = pl.int_range(pl.len(), dtype=pl.Int64) + (0 if last is None else last + 1)
    both = pl.concat([found, alone.with_columns(meeting=number)], how="diagonal")
    return both.with_columns(
        iteration=pl.col("iteration").min().over("meeting"),
        chosen=pl.col("window").is_not_null().any().over("meeting"),
    )


def clocks_of(table: pl.DataFrame) -> pl.DataFrame:
    """Return what is added to each rank's clock, and within which bounds, as `offset_bounds` tells.

    Args:
        table: From `joined`.
    """
    pairs = table.group_by("meeting").len().select((pl.col("len").cast(pl.Int64) ** 2).sum()).item() or 0
    every = -(-pairs // _PAIRS)
    if every <= 1:
        return offset_bounds(table)
    # Of each group and each pair of ranks, the first and some more: who meets only in few is told by those.
    sent = pl.col("type") != int(NodeType.COMM_COLL_NODE)
    line = [
        *(pl.when(~sent).then(name).alias(f"of_{name}") for name in ("pg_name", "members")),
        *(pl.when(sent).then(name).alias(f"of_{name}") for name in ("comm_src", "comm_dst", "comm_tag")),
    ]
    return offset_bounds(table.filter((pl.col("meeting") - pl.col("meeting").min().over(line)) % every == 0))


def meetings_of(table: pl.DataFrame, job: Job) -> pl.DataFrame:
    """Return each communication once, [M].

    Args:
        table: From `joined`.
        job: The job.

    Returns:
        ``meeting``, ``pg_name``, ``kind``, ``comm_type`` (its word, ``send`` for both ends of a message), ``axis``,
        ``scope``, ``group_size``, ``iteration``, ``size_bytes`` (of the whole vector), ``present`` (ranks in the set),
        ``transfer_ns`` (the shortest of its participants' times: the last to come didn't wait; of a message, what the
        receiver took after both had come; null where that isn't known or 0), ``lower_bound`` (a participant is
        missing: the time may hold a wait), ``algorithm_bytes_per_s``, ``bus_bytes_per_s``.
    """
    sent = pl.col("kind").is_in(["send", "recv"])
    found = table.group_by("meeting", maintain_order=True).agg(
        pl.col("pg_name", "members", "comm_src", "comm_dst").first(),
        pl.when(sent).then(pl.lit("send")).otherwise("kind").first().alias("comm_type"),
        size=pl.col("comm_size").max(),
        present=pl.col("rank").n_unique(),
        rows=pl.len(),
        iteration=pl.col("iteration").min(),
        shortest=pl.col("duration_ns").min(),
        after=pl.col("transfer_ns").filter(pl.col("kind") == "recv").max(),
        received=(pl.col("kind") == "recv").any(),
    )
    found = found.join(_groups(found, job), on=["pg_name", "members", "comm_src", "comm_dst"], how="left",
                       nulls_equal=True, maintain_order="left")  # fmt: skip
    message = pl.col("comm_type") == "send"
    lacking = pl.col("group_size").is_null() | (pl.col("present") < pl.col("group_size"))
    transfer = pl.when(message & (pl.col("rows") > 1) & pl.col("received")).then("after").otherwise("shortest")
    found = found.with_columns(
        transfer_ns=pl.when(transfer > 0).then(transfer), lower_bound=lacking,
    )  # fmt: skip
    factors = found.select("comm_type", "group_size").unique()
    kinds, sizes = factors["comm_type"].to_list(), factors["group_size"].fill_null(0).to_list()
    factors = factors.with_columns(
        times=pl.Series(
            [full_bytes(kind, 1, max(size, 1)) for kind, size in zip(kinds, sizes, strict=True)], dtype=pl.Int64
        ),
        factor=pl.Series(
            [bus_factor(kind, size) if size else None for kind, size in zip(kinds, sizes, strict=True)],
            dtype=pl.Float64,
        ),
    )
    found = found.join(factors, on=["comm_type", "group_size"], how="left", nulls_equal=True, maintain_order="left")
    size = pl.col("size") * pl.col("times")
    rate = pl.when((size > 0) & pl.col("transfer_ns").is_not_null()).then(size * 1e9 / pl.col("transfer_ns"))
    return found.select(
        "meeting", "pg_name", "comm_type", "axis", "scope", "group_size", "iteration", "present", "transfer_ns",
        "lower_bound", size.alias("size_bytes"), rate.alias("algorithm_bytes_per_s"),
        (rate * pl.col("factor")).alias("bus_bytes_per_s"),
    )  # fmt: skip


def _groups(found: pl.DataFrame, job: Job) -> pl.DataFrame:
    """Return axis, scope and size of each group, and of each pair of ranks."""
    names = ["pg_name", "members", "comm_src", "comm_dst"]
    table = found.select(names).unique(maintain_order=True)
    rows = []
    for name, members, source, target in table.iter_rows():
        pair = source is not None and target is not None
        ranks = (source, target) if pair else tuple(map(int, members.split(","))) if members else ()
        group = next(
            (one for one in job.groups if one.name == name and (not members or one.ranks == ranks or pair)), None
        )
        size = 2 if pair else len(ranks) or (group.size if group else None)
        rows.append((axis_of(group), scope_of(ranks, job.options.server_size), size or None))
    schema = {"axis": pl.String, "scope": pl.String, "group_size": pl.Int64}
    return table.hstack(pl.DataFrame(rows, schema=schema, orient="row"))


def size_class(sizes: pl.Series) -> pl.Series:
    """Return the largest power of two that isn't above each number of bytes; 0 for none, null if unknown.

    Example:
        >>> size_class(pl.Series([0, 1, 1023, 1024, None])).to_list()
        [0, 1, 512, 1024, None]
    """
    exponent = np.frexp(sizes.fill_null(0).to_numpy().astype(np.float64))[1]
    power = np.where(exponent > 0, np.left_shift(np.int64(1), np.maximum(exponent - 1, 0).astype(np.int64)), 0)
    return pl.Series("size_class_bytes", power).set(sizes.is_null(), None)
