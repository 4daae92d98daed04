"""`SweepResult`: one table of all points of a sweep."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from chakra_et.io import write_atomic
from chakra_et.sim.sweep_keys import Parameter, format_value
from chakra_et.sim.sweep_points import Point

__all__ = ["SweepResult", "make_result", "write_tables"]

Row = dict[str, Any]

_COUNTS = ("iterations", "ranks", "folded_classes")
_TIMES = (
    "finish_ns",
    "spread_ns",
    "compute_mean_ns",
    "compute_max_ns",
    "communication_mean_ns",
    "communication_max_ns",
    "exposed_communication_mean_ns",
    "exposed_communication_max_ns",
)


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
    """The points of a sweep and what came out.

    Columns of the table, one row a point in the order of the points:

    * ``point``: number of the point, from 0.
    * the swept keys, with the unit in the name: ``scale_up.bandwidth_gb_per_s``. Of a key with words among its values
      (``rest``), all are text.
    * ``finish_ns``: time of the step; ``spread_ns``: longest less shortest iteration. Here and below, where several
      iterations were simulated, their mean.
    * ``speedup``: time of the base / time of the point.
    * ``compute_mean_ns``, ``compute_max_ns``: over the ranks; the same for ``communication`` and
      ``exposed_communication``: as in `chakra_et.sim.result.RankTimes`.
    * ``bound_by``: the resource with the largest share of the critical path, the chain of nodes that the last rank to
      end waited for; names are those of `SimResult.bounds`: ``compute``, ``memory``, ``host``, ``latency`` of the
      network, its dimensions (``scale_up``, ``scale_out``), ``communication`` where its time is a measured one, kinds
      of gaps. ``bound_share``: that share.
    * ``iterations``, ``ranks``, ``folded_classes``: how many were simulated; ``ranks`` is how many ranks the result
      covers, which are all.
    * ``notes``: how many notes limit the result; `notes` has their texts.
    * ``error``: why there is no result; null where there is one.
    * ``critical_RESOURCE_ns``: share of each resource in the critical path.

    Attributes:
        table: Polars table, as above.
        parameters: The swept keys.
        base: What the speed-ups refer to: swept keys and all of the above by name, `error` if there is none.
        notes: Notes of the points, and of how many.
        reused: Number of points that an earlier run had simulated.
        seconds: How long this run took.
    """

    table: pl.DataFrame
    parameters: tuple[Parameter, ...]
    base: Mapping[str, Any]
    notes: Mapping[str, int]
    reused: int
    seconds: float

    @property
    def failed(self) -> int:
        """Number of points that can't be simulated."""
        return len(self.table) - self.table["error"].null_count()

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data; JSON knows no infinity, so that it is text."""
        return {
            "points": [_plain(row) for row in self.table.iter_rows(named=True)],
            "parameters": [{"key": one.key, "column": one.column, "unit": one.unit or None} for one in self.parameters],
            "base": _plain(self.base),
            "failed": self.failed,
            "reused": self.reused,
            "notes": dict(self.notes),
            "seconds": round(self.seconds, 3),
        }


def _plain(row: Mapping[str, Any]) -> Row:
    return {key: str(value) if isinstance(value, float) and math.isinf(value) else value for key, value in row.items()}


def make_result(
    parameters: Sequence[Parameter],
    base: tuple[Point, Row],
    points: Sequence[tuple[Point, Row]],
    *,
    reused: int,
    seconds: float,
) -> SweepResult:
    """Return the result of a sweep.

    Args:
        parameters: The swept keys.
        base: The base and its row, as `chakra_et.sim.sweep_run.measure` makes it.
        points: The points and their rows.
        reused: Number of points that an earlier run had simulated.
        seconds: How long this run took.
    """
    resources = sorted({resource for _, row in (base, *points) for resource in row.get("bounds", {})})
    rows = [_flat(row, resources, base[1].get("finish_ns")) for _, row in points]
    columns: list[pl.Series] = [pl.Series("point", range(len(points)), dtype=pl.Int64)]
    columns += [_values(one.column, [point.values[i] for point, _ in points]) for i, one in enumerate(parameters)]
    schema = _schema(resources)
    columns += [pl.Series(name, [row.get(name) for row in rows], dtype=dtype) for name, dtype in schema.items()]
    own = dict(zip((one.column for one in parameters), base[0].values, strict=True))
    own |= {name: _flat(base[1], resources, base[1].get("finish_ns")).get(name) for name in schema}
    notes: dict[str, int] = {}
    for _, row in points:
        for note in row.get("notes", ()):
            notes[note] = notes.get(note, 0) + 1
    return SweepResult(pl.DataFrame(columns), tuple(parameters), own, notes, reused, seconds)


def _schema(resources: Sequence[str]) -> dict[str, pl.DataType]:
    return {
        "finish_ns": pl.Int64(),
        "speedup": pl.Float64(),
        **dict.fromkeys(_TIMES[2:], pl.Int64()),
        "bound_by": pl.String(),
        "bound_share": pl.Float64(),
        "spread_ns": pl.Int64(),
        **dict.fromkeys(_COUNTS, pl.Int64()),
        "notes": pl.Int64(),
        "error": pl.String(),
        **{_critical(resource): pl.Int64() for resource in resources},
    }


def _critical(resource: str) -> str:
    return f"critical_{resource.replace(' ', '_')}_ns"


def _flat(row: Row, resources: Sequence[str], base_ns: int | None) -> Row:
    """Return a row with one value a column."""
    if "error" in row:
        return {"error": row["error"]}
    bounds: dict[str, int] = row["bounds"]
    largest = next(iter(bounds), None)
    return {
        **{name: row[name] for name in (*_TIMES, *_COUNTS)},
        "speedup": base_ns / row["finish_ns"] if base_ns is not None and row["finish_ns"] else None,
        "bound_by": largest,
        "bound_share": bounds[largest] / sum(bounds.values()) if largest is not None else None,
        "notes": len(row["notes"]),
        **{_critical(resource): bounds.get(resource, 0) for resource in resources},
    }


def _values(name: str, values: Sequence[Any]) -> pl.Series:
    """Return a column of numbers, or of texts where one of them is none."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str) for value in known):
        texts = [None if value is None else format_value(value) for value in values]
        return pl.Series(name, texts, dtype=pl.String)
    whole = all(isinstance(value, int) for value in known)
    return pl.Series(name, values, dtype=pl.Int64 if whole else pl.Float64)


def write_tables(result: SweepResult, folder: Path) -> list[Path]:
    """Write ``sweep.parquet`` and ``sweep.csv``, in place of those that an earlier run of the sweep wrote.

    Raises:
        OutputError: They can't be written.
    """
    stream = io.BytesIO()
    result.table.write_parquet(stream)
    parquet = write_atomic(folder / "sweep.parquet", [stream.getvalue()], force=True)
    return [parquet, write_atomic(folder / "sweep.csv", [result.table.write_csv().encode()], force=True)]
