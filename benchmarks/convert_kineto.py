"""A large Kineto profile alone to `.et`, against decompressing it and decoding it into typed structs.

    python benchmarks/convert_kineto.py [MEGABYTES]

The profile is made by `chakra_et.testing.make_profile_file`. Both sides run in processes of their own and in turn; the
ratio is of their CPU seconds. The decoder (msgspec) fills typed structs with the fields that a conversion needs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from processes import measured

from chakra_et.testing import make_profile_file

BASELINE = """
import gzip, sys, msgspec

class Args(msgspec.Struct):
    external_id: int = msgspec.field(default=-1, name="External id")
    correlation: int = -1
    stream: int = -1
    device: int = -1
    rf_id: int = msgspec.field(default=0, name="Record function id")
    seq_id: int = msgspec.field(default=-1, name="Sequence number")
    dims: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input type")

class Event(msgspec.Struct):
    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    id: int | str = 0
    args: Args | None = None

class Profile(msgspec.Struct):
    traceEvents: list[Event]

profile = msgspec.json.decode(gzip.decompress(open(sys.argv[1], "rb").read()), type=Profile)
assert profile.traceEvents
"""


def main() -> None:
    """Make the profile, run both sides, print the ratio."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json.gz"
        make_profile_file(path, megabytes=megabytes)
        convert = [sys.executable, "-m", "chakra_et.cli", "convert", str(path), "--force", "-o", f"{folder}/out"]
        decode = [sys.executable, "-c", BASELINE, str(path)]
        measured(convert)
        floor = min(measured(decode)[0] for _ in range(3))
        seconds, peak = min(measured(convert) for _ in range(3))
        size = (Path(folder) / "out" / "trace.0.et").stat().st_size / 1e6
    print(f"profile {megabytes} MB, trace {size:.0f} MB")
    print(f"decompress + decode {floor:.2f} CPU s; convert {seconds:.2f} CPU s, peak {peak:.2f} GB")
    print(f"ratio {seconds / floor:.2f}")


if __name__ == "__main__":
    main()
