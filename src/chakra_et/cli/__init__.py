"""The command ``chakra``: one module per subcommand, each with ``add_arguments(parser)`` and ``run(args) -> int``.

Exit codes: 0 good, 1 user error, 2 usage, 3 findings. Nothing here imports a heavy library before a subcommand runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from chakra_et.cli import (
    analyze,
    capture,
    convert,
    demo,
    diff,
    export,
    info,
    reconstruct,
    repair,
    replay,
    report,
    simulate,
    slice,
    sweep,
    validate,
)
from chakra_et.cli._ending import end_process, open_streams, report_ending, sigterm_raises
from chakra_et.cli._first_run import ANY, ASTRA, NATIVE, announce_compilation

__all__ = ["main", "run"]

# In the order of a user's day.
COMMANDS: tuple[tuple[str, ModuleType], ...] = (
    ("demo", demo),
    ("capture", capture),
    ("convert", convert),
    ("info", info),
    ("validate", validate),
    ("repair", repair),
    ("reconstruct", reconstruct),
    ("analyze", analyze),
    ("report", report),
    ("diff", diff),
    ("simulate", simulate),
    ("sweep", sweep),
    ("replay", replay),
    ("export", export),
    ("slice", slice),
)

USAGE = 2
# Large columns come and go while profiles are converted: the allocator of polars is told to give them back soon.
ALLOCATOR = ("_RJEM_MALLOC_CONF", "dirty_decay_ms:100,muzzy_decay_ms:0")

# Analyses ask thousands of small questions: threads of polars cost more than they spare, and ranks of large sets run in
# processes of their own.
SINGLE_THREADED = ("analyze", "report", "diff")
ONE_THREAD = ("POLARS_MAX_THREADS", "1")

# These run somebody else's job: nothing of ours is loaded, or gets into its environment unasked.
FOR_OTHERS = ("capture",)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: Arguments without the program name; the process's own if None.
    """
    open_streams()
    parser = build_parser()
    words = sys.argv[1:] if argv is None else list(argv)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(USAGE)
    args = parser.parse_args(words)
    own = args.verb not in FOR_OTHERS or getattr(args, "fake", False)
    if own:
        os.environ.setdefault(*ALLOCATOR)
    if args.verb in SINGLE_THREADED:
        os.environ.setdefault(*ONE_THREAD)
    try:
        with sigterm_raises():
            if own:
                announce_compilation(_loops(args))
            code: int = args.run(args)
            sys.stdout.flush()
    except BaseException as err:
        return report_ending(err)
    return code


def run() -> NoReturn:
    """Run the command line of this process, and end it."""
    end_process(main())


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="chakra",
        description="Chakra execution traces from real profiles: causally correct, and proven so.",
        epilog=_verb_list(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"chakra {_version()}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, help="one of the verbs below")
    for name, module in COMMANDS:
        summary, rest = _documentation(module)
        verb = verbs.add_parser(
            name, description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run, usage_error=verb.error)
    return parser


def _loops(args: argparse.Namespace) -> str:
    """Return which compiled loops a verb needs."""
    if args.verb not in ("simulate", "sweep"):
        return ANY
    return ASTRA if getattr(args, "network", None) else NATIVE


def _documentation(module: ModuleType) -> tuple[str, str]:
    summary, _, rest = (module.__doc__ or "").partition("\n")
    return summary, rest.strip("\n")


def _verb_list() -> str:
    lines = [f"  {name:<12} {_documentation(module)[0].rstrip('.')}" for name, module in COMMANDS]
    codes = "exit codes: 0 good, 1 user error, 2 usage, 3 findings"
    return "\n".join(["verbs:", *lines, "", codes, "Start with: chakra demo"])


def _version() -> str:
    from chakra_et import __version__

    return __version__
