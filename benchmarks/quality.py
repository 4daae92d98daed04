"""Convert real profiles and print how complete and how exact each trace is.

    python benchmarks/quality.py FOLDER [--markdown]

Converts every Kineto profile below FOLDER (each alone; archives are not opened), and prints a line a profile: device
activities and nodes, linked of linkable, start error, makespan of the rebuilt schedule over the measured window, and
the share of the makespan in gaps of each kind along the critical path.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chakra_et.conversion import convert
from chakra_et.conversion.discover import kind_of
from chakra_et.errors import ChakraError
from chakra_et.io import read_head
from chakra_et.validation import validate

KINDS = ("launch_latency", "host_idle", "unexplained")


def line(path: Path) -> list[str]:
    """Convert one profile and return its cells."""
    result = convert(path)
    rank = result.quality.ranks[0]
    report = validate(result.traces)
    shares = [f"{100 * rank.gap_ns.get(kind, 0) / max(rank.makespan_ns, 1):.2f}" for kind in KINDS]
    return [
        f"{rank.device_nodes:,} / {rank.device_activities:,}",
        f"{rank.linked:,} / {rank.linkable:,}",
        f"{rank.start_error_ns['max']}",
        f"{rank.makespan_ns / max(rank.window_ns, 1):.4f}",
        *shares,
        str(report.errors),
    ]


def main() -> None:
    """Print the table."""
    folders = [Path(name) for name in sys.argv[1:] if not name.startswith("--")]
    if not folders:
        raise SystemExit(__doc__)
    bar = " | " if "--markdown" in sys.argv else "  "
    titles = ["profile", "nodes / activities", "linked / linkable", "error ns", "makespan / window"]
    titles += [f"{kind} %" for kind in KINDS] + ["errors"]
    print(bar.join(titles))
    if bar != "  ":
        print(bar.join(["---"] * len(titles)))
    for folder in folders:
        for path in sorted(folder.rglob("*.json*")):
            if kind_of(read_head(path, 1 << 16)) != "device":
                continue
            try:
                cells = line(path)
            except ChakraError as err:
                cells = [f"refused: {err}"]
            print(bar.join([str(path.relative_to(folder)), *cells]), flush=True)


if __name__ == "__main__":
    main()
