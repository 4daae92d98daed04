"""Show what is in traces: nodes, edges, groups, communications.

Example:
  chakra info out/
  chakra info out/trace.0.et --nodes 20 --type COMM_COLL_NODE
  chakra info out/ --name 'aten::*mm*' --json
"""

from __future__ import annotations

import argparse
from typing import Any

from chakra_et.cli._output import print_json, print_line, print_table
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import whole_number
from chakra_et.units import format_bytes, format_count, format_ns, format_number_of

ROWS = 32
NODES = 20
ITERATIONS = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument(
        "--nodes", type=whole_number(1), metavar="N", help=f"list up to N nodes (default with a filter: {NODES})"
    )
    parser.add_argument("--type", metavar="TYPE", help="only nodes of this type, such as COMM_COLL")
    parser.add_argument("--name", metavar="GLOB", help="only nodes with such a name, such as 'aten::*mm*'")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the summary, or a list of nodes."""
    from chakra_et.cli._summary import list_nodes, summarize

    if args.nodes is None and args.type is None and args.name is None:
        summary = summarize(read_traces(args))
        if args.json:
            print_json(summary)
        else:
            print_summary(summary)
        return 0
    type_name = _type_name(args)
    limit = NODES if args.nodes is None else args.nodes
    nodes = list_nodes(read_traces(args), limit=limit, type_name=type_name, name=args.name)
    if args.json:
        print_json({"nodes": nodes})
    else:
        _print_nodes(nodes)
    return 0


def _type_name(args: argparse.Namespace) -> str | None:
    from chakra_et.ir import NodeType

    if args.type is None:
        return None
    # In any case, and as the table shows it.
    name = args.type.upper().removesuffix("_NODE") + "_NODE"
    if name not in NodeType.__members__:
        args.usage_error(f"argument --type: expected one of {', '.join(NodeType.__members__)}, got '{args.type}'")
    return str(name)


def print_summary(summary: dict[str, Any]) -> None:
    """Print the content of traces as tables."""
    _print_ranks(summary["ranks"])
    _print_iterations(summary["ranks"])
    _print_groups(summary["ranks"])
    _print_communications(summary["ranks"])


def _print_ranks(ranks: list[dict[str, Any]]) -> None:
    columns = ["rank", "nodes", "compute", "memory", "comm", "metadata", "edges", "threads", "streams", "span"]
    rows = []
    for rank in ranks:
        numbers = [rank["nodes"], *(_count(rank["types"], kind) for kind in ("COMP", "MEM_", "COMM_", "METADATA"))]
        numbers += [sum(rank["edges"].values()), rank["threads"], rank["streams"]]
        rows.append((str(rank["rank"]), *map(format_count, numbers), format_ns(rank["span_ns"])))
    print_table("Traces", columns, rows, left=(), limit=ROWS)


def _print_iterations(ranks: list[dict[str, Any]]) -> None:
    """Print the numbers that ``chakra slice --iteration`` takes."""
    numbers = sorted({number for rank in ranks for number in rank["iterations"]})
    if not numbers:
        return
    shown = ", ".join(map(str, numbers[:ITERATIONS]))
    more = f", ... {numbers[-1]} ({len(numbers):,} in all)" if len(numbers) > ITERATIONS else ""
    some = "" if all(len(rank["iterations"]) == len(numbers) for rank in ranks) else ", not all of them on every rank"
    print_line(f"Iterations (ProfilerStep): {shown}{more}{some}\n")


def _count(types: dict[str, int], kind: str) -> int:
    return sum(count for name, count in types.items() if name.startswith(kind))


def _print_groups(ranks: list[dict[str, Any]]) -> None:
    groups = {(group["pg_name"], str(group["ranks"])): group for rank in ranks for group in rank["process_groups"]}
    rows = [
        (group["pg_name"], group["pg_desc"] or "-", str(group["group_size"]), _ranks(group["ranks"]))
        for group in groups.values()
    ]
    if rows:
        print_table("Process groups", ("pg_name", "description", "size", "ranks"), rows, left=(0, 1, 3), limit=ROWS)


def _ranks(ranks: list[int], limit: int = 12) -> str:
    shown = ", ".join(map(str, ranks[:limit]))
    return f"{shown}, ..." if len(ranks) > limit else shown or "unknown"


def _print_communications(ranks: list[dict[str, Any]]) -> None:
    total: dict[tuple[str, str], list[int]] = {}
    for rank in ranks:
        for entry in rank["communications"]:
            cell = total.setdefault((entry["kind"], entry["pg_name"] or "-"), [0, 0, 0])
            for position, key in enumerate(("count", "comm_size", "duration_ns")):
                cell[position] += entry[key] or 0
    rows = [
        (kind, group, format_count(count), format_bytes(size), format_ns(time))
        for (kind, group), (count, size, time) in total.items()
    ]
    if rows:
        columns = ("kind", "pg_name", "count", "bytes", "time")
        print_table("Communications, all ranks", columns, rows, left=(0, 1), limit=ROWS)


def _print_nodes(nodes: list[dict[str, Any]]) -> None:
    if not nodes:
        print_line("No node fits.")
        return
    origin = min((node["start_ns"] for node in nodes if "start_ns" in node), default=0)
    rows = [
        (
            str(node["rank"]),
            str(node["id"]),
            node["type"].removesuffix("_NODE"),
            node.get("name", ""),
            format_ns(node["start_ns"] - origin) if "start_ns" in node else "-",
            format_ns(node.get("duration_ns")),
            _place(node),
            format_bytes(node.get("comm_size", node.get("tensor_size"))),
        )
        for node in nodes
    ]
    columns = ("rank", "id", "type", "name", "start", "duration", "place", "bytes")
    print_table("", columns, rows, left=(2, 3, 6))
    print_line(f"{format_number_of(len(nodes), 'node')}; starts count from the first one listed.")


def _place(node: dict[str, Any]) -> str:
    if "stream" in node:
        return f"stream {node['stream']}"
    return f"thread {node['tid']}" if "tid" in node else "-"
