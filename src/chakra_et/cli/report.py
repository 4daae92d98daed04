"""Write the report of a job: findings, pictures and tables in one HTML file that opens offline.

Example:
  chakra report out/ -o report.html
  chakra report out/ -o report.html --system h100-dgx --iteration 12,13
  chakra report kineto.json.gz                           a profile, converted in memory; writes report.html
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chakra_et.cli._analysis import add_analysis, analysis_options, print_findings
from chakra_et.cli._output import print_wrote
from chakra_et.cli._profiles import add_source, read_source
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._types import output_path

if TYPE_CHECKING:
    from chakra_et.conversion import Quality

FINDINGS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_source(parser)
    parser.add_argument(
        "-o", "--out", type=output_path, default="report.html", help="file to write (default: %(default)s)"
    )
    parser.add_argument("--title", help="heading of the page (default: what is analyzed)")
    add_analysis(parser)
    parser.add_argument("--force", action="store_true", help="overwrite the file")


def run(args: argparse.Namespace) -> int:
    """Analyze, and write the page."""
    from chakra_et.analysis.analyze import ANALYSES, analyze
    from chakra_et.io import refuse_existing
    from chakra_et.reports.analysis_html import export_report

    refuse_existing(args.out, force=args.force)
    options = analysis_options(args)
    with progress_bar() as progress:
        source, quality = read_source(args.input, jobs=args.jobs, progress=progress)
        names = [*(one.name for one in ANALYSES), "timeline"]
        found = analyze(source, only=names, options=options, jobs=args.jobs, progress=progress)
    paths = export_report(
        found,
        args.out,
        title=args.title or f"Analysis of {args.input}",
        quality=_quality(args.input, quality),
        force=args.force,
    )
    print_findings(found.findings, limit=FINDINGS)
    print_wrote(paths)
    return 0


def _quality(name: str, quality: Quality | None) -> dict[str, Any] | None:
    """Return the quality report of the conversion: of this one, or the file beside the traces."""
    if quality is not None:
        return quality.as_dict()
    path = Path(name)
    file = (path if path.is_dir() else path.parent) / "quality.json"
    try:
        found: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("ranks"), list) else None
