"""Export to Perfetto, JSON, Parquet, DOT, GraphML or ASTRA-sim.

Example:
  chakra export out/ --to perfetto               open the file at https://ui.perfetto.dev
  chakra export out/ --to astra-sim -o workload/
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_wrote
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import output_path

if TYPE_CHECKING:
    from chakra_et.ir import TraceSet

Exporter = Callable[["TraceSet", Path, bool], Iterable[Path]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    parser.add_argument("--to", required=True, choices=tuple(EXPORTERS), help="what to write")
    defaults = ", ".join(f"{default} for {name}" for name, (default, _) in EXPORTERS.items())
    parser.add_argument("-o", "--out", type=output_path, help=f"file or folder (default: {defaults})")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")


def run(args: argparse.Namespace) -> int:
    """Export and say what was written."""
    default, exporter = EXPORTERS[args.to]
    print_wrote(exporter(read_traces(args), args.out or Path(default), args.force))
    return 0


def _perfetto(traces: TraceSet, out: Path, force: bool) -> Iterable[Path]:
    from chakra_et.reports.perfetto import export_perfetto

    return export_perfetto(traces, out, force=force)


def _json(traces: TraceSet, out: Path, force: bool) -> Iterable[Path]:
    from chakra_et.io import write_set

    return write_set(traces, out, format="json", force=force)


def _parquet(traces: TraceSet, out: Path, force: bool) -> Iterable[Path]:
    from chakra_et.io import write_set

    return write_set(traces, out, format="parquet", force=force)


def _dot(traces: TraceSet, out: Path, force: bool) -> Iterable[Path]:
    from chakra_et.reports.dot import export_dot

    return export_dot(traces, out, force=force)


def _graphml(traces: TraceSet, out: Path, force: bool) -> Iterable[Path]:
    from chakra_et.reports.dot import export_graphml

    return export_graphml(traces, out, force=force)


def _astra_sim(traces: TraceSet, out: Path, force: bool) -> Iterable[Path]:
    from chakra_et.sim.astra_sim import export_astra_sim

    return export_astra_sim(traces, out, force=force)


# Name on the command line -> where it goes unless told otherwise, and what writes it.
EXPORTERS: dict[str, tuple[str, Exporter]] = {
    "perfetto": ("timeline.json.gz", _perfetto),
    "json": ("json", _json),
    "parquet": ("parquet", _parquet),
    "dot": ("dot", _dot),
    "graphml": ("graphml", _graphml),
    "astra-sim": ("astra-sim", _astra_sim),
}
