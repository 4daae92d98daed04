"""`chakra capture --fake`: what a script would run on a cluster, recorded on one CPU before it runs."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chakra_et.capture.fake.options import DEVICES, ROUTINGS, FakeOptions, FakeRank, run_roles
from chakra_et.cli._output import print_json, print_line, print_table, print_wrote
from chakra_et.cli._progress import progress_bar
from chakra_et.cli._types import whole_number
from chakra_et.errors import ChakraError, InputError, MissingExtraError

__all__ = ["FAKE_ONLY", "add_fake_arguments", "run_fake", "script_of"]

# By the second step, optimizers have their state.
WAIT = 1
# Options that say nothing of a job that runs, and their defaults.
FAKE_ONLY = {"world_size": 1, "device": "cuda", "routing": "balanced", "ranks_per_server": 8, "fake_timeout": 3600}
_LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")


def add_fake_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of captures before execution."""
    group = parser.add_argument_group(
        "before execution", "record a script's operators without running them: no GPU, no other ranks, no memory"
    )
    group.add_argument("--fake", action="store_true", help="capture before execution, and write traces at once")
    group.add_argument(
        "--world-size",
        type=whole_number(1),
        default=FAKE_ONLY["world_size"],
        metavar="N",
        help="with --fake: ranks (default: %(default)s)",
    )
    group.add_argument(
        "--device", choices=DEVICES, default=FAKE_ONLY["device"], help="with --fake: device (default: %(default)s)"
    )
    group.add_argument(
        "--routing",
        choices=ROUTINGS,
        default=FAKE_ONLY["routing"],
        help="with --fake: how tokens choose experts (default: %(default)s)",
    )
    group.add_argument(
        "--ranks-per-server",
        type=whole_number(1),
        default=FAKE_ONLY["ranks_per_server"],
        metavar="N",
        help="with --fake (default: %(default)s)",
    )
    group.add_argument(
        "--fake-timeout",
        type=whole_number(1),
        default=FAKE_ONLY["fake_timeout"],
        metavar="S",
        help="seconds that a rank may take",
    )


def run_fake(args: argparse.Namespace, command: list[str]) -> int:
    """Capture a script's ranks in processes of their own, convert, and say what came of it.

    Args:
        args: `add_fake_arguments`'s, and ``out``, ``wait`` (None: 1), ``active``, ``ranks`` (empty: one of each role),
            ``force``, ``json``.
        command: The user's command: a script or ``-m MODULE``, with arguments; a launcher before it is left out.
    """
    from chakra_et.conversion import convert_to
    from chakra_et.io import refuse_existing, refuse_no_folder

    if find_spec("torch") is None:
        raise MissingExtraError("capture --fake: expected PyTorch, found none; pip install 'chakra-et[torch]'")
    out: Path = args.out
    refuse_no_folder(out)
    for path in sorted([*out.glob("host.*.json.gz"), *out.glob("trace.*.et")]):
        refuse_existing(path, force=args.force)
    options = FakeOptions(
        out=str(out),
        world_size=args.world_size,
        device=args.device,
        wait=WAIT if args.wait is None else args.wait,
        active=args.active,
        routing=args.routing,
        ranks_per_server=args.ranks_per_server,
    )
    script = script_of(command)
    if script[0] != "-m" and not Path(script[0]).is_file():
        raise InputError(f"{script[0]}: expected a Python script, found none of that name")
    _remove_earlier(out)
    with tempfile.TemporaryDirectory(prefix="chakra-fake-") as mailbox, progress_bar() as progress:

        def run(rank: int) -> FakeRank:
            if progress is not None:
                progress(f"recording rank {rank}", 0, 0)
            return _run_rank(script, rank, options, mailbox=Path(mailbox), timeout_s=args.fake_timeout)

        found = run_roles(args.ranks or "roles", options, run)
        hosts = [str(path) for one in found for path in one.files if path.name.startswith("host.")]
        result = convert_to(hosts, out, force=args.force, progress=progress)
    _report(found, result, as_json=args.json)
    traces = [*(out / f"trace.{rank}.et" for rank in result.traces.ranks), out / "quality.json"]
    print_wrote([*(path for one in found for path in one.files), *traces], to_stderr=args.json)
    for failure in result.failed:
        print_line(f"chakra: error: {failure.error}", to_stderr=True)
    return 1 if result.failed else 0


def script_of(command: list[str]) -> list[str]:
    """Return a command without the interpreter and the launcher before it: a script or ``-m MODULE``, and arguments.

    Raises:
        InputError: There is no script in it.

    Example:
        >>> script_of(["torchrun", "--nproc-per-node", "8", "train.py", "--layers", "2"])
        ['train.py', '--layers', '2']
        >>> script_of(["python", "-m", "my.train"])
        ['-m', 'my.train']
    """
    words = list(command)
    if words and Path(words[0]).name.startswith("python"):
        words = words[1:]
        while words and words[0].startswith("-") and words[0] != "-m":
            words = words[2 if words[0] in ("-W", "-X") else 1 :]
    if words[:1] == ["-m"] and len(words) > 1 and words[1] in _LAUNCHERS:
        words = words[1:]
    if words and Path(words[0]).name in _LAUNCHERS:
        words = ["-m" if word == "--module" else word for word in words]
        begins = (place for place, word in enumerate(words) if place and (word.endswith(".py") or word == "-m"))
        words = words[next(begins, len(words)) :]
    if not words or (words[0] == "-m" and len(words) < 2):
        raise InputError(f"expected a Python script or -m MODULE to capture, got {' '.join(command) or 'nothing'!r}")
    return words


def _remove_earlier(out: Path) -> None:
    for pattern in ("host.*.json.gz", "manifest.*.json"):
        for path in out.glob(pattern):
            path.unlink(missing_ok=True)


def _run_rank(script: list[str], rank: int, options: FakeOptions, *, mailbox: Path, timeout_s: int) -> FakeRank:
    command = [sys.executable, "-m", "chakra_et.capture.fake", options.to_text(), str(rank), str(mailbox), *script]
    # What the script prints is no result of ours: it goes where errors go.
    child = subprocess.Popen(command, stdout=2)
    try:
        child.wait(timeout_s)
    except subprocess.TimeoutExpired as err:
        raise ChakraError(
            f"rank {rank}: expected the capture to end within {timeout_s} s, it did not; does the script take "
            "optimizer steps? Give more time with --fake-timeout"
        ) from err
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    said = mailbox / "error"
    if child.returncode and said.exists():
        raise InputError(said.read_text(encoding="utf-8"))
    if child.returncode:
        raise ChakraError(f"rank {rank}: expected the script to run, it ended with exit code {child.returncode}")
    return _read(Path(options.out), rank)


def _read(folder: Path, rank: int) -> FakeRank:
    path = folder / f"manifest.{rank}.json"
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return FakeRank(
        rank=rank,
        operators=record["operators"],
        communications=record["communications"],
        peers=tuple(record["peers"]),
        warnings=dict.fromkeys(record["warnings"], 1),
        files=(*(folder / name for name in record["files"]), path),
    )


def _report(found: tuple[FakeRank, ...], result: Any, *, as_json: bool) -> None:
    counts = {trace.rank: _counts(trace) for trace in result.traces}
    if as_json:
        print_json(
            [
                {
                    "rank": one.rank,
                    "operators": one.operators,
                    "communications": one.communications,
                    "num_ops": counts.get(one.rank, (0, 0))[0],
                    "tensor_bytes": counts.get(one.rank, (0, 0))[1],
                    "warnings": list(one.warnings),
                }
                for one in found
            ]
        )
        return
    from chakra_et.units import format_bytes, format_count

    rows = []
    for one in found:
        ops, moved = counts.get(one.rank, (0, 0))
        rows.append(
            [str(one.rank), f"{one.operators:,}", f"{one.communications:,}", format_count(ops), format_bytes(moved)]
        )
    print_table("Recorded before execution", ["rank", "operators", "communications", "FLOP", "bytes moved"], rows)
    for text, count in Counter(text for one in found for text in one.warnings).items():
        where = f" ({count} ranks)" if len(found) > 1 else ""
        print_line(f"note: {text}{where}")


def _counts(trace: Any) -> tuple[int, int]:
    return int(trace.column("num_ops").sum() or 0), int(trace.column("tensor_size").sum() or 0)
