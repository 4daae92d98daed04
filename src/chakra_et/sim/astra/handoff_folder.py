"""The folder that ASTRA-sim runs from: traces and configuration files, written whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import polars as pl

from chakra_et.errors import OutputError
from chakra_et.io import attribute_values, write
from chakra_et.ir import NodeType, Trace, TraceSet
from chakra_et.specs import AstraConfig, write_astra_config

__all__ = ["PREFIX", "name_whole_job", "refuse_folder", "write_folder"]

PREFIX = "trace"
_CONFIG = ("network.yml", "system.json", "memory.json", "comm_group.json")
_NOTE = (
    "collectives of all ranks were written as those of group {0}: ASTRA-sim numbers them together with those of "
    "groups, so that they would never meet"
)
_WHOLE_JOB = ("", "0")


def refuse_folder(folder: Path, *, force: bool, groups: bool) -> None:
    """Refuse a folder that can't be written to.

    Args:
        folder: Where to write.
        force: True if it may hold files.
        groups: True if there are communicator groups.

    Raises:
        OutputError: It is a file, it isn't empty, or ASTRA-sim would ignore the groups in it.
    """
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder}: expected a folder, got a file; choose another path")
    if not force and folder.is_dir() and any(folder.iterdir()):
        raise OutputError(
            f"{folder}: expected a new or empty folder, got one with files; choose another or use --force"
        )
    if groups and "empty" in str(folder.absolute()):
        raise OutputError(
            f"{folder}: expected a path without 'empty' in it, which tells ASTRA-sim that there are no groups; "
            "choose another"
        )


def write_folder(traces: TraceSet, config: AstraConfig, folder: Path, *, ticks: bool) -> None:
    """Write traces, network.yml, system.json, memory.json, and comm_group.json if there are groups.

    Args:
        traces: One trace a rank.
        config: Machine and algorithms.
        folder: Where to write; made if it isn't there. Traces of an earlier run are removed.
        ticks: True if ASTRA-sim is to log when each node is issued and ends.

    Raises:
        OutputError: It can't be written; nothing half-written is left.
        InputError: A value isn't one that ASTRA-sim can run.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as scratch:
            paths = write_astra_config(config, scratch)
            _finish_system(Path(scratch) / "system.json", folder, ticks=ticks)
            for rank, trace in zip(traces.ranks, traces, strict=True):
                paths.append(write(trace, Path(scratch) / f"{PREFIX}.{rank}.et"))
            for old in (*folder.glob(f"{PREFIX}.*.et"), *(folder / name for name in _CONFIG)):
                old.unlink(missing_ok=True)
            for path in paths:
                shutil.move(path, folder / path.name)
    except OSError as err:
        raise OutputError(f"{folder}: expected a folder to write to, got an error: {err.strerror}") from err
    finally:
        if made and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _finish_system(path: Path, folder: Path, *, ticks: bool) -> None:
    """Add what is no part of the machine: what is logged, and where it goes."""
    values = json.loads(path.read_text(encoding="utf-8"))
    if ticks:
        values["trace-enabled"] = 1
    if "local-mem-trace-filename" in values:
        values["local-mem-trace-filename"] = str(folder.absolute() / values["local-mem-trace-filename"])
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def name_whole_job(traces: TraceSet, config: AstraConfig) -> tuple[TraceSet, AstraConfig, str]:
    """Give collectives of all ranks a group of their own, if some groups are smaller than the job.

    ASTRA-sim tells collectives apart by a number that each rank counts up: for those of all ranks it counts all of its
    collectives, those of groups, too. Where ranks have run different numbers of the latter, they never meet.

    Args:
        traces: One trace a rank.
        config: Machine and algorithms.

    Returns:
        Traces and configuration for ASTRA-sim, which take the same time, and a note; the same and no note where nothing
        had to be changed, or can't be: a group ignores `involved_dim`, and custom collectives go by node.
    """
    custom = (
        config.per_node_custom,
        config.all_reduce_custom,
        config.all_gather_custom,
        config.reduce_scatter_custom,
        config.all_to_all_custom,
    )
    mixed = _uses(traces, whole=True) and _uses(traces, whole=False)
    if not mixed or any(custom) or any(attribute_values(trace, "involved_dim") for trace in traces):
        return traces, config, ""
    number = max((number for number, _ in config.groups), default=0) + 1
    groups = (*config.groups, (number, tuple(range(config.npus))))
    return traces.map(lambda trace: _renamed(trace, str(number))), replace(config, groups=groups), _NOTE.format(number)


def _collectives(trace: Trace) -> pl.Series:
    return trace.column("type") == int(NodeType.COMM_COLL_NODE)


def _is_whole(trace: Trace) -> pl.Series:
    names = trace.column("pg_name")
    return names.is_null() | names.is_in(_WHOLE_JOB)


def _uses(traces: TraceSet, *, whole: bool) -> bool:
    """Return True if any rank has a collective of the whole job, or of a group."""
    return any(bool((_collectives(trace) & (_is_whole(trace) == whole)).any()) for trace in traces)


def _renamed(trace: Trace, name: str) -> Trace:
    rows = _collectives(trace) & _is_whole(trace)
    changed = pl.DataFrame({"rows": rows, "pg_name": trace.column("pg_name")}).select(
        pl.when("rows").then(pl.lit(name)).otherwise("pg_name").alias("pg_name")
    )
    return trace.with_columns([changed["pg_name"]])
