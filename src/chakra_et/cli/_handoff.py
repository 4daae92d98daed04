"""`chakra simulate --engine astra-sim`: the real ASTRA-sim runs, and its answer is put beside ours."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakra_et.cli._output import print_json, print_line, print_table
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._simulation import read_system
from chakra_et.errors import InputError
from chakra_et.units import format_ns

if TYPE_CHECKING:
    from chakra_et.ir import TraceSet
    from chakra_et.sim.astra import AstraOptions, HandoffResult
    from chakra_et.specs import AstraConfig

__all__ = ["hand_off"]

ROWS = 16
FOLDER = Path("astra-sim-run")
DIFFERENT = 3


def hand_off(args: argparse.Namespace, given: tuple[TraceSet, AstraConfig] | None, options: AstraOptions | None) -> int:
    """Run ASTRA-sim and print; the exit code is 3 where its answer isn't ours.

    Args:
        args: The command line.
        given: Traces and machine as ASTRA-sim takes them; None to export what the command line names.
        options: How to call it; None for what the binary's name says.
    """
    from chakra_et.sim.astra import run_astra_sim

    if args.astra_binary is None:
        raise InputError("--engine astra-sim: expected --astra-binary beside it, got none; name ASTRA-sim's program")
    traces, config = given or _export(args)
    with progress_bar() as report:
        told = None if report is None else lambda done, total: report("ASTRA-sim", done, total)
        result = run_astra_sim(
            traces, config, args.astra_binary, args.out or FOLDER,
            options=options, nodes=args.nodes, force=args.force, progress=told,
        )  # fmt: skip
    if args.json:
        print_json(_as_dict(result))
    else:
        _print(result)
    return 0 if result.is_equal else DIFFERENT


def _export(args: argparse.Namespace) -> tuple[TraceSet, AstraConfig]:
    """Export collected traces as ASTRA-sim can run them, for the system that was named or a default one."""
    from chakra_et.cli._traces import read_traces
    from chakra_et.io import read_set
    from chakra_et.sim.astra_sim import export_astra_sim
    from chakra_et.specs import read_astra_config, system_to_astra

    traces, system = read_traces(args), read_system(args)
    with tempfile.TemporaryDirectory(prefix="chakra-") as folder:
        place = Path(folder)
        export_astra_sim(traces, place)
        groups = place / "comm_group.json"
        config = read_astra_config(
            place / "network.yml",
            place / "system.json",
            place / "memory.json",
            groups if groups.exists() else None,
        )
        exported = read_set(str(place / "trace.*.et"))
    if system is not None:
        config = replace(system_to_astra(system, len(exported)), groups=config.groups)
    return exported, config


def _as_dict(result: HandoffResult) -> dict[str, Any]:
    found = {
        "finish_ns": result.finish_ns,
        "equal": result.is_equal,
        "ranks": [rank.as_dict() for rank in result.ranks],
        "folder": str(result.folder),
        "command": list(result.command),
        "wall_s": result.wall_s,
        "user_s": result.user_s,
        "notes": list(result.notes),
    }
    return found if result.nodes is None else {**found, "nodes": result.nodes.to_dicts()}


def _print(result: HandoffResult) -> None:
    print_line(
        f"ASTRA-sim: {format_ns(result.finish_ns)}, in {result.user_s:.2f} CPU s; its input is in {result.folder}"
    )
    columns = ("rank", "ASTRA-sim", "here", "exposed\nASTRA-sim", "\nhere", "nodes\ndifferent")
    rows = [
        (
            str(rank.rank),
            format_ns(rank.finish_ns),
            format_ns(rank.own_finish_ns),
            format_ns(rank.exposed_communication_ns),
            format_ns(rank.own_exposed_communication_ns),
            f"{rank.nodes_different} of {rank.nodes_compared}" if rank.nodes_compared else "-",
        )
        for rank in result.ranks
    ]
    print_table("Ranks", columns, rows, left=(), limit=ROWS)
    first = result.first_difference
    if first is not None:
        print_line(f"First difference: {first}")
    print_line("Both say the same." if result.is_equal else "They don't say the same.")
    for note in result.notes:
        print_line(f"Note: {note}")
