"""One rank's execution trace and profile to `.et`, end to end, at several sizes: CPU seconds, memory, growth.

    python benchmarks/convert_pair.py FOLDER [FOLDER ...]

Each folder holds ``host.0.json.gz`` and ``device.0.json.gz``, as ``examples/capture_ddp.py --layers 4 --steps N``
writes them (N = 4, 16, 62 give 1/16, 1/4 and the full size of about 230,000 host nodes). Every conversion runs in a
process of its own, after one that only warms numba's cache.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

from processes import measured


def megabytes(path: Path) -> float:
    """Return the decompressed size of a file, MB."""
    with gzip.open(path) as file:
        return sum(len(chunk) for chunk in iter(lambda: file.read(1 << 20), b"")) / 1e6


def convert(folder: Path, out: str) -> tuple[float, float]:
    """Convert in a process of its own; return CPU seconds and peak memory in GB."""
    command = [sys.executable, "-m", "chakra_et.cli", "convert", "--force", "-o", out]
    command += ["--host", str(folder / "host.0.json.gz"), "--device", str(folder / "device.0.json.gz")]
    return measured(command)


def main() -> None:
    """Print one line a folder."""
    folders = [Path(name) for name in sys.argv[1:]]
    if not folders:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as out:
        convert(folders[0], out)
        print(f"{'host MB':>8} {'profile MB':>10} {'CPU s':>7} {'CPU s / 100 MB':>14} {'peak GB':>8}")
        for folder in folders:
            host, device = megabytes(folder / "host.0.json.gz"), megabytes(folder / "device.0.json.gz")
            seconds, peak = min(convert(folder, out) for _ in range(2))
            print(f"{host:8.1f} {device:10.1f} {seconds:7.2f} {100 * seconds / (host + device):14.2f} {peak:8.2f}")


if __name__ == "__main__":
    main()
