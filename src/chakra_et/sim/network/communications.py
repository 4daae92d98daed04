"""`Communications`: what a job communicates, with equal communications put together.

Shape letters: C communications, U distinct ones, G distinct groups, N members of one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir.enums import CommType

__all__ = ["MEASURED", "SEND", "Communications", "group_communications"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

SEND, MEASURED = -1, -2

_COLUMNS = {
    "kind": pl.String(),
    "comm_type": pl.Int64(),
    "size_bytes": pl.Int64(),
    "members": pl.List(pl.Int64()),
    "root": pl.Int64(),
    "send_bytes": pl.List(pl.List(pl.Int64())),
    "measured_ns": pl.Float64(),
}


@dataclass(frozen=True, eq=False)
class Communications:
    """The communications of a job; planning costs as much as there are distinct ones.

    Attributes:
        distinct: int64 [C]: which distinct one each communication is.
        first: int64 [U]: the first communication of each.
        kind: int64 [U]: a `CommType`, `SEND`, or `MEASURED` for what has no known type but a measured time.
        size_bytes: int64 [U]; unknown sizes are 0.
        group: int64 [U]: index into `groups`.
        root: int64 [U]: global rank of the root or sender; -1 for none.
        measured_ns: float64 [U]: for `MEASURED`, NaN for others.
        groups: [G]: distinct lists of members, int64 [N], in group order; one member where all are the same rank.
        sent: Bytes from each member to each member, float64 [N, N], of the distinct ones that are uneven.
    """

    distinct: Int
    first: Int
    kind: Int
    size_bytes: Int
    group: Int
    root: Int
    measured_ns: Float
    groups: tuple[Int, ...]
    sent: dict[int, Float]


def group_communications(table: pl.DataFrame) -> Communications:
    """Put equal communications together.

    Args:
        table: One row a communication: `kind` (``collective`` or ``send``), `comm_type` (`CommType` number; null if
            unknown), `size_bytes` (`comm_size`; null counts as 0), `members` (global ranks in group order; of a send,
            source and destination), `root` (global rank; null for none), `send_bytes` (bytes from each member to each
            member, of an uneven all-to-all; else null), `measured_ns` (null if unknown). Other columns don't matter.

    Raises:
        SimulationError: A row that can't be planned.

    Example:
        >>> row = {"kind": "collective", "comm_type": 0, "size_bytes": 1024, "members": [0, 1]}
        >>> group_communications(pl.DataFrame([row, row])).distinct.tolist()
        [0, 0]
    """
    table = table.select(
        (pl.col(name) if name in table.columns else pl.lit(None).alias(name)).cast(kind)
        for name, kind in _COLUMNS.items()
    )
    named = pl.col("kind") == "send", pl.col("comm_type").is_null()
    table = table.with_columns(
        kind=pl.when(named[0]).then(SEND).when(named[1]).then(MEASURED).otherwise("comm_type"),
        measured_ns=pl.when(~named[0] & named[1]).then("measured_ns"),
        size_bytes=pl.col("size_bytes").fill_null(0),
        root=pl.when(named[0]).then(pl.col("members").list.first()).otherwise("root").fill_null(-1),
    ).drop("comm_type")
    keys = [name for name in table.columns if name != "send_bytes" or table["send_bytes"].null_count() < table.height]
    rows = table.with_row_index("row").group_by(keys, maintain_order=True).agg(pl.col("row"))
    group, groups = _groups(rows["members"])
    found = Communications(
        distinct=_positions(rows["row"], table.height),
        first=rows["row"].list.first().cast(pl.Int64).to_numpy(),
        kind=rows["kind"].cast(pl.Int64).to_numpy(),
        size_bytes=rows["size_bytes"].to_numpy(),
        group=group,
        root=rows["root"].to_numpy(),
        measured_ns=rows["measured_ns"].fill_null(np.nan).to_numpy(),
        groups=groups,
        sent=dict(_sent(rows)) if "send_bytes" in keys else {},
    )
    _check(found)
    return found


def _positions(lists: pl.Series, count: int) -> Int:
    """Return for each row which list it is in, int64 [C]."""
    found = np.zeros(count, np.int64)
    found[lists.explode().to_numpy()] = np.repeat(np.arange(len(lists)), lists.list.len().to_numpy())
    return found


def _groups(members: pl.Series) -> tuple[Int, tuple[Int, ...]]:
    """Return which group each list is, and the groups."""
    rows = pl.DataFrame({"members": members}).with_row_index("row").group_by("members", maintain_order=True).agg("row")
    groups = []
    for ranks in rows["members"]:
        one = ranks.to_numpy() if ranks is not None else np.empty(0, np.int64)
        groups.append(one[:1] if len(one) and (one == one[0]).all() else one)
    return _positions(rows["row"], len(members)), tuple(groups)


def _sent(rows: pl.DataFrame) -> Iterator[tuple[int, Float]]:
    for index in rows["send_bytes"].is_not_null().arg_true().to_list():
        matrix, n = rows["send_bytes"][index].to_list(), len(rows["members"][index])
        if len(matrix) != n or any(row is None or len(row) != n for row in matrix):
            raise SimulationError(
                f"communication {rows['row'][index][0]}: expected bytes from each of {n} members to each of them, got "
                f"a table of {len(matrix)} rows of {sorted({len(row or ()) for row in matrix})}; check the split sizes"
            )
        sent = np.array(matrix, np.float64)
        np.fill_diagonal(sent, 0.0)
        yield index, sent


def _check(found: Communications) -> None:
    """Refuse what can't be planned."""
    types = {int(kind) for kind in CommType}
    rooted = (CommType.BROADCAST, CommType.REDUCE, CommType.GATHER, CommType.SCATTER)
    for index, (kind, size, group, root) in enumerate(
        zip(found.kind.tolist(), found.size_bytes.tolist(), found.group.tolist(), found.root.tolist(), strict=True)
    ):
        members = found.groups[group]
        where = f"communication {found.first[index]}"
        if not len(members):
            raise SimulationError(
                f"{where}: expected the ranks of its group, got none; give the process group its ranks"
            )
        if size < 0:
            raise SimulationError(f"{where}: expected a size of 0 bytes or more, got {size}; repair the trace")
        if kind == MEASURED and not found.measured_ns[index] >= 0:
            raise SimulationError(
                f"{where}: expected a type of collective or a measured time, got neither; name the collective"
            )
        if kind not in types and kind not in (SEND, MEASURED):
            raise SimulationError(f"{where}: expected a type of collective (0 to {max(types)}), got {kind}")
        if kind in rooted and root >= 0 and root not in members:
            raise SimulationError(f"{where}: expected a root among ranks {_some(members)}, got rank {root}")
        if kind == SEND and len(members) > 2:
            raise SimulationError(f"{where}: expected a source and a destination, got {len(members)} ranks")


def _some(members: Int) -> str:
    text = ", ".join(map(str, members[:8].tolist()))
    return text if len(members) <= 8 else f"{text}, ... ({len(members)} in all)"
