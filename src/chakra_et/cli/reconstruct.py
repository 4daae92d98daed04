"""Rebuild the schedule from edges and durations alone.

The result is compared with the recorded start times, which are used for nothing else. With --against,
it is compared with the profile itself: nodes are found again by correlation or record function id, else
by name and order.

Example:
  chakra reconstruct out/
  chakra reconstruct out/trace.0.et --against kineto.json.gz --json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chakra_et.cli._output import print_json, print_line, print_table
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import input_path
from chakra_et.units import format_count, format_ns, format_share

if TYPE_CHECKING:
    from chakra_et.passes.reconstruct import Reconstruction, StartError

ROWS = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument(
        "--against", type=input_path, metavar="PROFILE", help="compare with this Kineto profile, of one rank"
    )
    parser.add_argument("--json", action="store_true", help="print the errors as JSON")


def run(args: argparse.Namespace) -> int:
    """Rebuild and compare."""
    from chakra_et.passes.reconstruct import reconstruct

    if args.against is not None:
        return _run_against(args)
    traces = read_traces(args)
    ranks = [_as_dict(rank, reconstruct(trace)) for rank, trace in zip(traces.ranks, traces, strict=True)]
    if args.json:
        print_json({"ranks": ranks})
    else:
        _print_ranks(ranks)
    return 0


def _as_dict(rank: int, made: Reconstruction) -> dict[str, Any]:
    return {
        "rank": rank,
        "nodes": len(made.start_ns),
        "unscheduled": made.unscheduled,
        "makespan_ns": made.makespan_ns,
        "window_ns": made.window_ns,
        "start_error_ns": _error(made.start_error_ns),
        "start_error_all_ns": _error(made.start_error_all_ns),
        "gap_ns": made.gap_ns,
        "gap_total_ns": made.gap_total_ns,
        "critical_path_nodes": len(made.critical_path),
    }


def _error(error: StartError) -> dict[str, int]:
    return {**error.as_dict(), "nodes": error.nodes}


def _print_ranks(ranks: list[dict[str, Any]]) -> None:
    columns = ["rank", "nodes", "makespan", "measured\nwindow", "ratio", "device\np50", "\np99", "\nmax"]
    columns += ["all nodes\nmax", "critical\ngaps", "\ncyclic"]
    rows = []
    for rank in ranks:
        makespan, window = rank["makespan_ns"], rank["window_ns"]
        cells = [str(rank["rank"]), format_count(rank["nodes"]), format_ns(makespan), format_ns(window)]
        cells += [f"{makespan / window:.4f}" if window else "-"]
        cells += [_cell(rank["start_error_ns"], key) for key in ("p50", "p99", "max")]
        cells += [_cell(rank["start_error_all_ns"], "max"), format_share(sum(rank["gap_ns"].values()), makespan)]
        rows.append((*cells, format_count(rank["unscheduled"])))
    print_table("Rebuilt from edges and durations alone; errors of start times", columns, rows, left=(), limit=ROWS)


def _cell(error: dict[str, int], key: str) -> str:
    return format_ns(error[key]) if error["nodes"] else "-"


def _run_against(args: argparse.Namespace) -> int:
    from chakra_et.cli._against import compare

    result = compare(read_traces(args), args.against)
    if args.json:
        print_json(result)
        return 0
    error = result["start_error_ns"]
    columns = (
        "rank",
        "compared",
        "of the\nprofile's",
        "start error\np50",
        "\np99",
        "\nmax",
        "makespan\nrebuilt",
        "\nprofile",
    )
    row = (
        str(result["rank"]),
        format_count(result["compared"]),
        format_count(result["recorded"]),
        *(format_ns(error[key]) for key in ("p50", "p99", "max")),
        format_ns(result["makespan_ns"]),
        format_ns(result["profile_ns"]),
    )
    print_table(f"Against {args.against}", columns, [row], left=())
    for text in _remarks(result):
        print_line(text)
    return 0


def _remarks(result: dict[str, Any]) -> list[str]:
    remarks = []
    if result["matched_by"] == "names":
        remarks.append("The profile has no ids to compare by; events of one name on one thread were compared in order.")
    if result["makespan_ns"] != result["profile_ns"]:
        more = result["makespan_ns"] - result["profile_ns"]
        remarks.append(
            f"The makespans differ by {format_ns(abs(more))}: the profile's counts all of its events, also annotations "
            "and what the trace leaves out; the rebuilt one counts the trace's nodes."
        )
    return remarks
