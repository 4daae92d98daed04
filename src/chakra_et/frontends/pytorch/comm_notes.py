"""What our observer wrote beside communications: the group, what is reduced, and who waits for what.

On gloo, PyTorch's execution trace holds process groups and reduce operators as ``<Object>``. `chakra_et.capture` adds a
node ``## chakra:comm ##`` inside each ``c10d`` call, and one ``## chakra:wait ##`` around each wait; both hold JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import polars as pl

__all__ = ["COMM_NOTE", "NOTES", "WAIT", "WAIT_NOTE", "CommNote", "is_note", "take_notes"]

# How the names of all notes begin.
NOTES = "## chakra:"
COMM_NOTE = f"{NOTES}comm ##"
WAIT_NOTE = f"{NOTES}wait ##"
# What a wait is called in a trace.
WAIT = "c10d::wait"

_REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
_REDUCING = ("allreduce", "reduce")


@dataclass(frozen=True, slots=True)
class CommNote:
    """What the observer says of one call.

    Attributes:
        id: Number of the call in its rank's capture.
        group: Name of the process group; empty if the observer couldn't tell.
        reduce_op: What is reduced, in the column's words; empty where nothing is.
        is_async: False if the call waits by itself; None if unknown.
    """

    id: int
    group: str = ""
    reduce_op: str = ""
    is_async: bool | None = None


def is_note(column: str = "name") -> pl.Expr:
    """Return which nodes or events only say something of others, and take no part in the trace."""
    return pl.col(column) == COMM_NOTE


def take_notes(nodes: pl.DataFrame) -> tuple[pl.DataFrame, dict[int, CommNote], dict[int, int]]:
    """Take the notes out of an execution trace.

    Args:
        nodes: `HostTrace.nodes`, sorted by id.

    Returns:
        The nodes without the notes on calls, what is known of calls by node id, and the awaited calls' numbers by the
        waits' node ids.
    """
    # A note comes first in its call. Parents don't tell: gloo's worker may close what is open on the thread meanwhile.
    call = pl.when(pl.col("name").str.starts_with("c10d::")).then(pl.col("id")).forward_fill().over("tid")
    notes = nodes.select("name", "input_values", call=call).filter(is_note(), pl.col("call").is_not_null())
    notes = notes.unique("call", keep="first", maintain_order=True).select("call", "input_values")
    nodes = nodes.filter(~is_note())
    waits = nodes.filter(pl.col("name") == WAIT_NOTE).select("id", "input_values")
    awaited = {node: number for node, text in waits.iter_rows() if (number := _number(_record(text))) is not None}
    if not notes.height:
        return nodes, {}, awaited
    calls = nodes.select("id", "parent", "name").join(notes, left_on="id", right_on="call")
    above = nodes.select(parent=pl.col("id"), above="name", above_values="input_values")
    calls = calls.join(above, on="parent", how="left")
    wanted = calls.select("id", "name", "above", "above_values", "input_values")
    found = {node: _note(name, above, values, _record(text)) for node, name, above, values, text in wanted.iter_rows()}
    return nodes, {node: note for node, note in found.items() if note is not None}, awaited


def _record(text: str | None) -> dict[str, Any]:
    """Return the object in a node's one input; nothing, if a crash cut it off."""
    try:
        values = msgspec.json.decode(text or "[]")
        record = msgspec.json.decode(values[0]) if isinstance(values[0], str) else values[0]
    except (msgspec.DecodeError, IndexError, TypeError, KeyError):
        return {}
    return record if isinstance(record, dict) else {}


def _number(record: dict[str, Any]) -> int | None:
    number = record.get("id")
    return number if isinstance(number, int) and 0 <= number < 2**62 else None


def _note(name: str, above: str | None, above_values: str | None, record: dict[str, Any]) -> CommNote | None:
    number = _number(record)
    if number is None:
        return None
    said = str(record.get("reduce_op") or "")
    if not said and name.removeprefix("c10d::").lstrip("_").startswith(_REDUCING):
        # Functional collectives name it; otherwise the caller is DDP's reducer, which sums.
        functional = (above or "").startswith("_c10d_functional")
        said = next((word for word in _REDUCE_OPS if functional and f'"{word}"' in (above_values or "")), "sum")
    is_async = record.get("async")
    return CommNote(
        id=number,
        group=str(record.get("pg") or ""),
        reduce_op=said if said in _REDUCE_OPS else "",
        is_async=is_async if isinstance(is_async, bool) else None,
    )
