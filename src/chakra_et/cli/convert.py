"""Convert PyTorch profiles into Chakra execution traces.

Reads PyTorch execution traces (host) and Kineto profiles (device), pairs them by rank, and writes
one trace a rank and a quality report. Either of the two alone works too; together they tell most.

Example:
  chakra convert profiles/ -o out/                                  a directory of ranks, in parallel
  chakra convert --host et.json --device kineto.json.gz -o out/     one rank
  chakra convert kineto.json.gz -o out/                             a Kineto profile alone
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from chakra_et.cli._output import print_json, print_line, print_wrote
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._types import input_path, output_path, whole_number

if TYPE_CHECKING:
    from chakra_et.conversion import ConversionResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "inputs", nargs="*", type=input_path, metavar="INPUT", help="file, directory, glob or URL of profiles"
    )
    parser.add_argument("--host", type=input_path, metavar="FILE", help="PyTorch execution trace of one rank")
    parser.add_argument("--device", type=input_path, metavar="FILE", help="Kineto profile of the same rank")
    parser.add_argument("-o", "--out", type=output_path, default="chakra-out", help="folder (default: %(default)s)")
    parser.add_argument(
        "--detail",
        choices=("op", "launch", "device"),
        default="op",
        help="op: every operator; launch: host time fused between launches; device: device nodes and gaps only",
    )
    parser.add_argument("--jobs", type=whole_number(0), default=0, metavar="N", help="processes (default: one a core)")
    parser.add_argument("--no-match", action="store_true", help="don't match communications across ranks")
    parser.add_argument(
        "--force", action="store_true", help="overwrite what is in the way, and remove traces of an earlier run"
    )
    parser.add_argument("--json", action="store_true", help="print the quality report as JSON")


def run(args: argparse.Namespace) -> int:
    """Convert, write, and print the quality report."""
    if not args.inputs and not args.host and not args.device:
        args.usage_error("expected profiles to convert: a file, a directory, or --host and --device")
    from chakra_et.conversion import ConvertOptions, convert_to

    options = ConvertOptions(detail=args.detail, jobs=args.jobs, match=not args.no_match)
    with progress_bar() as progress:
        result = convert_to(
            args.inputs,
            args.out,
            host=args.host,
            device=args.device,
            options=options,
            force=args.force,
            progress=progress,
        )
    return report(result, args.out, as_json=args.json)


def report(result: ConversionResult, out: Path, *, as_json: bool = False) -> int:
    """Print what a conversion made, and return the exit code."""
    from chakra_et.cli._quality import print_quality

    quality = result.quality.as_dict()
    if as_json:
        print_json(quality)
    else:
        print_quality(quality)
    names = [f"trace.{rank}.et" for rank in result.traces.ranks]
    written = [out / name for name in (*names, "quality.json") if (out / name).exists()]
    print_wrote(written, to_stderr=as_json)
    for path in result.removed:
        print_line(f"Removed {path}", to_stderr=as_json)
    if result.left_out:
        some = ", ".join(result.left_out[:5]) + (", ..." if len(result.left_out) > 5 else "")
        print_line(f"left out {len(result.left_out)} files that are no profiles: {some}", to_stderr=True)
    for failure in result.failed:
        # Most errors begin with the path of one of the rank's files.
        named = any(path in failure.error for path in failure.source.split(" + "))
        text = failure.error if named else f"{failure.source}: {failure.error}"
        print_line(f"chakra: error: {' '.join(text.split())}", to_stderr=True)
    return 1 if result.failed else 0
