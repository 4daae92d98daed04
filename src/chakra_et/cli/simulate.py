"""Simulate a job: how long it takes on a machine, and why.

Communications cost what the network model says of the system, or what was measured; compute keeps its
measured time unless told otherwise. With ASTRA-sim's own files (--network, and --system a JSON file),
ASTRA-sim's rules are followed to the tick; TRACES may then be its PREFIX (PREFIX.<rank>.et, or one
PREFIX.et for all ranks).

Example:
  chakra simulate out/ --system h100-dgx
  chakra simulate out/ --comm measured
  chakra simulate out/ --system h100-dgx --set scale_up.bandwidth=900GB/s --set scale_up.size=72
  chakra simulate out/ --network net.yml --system sys.json --memory mem.json --json
  chakra simulate out/ --engine astra-sim --astra-binary AstraSim_Analytical_Congestion_Unaware
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from chakra_et.cli._output import print_json, print_line, print_table, print_wrote
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._simulation import add_model, add_system, model_options, read_system
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import input_path, output_path, whole_number
from chakra_et.errors import InputError
from chakra_et.units import format_bytes, format_count, format_ns, format_share

if TYPE_CHECKING:
    from chakra_et.ir import TraceSet
    from chakra_et.sim.astra import AstraOptions
    from chakra_et.sim.result import SimResult
    from chakra_et.specs import AstraConfig

ROWS = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    add_system(parser, more="; with --network: ASTRA-sim's system file (JSON)")
    add_model(parser)
    _add_astra(parser.add_argument_group("ASTRA-sim's files and options"))
    parser.add_argument("--nodes", action="store_true", help="with --json: start and end of every node")
    parser.add_argument("-o", "--out", type=output_path, help="folder for the simulated traces")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_astra(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--network", type=input_path, metavar="FILE", help="network.yml: follow ASTRA-sim's rules")
    group.add_argument("--memory", type=input_path, metavar="FILE", help="memory.json")
    group.add_argument("--groups", type=input_path, metavar="FILE", help="comm_group.json")
    group.add_argument(
        "--backend", choices=("unaware", "aware"), default="unaware", help="of congestion (default: %(default)s)"
    )
    group.add_argument("--num-queues-per-dim", type=whole_number(1), default=1, metavar="N")
    group.add_argument("--injection-scale", type=float, default=1.0, metavar="X", help="factor of the endpoint delay")
    group.add_argument("--rendezvous-protocol", choices=("true", "false"), default="false")
    group.add_argument(
        "--engine", choices=("builtin", "astra-sim"), default="builtin",
        help="astra-sim: write its input to the output folder, run it, compare (exit code 3: it says something else)",
    )  # fmt: skip
    group.add_argument("--astra-binary", type=input_path, metavar="PATH", help="ASTRA-sim's program")


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    from chakra_et.io import refuse_no_folder

    if args.out is not None:
        refuse_no_folder(args.out)
    if args.engine == "astra-sim":
        return _hand_off(args)
    result = _simulate_astra(args) if args.network is not None else _simulate(args)
    wrote = _write(args, result)
    if args.json:
        print_json(_as_dict(result, nodes=args.nodes))
    else:
        _print_result(result)
    print_wrote(wrote, to_stderr=args.json)
    return 0


def _simulate(args: argparse.Namespace) -> SimResult:
    from chakra_et.sim.simulate import simulate

    for option in ("memory", "groups"):
        if getattr(args, option) is not None:
            raise InputError(f"--{option}: expected --network beside it, got none; it is one of ASTRA-sim's files")
    system, options = read_system(args), model_options(args)
    traces = read_traces(args)
    with progress_bar() as report:
        return simulate(traces, system, options=options, progress=report)


def _simulate_astra(args: argparse.Namespace) -> SimResult:
    from chakra_et.sim.astra import simulate_astra

    traces, config, options = _astra_input(args)
    with progress_bar() as report:
        told = None if report is None else lambda done, total: report("simulate", done, total)
        return simulate_astra(traces, config, options=options, progress=told)


def _hand_off(args: argparse.Namespace) -> int:
    from chakra_et.cli._handoff import hand_off

    if args.network is None:
        return hand_off(args, None, None)
    traces, config, options = _astra_input(args)
    return hand_off(args, (traces, config), options)


def _astra_input(args: argparse.Namespace) -> tuple[TraceSet, AstraConfig, AstraOptions]:
    """Return traces, machine and options as ASTRA-sim would be given them."""
    from chakra_et.sim.astra import AstraOptions
    from chakra_et.specs import read_astra_config

    if args.system is None:
        raise InputError("--network: expected ASTRA-sim's system file beside it, got none; add --system FILE.json")
    if args.set or args.comm != "auto" or args.compute != "measured" or args.scale or args.delay:
        raise InputError("--network: expected no --set, --comm, --compute, --scale or --delay beside it; it has none")
    config = read_astra_config(args.network, args.system, args.memory, args.groups)
    options = AstraOptions(
        backend=args.backend,
        queues_per_dim=args.num_queues_per_dim,
        injection_scale=args.injection_scale,
        rendezvous=args.rendezvous_protocol == "true",
        fold=args.fold,
    )
    return _read_prefix(args.input, config.npus) or read_traces(args), config, options


def _read_prefix(prefix: str, count: int) -> TraceSet | None:
    """Return what ASTRA-sim would read: PREFIX.<rank>.et, or one PREFIX.et for all ranks; None if there is none."""
    from dataclasses import replace
    from pathlib import Path

    from chakra_et.io import read
    from chakra_et.ir import TraceSet

    own = [(rank, path) for rank in range(count) if (path := Path(f"{prefix}.{rank}.et")).is_file()]
    shared = Path(f"{prefix}.et")
    if own:
        traces = [(rank, read(path)) for rank, path in own]
    elif shared.is_file():
        trace = read(shared)
        traces = [(rank, trace) for rank in range(count)]
    else:
        return None
    return TraceSet(tuple(replace(trace, metadata=replace(trace.metadata, rank=rank)) for rank, trace in traces))


def _write(args: argparse.Namespace, result: SimResult) -> list[Any]:
    from chakra_et.io import write_set

    return [] if args.out is None else write_set(result.traces, args.out, force=args.force)


def _as_dict(result: SimResult, *, nodes: bool) -> dict[str, Any]:
    found = result.as_dict()
    if nodes:
        for entry, trace in zip(found["ranks"], result.traces, strict=True):
            table = trace.nodes.select("id", "start_ns", end_ns=trace.nodes["start_ns"] + trace.nodes["duration_ns"])
            entry["nodes"] = table.to_dicts()
    return found


def _print_result(result: SimResult) -> None:
    several = result.iterations
    if several:
        spread = f"{format_ns(result.mean_ns)} on average over {len(several)} iterations, spread "
        print_line(
            f"Step time: {spread}{format_ns(result.spread_ns)}; below: iteration {result.iteration}, the median."
        )
    else:
        what = "Time" if result.iteration is None else f"Step time (iteration {result.iteration})"
        print_line(f"{what}: {format_ns(result.finish_ns)}")
    measured = [one.measured_ns for one in several or (result,)]
    if all(measured):
        recorded = sum(time or 0 for time in measured) / len(measured)
        print_line(f"As recorded: {format_ns(recorded)}; simulated / recorded: {result.mean_ns / recorded:.4f}.")
    _print_ranks(result)
    if result.groups:
        _print_groups(result)
    if result.bounds:
        total = sum(result.bounds.values())
        worth = {name: spent for name, spent in result.bounds.items() if 1000 * spent >= total}
        parts = [f"{name.replace('_', ' ')} {format_share(spent, total)}" for name, spent in worth.items()]
        print_line(f"Bound by (along the critical path): {', '.join(parts)}")
    for note in result.notes:
        print_line(f"Note: {note}")


def _print_ranks(result: SimResult) -> None:
    columns = ("rank", "finish", "compute", "communication", "exposed", "share of\nthe time")
    rows = [
        (
            str(rank.rank),
            format_ns(rank.finish_ns),
            format_ns(rank.compute_ns),
            format_ns(rank.communication_ns),
            format_ns(rank.exposed_communication_ns),
            format_share(rank.exposed_communication_ns, rank.finish_ns),
        )
        for rank in result.ranks
    ]
    folded = result.folded_classes < len(rows)
    title = f"Ranks ({format_count(result.folded_classes)} simulated, the others do the same)" if folded else "Ranks"
    print_table(title, columns, rows, left=(), limit=ROWS)


def _print_groups(result: SimResult) -> None:
    columns = ("group", "type", "ranks", "count", "bytes", "transfer", "waiting\n(all ranks)")
    rows = [
        (
            " ".join(filter(None, (group.pg_name, group.description))) or "all",
            group.comm_type,
            format_count(group.size),
            format_count(group.count),
            format_bytes(group.bytes),
            format_ns(group.transfer_ns),
            format_ns(group.wait_ns),
        )
        for group in sorted(result.groups, key=lambda group: -group.transfer_ns)
    ]
    print_table("Communications", columns, rows, left=(0, 1), limit=ROWS)
