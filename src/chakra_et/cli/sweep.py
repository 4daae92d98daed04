"""Simulate a job at many points: systems, bandwidths, sizes, algorithms; one table, one picture.

Points are all combinations of --grid, and those of --point and --points. Their keys are those of --set,
options (comm_scale, compute_scale.gemm, algorithm.all_reduce, rank_delay.3, ...), and system. Values:
4,8,16 or 150..3600x2 (times 2, up to 3600) or 10..50+10; a unit at the end counts for all.
The same command again goes on where an interrupted one stopped, and simulates only what is new.

Example:
  chakra sweep out/ --system h100-dgx --grid scale_up.size=4,8,16,32 --grid scale_up.bandwidth=150..3600x2 -o sweep/
  chakra sweep out/ --grid system=h100-dgx,b200-dgx,gb200-nvl72 -o sweep/
  chakra sweep out/ --system h100-dgx --points points.csv -o sweep/
"""

from __future__ import annotations

import argparse
import time
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chakra_et.cli._output import print_json, print_line, print_table, print_wrote
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._simulation import add_model, add_system, model_options
from chakra_et.cli._traces import add_input, read_traces
from chakra_et.cli._types import input_path, output_path, whole_number
from chakra_et.errors import InputError
from chakra_et.units import format_count, format_ns, format_number_of, format_share

if TYPE_CHECKING:
    from chakra_et.sim.sweep_points import Base
    from chakra_et.sim.sweep_result import SweepResult

ENDS = 5
FINDINGS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_input(parser)
    points = parser.add_argument_group("points")
    points.add_argument(
        "--grid", type=_grid, action="append", default=[], metavar="KEY=VALUES",
        help="values of a key, such as scale_up.size=4,8,16 or scale_up.bandwidth=150..3600x2; may be repeated",
    )  # fmt: skip
    points.add_argument(
        "--point", action="append", default=[], metavar="KEY=V,KEY=V", help="one more point; may be repeated"
    )
    points.add_argument("--points", type=input_path, metavar="FILE.csv", help="more points: columns are keys")
    points.add_argument("--dry-run", action="store_true", help="list the points, and simulate none")
    base = parser.add_argument_group("what points change")
    add_system(base)
    add_model(base)
    parser.add_argument("-o", "--out", type=output_path, default="chakra-sweep", help="folder (default: %(default)s)")
    parser.add_argument("--jobs", type=whole_number(0), default=0, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--force", action="store_true", help="begin anew, and overwrite another sweep")
    parser.add_argument("--json", action="store_true", help="print all points as JSON")


def _grid(text: str) -> tuple[str, str]:
    key, equals, values = text.partition("=")
    if not (equals and key.strip() and values.strip()):
        raise ArgumentTypeError(f"expected KEY=VALUES such as scale_up.size=4,8,16, got '{text}'")
    return key.strip(), values.strip()


def run(args: argparse.Namespace) -> int:
    """Simulate all points, write, and print the ends of the table."""
    begin = time.monotonic()
    points, base = _points(args), _base(args)
    if args.dry_run:
        return _list_points(points, base, as_json=args.json)
    from chakra_et.io import refuse_no_folder
    from chakra_et.sim.sweep import sweep

    refuse_no_folder(args.out)
    traces = read_traces(args)
    try:
        with progress_bar() as report:
            result = sweep(
                traces,
                base.system,
                points=points,
                options=base.options,
                overrides=base.overrides,
                out=args.out,
                jobs=args.jobs,
                force=args.force,
                progress=report,
            )
    except KeyboardInterrupt:
        print_line(f"stopped; the same command goes on with what is done in {args.out}", to_stderr=True)
        raise
    from chakra_et.reports.sweep_html import export_sweep_html

    on = f" on {args.system}" if args.system else ""
    picture = export_sweep_html(result, args.out / "sweep.html", title=f"Sweep of {args.input}{on}", force=True)
    if args.json:
        print_json(result.as_dict())
    else:
        _print_result(result, time.monotonic() - begin)
    print_wrote([args.out / "sweep.parquet", args.out / "sweep.csv", *picture], to_stderr=args.json)
    return FINDINGS if result.failed else 0


def _points(args: argparse.Namespace) -> list[dict[str, Any]]:
    from chakra_et.sim.sweep_points import grid_points, parse_point, read_points

    keys = [key for key, _ in args.grid]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise InputError(f"--grid: expected each key once, got {twice[0]} twice; write its values with commas")
    points: list[dict[str, Any]] = [*grid_points(dict(args.grid)), *map(parse_point, args.point)]
    points += read_points(args.points) if args.points else []
    if not points:
        raise InputError("expected points to simulate, got none; add --grid, --point or --points")
    return points


def _base(args: argparse.Namespace) -> Base:
    from chakra_et.sim.sweep_points import Base
    from chakra_et.specs import load_system

    system = load_system(args.system) if args.system is not None else None
    return Base(system, model_options(args), dict(args.set))


def _list_points(points: Sequence[Mapping[str, Any]], base: Base, *, as_json: bool) -> int:
    """Print what would be simulated."""
    from chakra_et.sim.sweep_keys import format_value
    from chakra_et.sim.sweep_points import resolve_points

    parameters, _, found = resolve_points(points, base)
    if as_json:
        columns = [one.column for one in parameters]
        print_json({"points": [dict(zip(columns, point.values, strict=True)) for point in found]})
        return 0
    rows = [(str(number), *map(format_value, point.values)) for number, point in enumerate(found)]
    print_table(format_number_of(len(found), "point"), ["point", *map(_heading, parameters)], rows, left=())
    return 0


def _heading(parameter: Any) -> str:
    """Return a key with its unit, in narrow lines."""
    return "\n".join(filter(None, (str(parameter.key).replace(".", ".\n"), parameter.unit)))


def _print_result(result: SweepResult, seconds: float) -> None:
    rows = result.table.to_dicts()
    done = sorted((row for row in rows if row["error"] is None), key=lambda row: row["finish_ns"])
    columns = ["", *map(_heading, result.parameters), "step time", "speed-up", "exposed\ncomm.", "bound by"]
    shown = [("base", result.base)] if result.base["error"] is None else []
    if len(done) <= 2 * ENDS:
        shown += [("", row) for row in done]
    else:
        shown += [("fastest" if place == 0 else "", row) for place, row in enumerate(done[:ENDS])]
        shown += [("slowest" if place == 0 else "", row) for place, row in enumerate(done[-ENDS:])]
    if shown:
        words = [place + 1 for place, one in enumerate(result.parameters) if not one.numeric]
        cells = [(label, *_cells(result, row)) for label, row in shown]
        print_table("", columns, cells, left=(0, *words, len(columns) - 1))
    if result.base["error"] is not None:
        print_line(f"The base can't be simulated: {result.base['error']}")
    _print_summary(result, rows, seconds)


def _cells(result: SweepResult, row: Mapping[str, Any]) -> list[str]:
    from chakra_et.sim.sweep_keys import format_value

    return [
        *(format_value(row[one.column]) for one in result.parameters),
        format_ns(row["finish_ns"]),
        "-" if row["speedup"] is None else f"{row['speedup']:.3f}",
        format_ns(row["exposed_communication_mean_ns"]),
        "-" if row["bound_by"] is None else f"{row['bound_by']} {format_share(row['bound_share'], 1)}",
    ]


def _print_summary(result: SweepResult, rows: Sequence[Mapping[str, Any]], seconds: float) -> None:
    bounds: dict[str, int] = {}
    for row in rows:
        if row["bound_by"] is not None:
            bounds[row["bound_by"]] = bounds.get(row["bound_by"], 0) + 1
    if bounds:
        parts = [f"{name} {count:,}" for name, count in sorted(bounds.items(), key=lambda item: -item[1])]
        print_line(f"Points by what bounds them: {', '.join(parts)}")
    for note, count in result.notes.items():
        print_line(f"Note ({format_number_of(count, 'point')}): {note}")
    covered = {row["ranks"] for row in rows if row["error"] is None}
    ranks = f", all {format_count(covered.pop())} ranks in each" if len(covered) == 1 else ""
    before = f" ({result.reused:,} of them before)" if result.reused else ""
    print_line(f"{format_number_of(len(rows), 'point')}{before}{ranks}, in {seconds:.1f} s.")
    causes: dict[str, int] = {}
    for row in rows:
        if row["error"] is not None:
            causes[row["error"]] = causes.get(row["error"], 0) + 1
    for error, count in causes.items():
        print_line(f"{format_number_of(count, 'point')} can't be simulated: {error}")
