"""Cells of analyses' tables for people: which columns, their headings, and values with the units that names tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import polars as pl

from chakra_et.analysis.names import short_name
from chakra_et.units import format_bytes, format_count, format_share

__all__ = ["COLUMNS", "SCREEN", "cells", "shown_columns", "word_places"]

_LONGEST = 60
# Shorter than the column's name.
_HEADINGS = {"exposed_communication_ns": "exposed comm.", "pg_name": "group", "comm_type": "type",
             "comm_dtype": "dtype", "size_class_bytes": "size from", "bus_gib_per_s": "bus GiB/s",
             "bus_bytes_per_s": "bus bandwidth", "transfer_mean_ns": "mean transfer",
             "time_ns": "time in all", "wait_ns": "wait in all",
             "idle_launch_latency_ns": "launch latency", "idle_host_bound_ns": "host bound",
             "idle_other_stream_ns": "other stream", "idle_communication_ns": "idle: comm.",
             "idle_unexplained_ns": "unex- plained", "flop_per_s": "FLOP/s",
             "call_ns": "in calls", "call_mean_ns": "mean call", "latency_p50_ns": "latency p50",
             "short_share": "short kernels", "queue_empty_share": "queue empty",
             "bytes_per_s": "memory bandwidth"}  # fmt: skip
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = ("_bytes_per_s", "_flop_per_s", "_ns", "_bytes")
_NUMBERS = ("rank", "iteration", "stream", "device")

# What people see of each table; --csv and --json give all of it.
COLUMNS: dict[str, tuple[str, ...]] = {
    "iterations": ("rank", "iteration", "label", "kind", "begin_ns", "span_ns", "host_span_ns", "activities",
                   "context_tokens", "generation_tokens"),
    "breakdown": ("rank", "iteration", "span_ns", "compute_ns", "overlap_ns", "exposed_communication_ns", "memory_ns",
                  "idle_ns", "idle_host_bound_ns", "idle_launch_latency_ns", "idle_other_stream_ns",
                  "idle_communication_ns", "idle_unexplained_ns"),
    "overlap": ("rank", "iteration", "pg_name", "comm_type", "count", "communication_ns", "overlap_ns",
                "exposed_communication_ns", "overlap_share"),
    "comms": ("rank", "iteration", "pg_name", "axis", "scope", "comm_type", "comm_dtype", "size_class_bytes", "count",
              "time_ns", "wait_ns", "transfer_mean_ns", "bus_bytes_per_s", "link_share", "bus_gib_per_s"),
    "skew": ("rank", "iteration", "pg_name", "comm_type", "count", "last_share", "behind_mean_ns", "cost_ns",
             "late_compute_ns", "late_host_ns", "late_before_ns", "waited_ns", "behind_max_ns", "last_count"),
    "critical-path": ("kind", "name", "path_ns", "path_share", "total_ns", "gain_ns", "gain_share"),
    "kernels": ("rank", "iteration", "stream", "name", "kind", "op", "count", "total_ns", "share",
                "mean_ns", "p50_ns", "p99_ns"),
    "ops": ("rank", "iteration", "op", "shapes", "module", "kind", "count", "total_ns", "share", "flop_per_s",
            "peak_share", "bound", "exact", "bytes_per_s", "mean_ns"),
    "launches": ("rank", "iteration", "device", "stream", "call", "calls", "call_ns", "host_bound_ns", "queue_mean",
                 "queue_empty_share", "latency_p50_ns", "short_share", "call_mean_ns", "blocked_ns", "graph_launches",
                 "graph_share"),
    "memory": ("rank", "device", "source", "peak_bytes", "peak_iteration", "peak_phase", "peak_op",
               "unused_at_peak_bytes", "growth_bytes", "copies", "copied_bytes", "copy_ns", "htod_bytes", "dtoh_bytes"),
    "phases": ("rank", "iteration", "phase", "layer", "module_type", "steps", "span_ns", "compute_ns",
               "communication_ns", "device_ns", "exclusive_ns", "host_ns", "activities", "tokens", "tokens_per_s"),
}  # fmt: skip
SCREEN = ("rank", "span_ns", "compute_ns", "overlap_ns", "exposed_communication_ns", "memory_ns", "idle_ns",
          "idle_host_bound_ns")  # fmt: skip


def shown_columns(table: pl.DataFrame, columns: Sequence[str]) -> list[str]:
    """Return the columns that the table has, and that hold something; `exact` only where something isn't."""
    return [
        name for name in columns
        if name in table.columns and table[name].null_count() < table.height
        and not (name == "exact" and table[name].all())
    ]  # fmt: skip


def word_places(table: pl.DataFrame) -> list[int]:
    """Return the positions of columns that hold words."""
    kinds = (pl.String, pl.Enum, pl.Categorical, pl.Boolean)
    return [place for place, dtype in enumerate(table.schema.dtypes()) if dtype.base_type() in kinds]


def cells(table: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a table as texts; names of columns tell the units."""
    names = table.columns
    rows = [[_cell(name, value) for name, value in zip(names, row, strict=True)] for row in table.iter_rows()]
    return [_heading(name) for name in names], rows


def _heading(name: str) -> str:
    if name in _HEADINGS:
        return _HEADINGS[name]
    for suffix in _UNITS:
        if name.endswith(suffix):
            rate = "/s" if suffix.endswith("_s") else ""
            return name.removesuffix(suffix).replace("_", " ") + rate
    return name.replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        # Scalars, and what isn't given, come last.
        text = re.sub(r"(,\[\])+\]$", "]", value) if name == "shapes" else str(value)
        text = short_name(text) if name == "name" else text
        return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
    if name in _NUMBERS:
        return "host" if name == "device" and value < 0 else str(value)
    if name.endswith("_ns"):
        return _time(value)
    if name == "mfu" or name.endswith("share"):
        return format_share(value, 1)
    if name.endswith("_per_s"):
        return _rate(value, name)
    if name.endswith("bytes"):
        return format_bytes(value)
    if name == "flop_count":
        return _scaled(value, "FLOP")
    return f"{value:,.4g}" if isinstance(value, float) else format_count(value)


def _time(value_ns: float) -> str:
    """Return a time with four digits, which is what a table has room for."""
    size = abs(value_ns)
    for unit_ns, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if size >= unit_ns:
            digits = 3 - len(str(int(size / unit_ns))) + 1
            return f"{value_ns / unit_ns:,.{max(digits, 0)}f} {unit}"
    return f"{value_ns:.0f} ns"


def _rate(value: float, name: str) -> str:
    if "gib" in name:
        return f"{value:,.1f}"
    return _scaled(value, "FLOP/s" if "flop" in name else "B/s" if "bytes" in name else "/s")


def _scaled(value: float, unit: str) -> str:
    size, prefix = next(((size, prefix) for size, prefix in _RATES if value >= size), (1.0, ""))
    return f"{value / size:,.1f} {prefix}{unit}"
