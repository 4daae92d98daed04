"""Try it: convert, validate and look at a bundled real sample.

The sample is two ranks of a small training job. Needs no GPU, no torch, no network.
Writes only below the output folder.

Example:
  chakra demo
"""

from __future__ import annotations

import argparse
from pathlib import Path

from chakra_et.cli._output import print_line, print_wrote


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("-o", "--out", type=Path, default=Path("chakra-demo"), help="folder (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the way")


def run(args: argparse.Namespace) -> int:
    """Run the main job on the sample, step by step."""
    from chakra_et.cli import convert
    from chakra_et.cli._progress import progress_bar
    from chakra_et.cli._summary import summarize
    from chakra_et.cli.info import print_summary
    from chakra_et.cli.validate import print_findings
    from chakra_et.conversion import convert_to
    from chakra_et.reports.perfetto import export_perfetto
    from chakra_et.sample import sample_folder
    from chakra_et.validation import validate

    traces_folder, timeline = args.out / "traces", args.out / "timeline.json.gz"
    sample = sample_folder()
    print_line(f"The sample: 2 ranks, DistributedDataParallel over gloo, 2 training steps on CPUs ({sample})")
    print_line(f"\n$ chakra convert {sample} -o {traces_folder}\n")
    with progress_bar() as progress:
        result = convert_to([sample], traces_folder, force=args.force, progress=progress)
    code = convert.report(result, traces_folder)
    print_line(f"\n$ chakra validate {traces_folder}\n")
    report = validate(result.traces)
    print_findings(report)
    print_line(f"\n$ chakra info {traces_folder}\n")
    print_summary(summarize(result.traces))
    print_line(f"$ chakra export {traces_folder} --to perfetto -o {timeline}\n")
    print_wrote(export_perfetto(result.traces, timeline, force=args.force))
    _say_what_next(traces_folder, timeline)
    return code or (3 if report.errors else 0)


def _say_what_next(traces: Path, timeline: Path) -> None:
    for line in (
        "",
        "Next:",
        f"  look at it         open https://ui.perfetto.dev and drop {timeline} on it",
        f"  see the proof      chakra reconstruct {traces}",
        f"  list collectives   chakra info {traces} --type COMM_COLL_NODE",
        f"  simulate it        chakra export {traces} --to astra-sim -o workload/",
        "  your own profile   chakra convert YOUR_PROFILES/ -o out/",
    ):
        print_line(line)
