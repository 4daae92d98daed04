"""The communications of converted profiles as the network model takes them, with their measured times."""

import polars as pl

from chakra_et.ir import NodeType

COLLECTIVE, SEND, RECV = (int(NodeType[f"COMM_{name}_NODE"]) for name in ("COLL", "SEND", "RECV"))


def measured_communications(traces):
    """Return one row a communication that all participants of a converted set took part in.

    A collective takes the median of its ranks' transfers, a send what its receiver takes from the last arrival on.
    """
    groups = {(group.name, rank): list(group.ranks) for group in traces.process_groups for rank in group.ranks}
    rows = []
    for rank, trace in zip(traces.ranks, traces, strict=True):
        names = ("type", "comm_type", "comm_size", "pg_name", "comm_seq", "comm_src", "comm_dst", "comm_tag",
                 "comm_root", "transfer_ns", "wait_ns")  # fmt: skip
        columns = [trace.column(name).alias(name) for name in names]
        part = pl.DataFrame(columns).filter(pl.col("type").is_in([COLLECTIVE, SEND, RECV]))
        rows += [{**row, "rank": rank} for row in part.iter_rows(named=True)]
    meetings = {}
    for row in rows:
        if row["transfer_ns"] is None:
            continue
        if row["type"] == COLLECTIVE:
            members = groups.get((row["pg_name"], row["rank"]))
            key = ("collective", row["comm_type"], tuple(members or ()), row["comm_seq"])
        else:
            source = row["rank"] if row["comm_src"] is None else row["comm_src"]
            target = row["rank"] if row["comm_dst"] is None else row["comm_dst"]
            key = ("send", None, (source, target), (row["comm_tag"], row["comm_seq"]))
        meetings.setdefault(key, []).append(row)
    table = []
    for (kind, comm_type, members, _), met in meetings.items():
        if len({row["rank"] for row in met}) == len(members) and (kind == "send" or comm_type is not None):
            times = sorted(row["transfer_ns"] for row in met if kind == "collective" or row["type"] == RECV)
            sizes = [row["comm_size"] for row in met if row["comm_size"] is not None]
            table.append(
                {
                    "kind": kind,
                    "comm_type": comm_type,
                    "size_bytes": max(sizes, default=None),
                    "members": list(members),
                    "root": next((row["comm_root"] for row in met if row["comm_root"] is not None), None),
                    "measured_ns": float(times[len(times) // 2]),
                }
            )
    schema = {"kind": pl.String(), "comm_type": pl.Int64(), "size_bytes": pl.Int64(), "members": pl.List(pl.Int64()),
              "root": pl.Int64(), "measured_ns": pl.Float64()}  # fmt: skip
    return pl.DataFrame(table, schema=schema)
