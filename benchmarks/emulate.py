"""Collectives over links of a known speed, on one machine: replayed between network namespaces, and simulated.

    python benchmarks/emulate.py [--ranks N] [--rates R,R] [--sizes S,S] [--repeats N] [--json]

Each rank is a process in a network namespace of its own, with one link to a bridge; `tc` holds each link to a rate, in
both directions (a token bucket). `python -m chakra_et.replay` makes the communications of a written
trace set over gloo; the simulator is given the same traces and a switch of the same rate. Needs root and iproute2 on
Linux; without them it says so and ends with exit code 77, as for a test that is skipped.

The kinds are those that gloo makes as the simulator's algorithms do. It makes a reduce-scatter as an all-reduce, which
takes twice as long; a broadcast along a binomial tree, a whole vector at a time; and of what two ranks exchange, one
direction waits for the other: both go over one connection, and a rank says that it is ready behind what it sends.

What a link carries is less than its rate: of a TCP segment of 1,514 bytes on Ethernet, 1,448 are payload. The simulator
is given that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from chakra_et.io import write_set
from chakra_et.ir import CommType, NodeType, ProcessGroup, Trace, TraceBuilder, TraceSet
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.simulate import simulate
from chakra_et.specs import load_system
from chakra_et.units import format_bytes, format_ns, parse_bandwidth, parse_bytes

SKIPPED = 77
PAYLOAD = 1448 / 1514
NETWORK = "10.77.0"
PORT = "29577"
TIMEOUT_S = 180
KINDS = {"allreduce": CommType.ALL_REDUCE, "_allgather_base": CommType.ALL_GATHER, "send": None}
SYSTEM = """
name = "emulated"
[device]
name = "cpu"
memory = "1GB"
memory_bandwidth = "1GB/s"
[device.peak]
fp32 = "1GFLOP/s"
[[dimensions]]
name = "links"
topology = "switch"
size = "rest"
bandwidth = "{bandwidth}B/s"
latency = "50us"  # of a message between two processes here
"""


@dataclass(frozen=True)
class Row:
    """One communication at one rate: measured and simulated."""

    rate_bits_per_s: int
    kind: str
    size_bytes: int
    measured_ns: int
    simulated_ns: int
    error: float


def main() -> int:
    """Emulate and simulate, and print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="ranks, each in a namespace (default: 4)")
    parser.add_argument("--rates", default="50Mb/s,200Mb/s", help="of each link (default: %(default)s)")
    parser.add_argument("--sizes", default="4MiB", help="of whole vectors (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="passes measured (default: 3)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    missing = why_not()
    if missing:
        print(f"skipped: {missing}")
        return SKIPPED
    sizes = [parse_bytes(text) for text in args.sizes.split(",")]
    traces = make_traces(args.ranks, sizes)
    rows = []
    for text in args.rates.split(","):
        bits_per_s = round(parse_bandwidth(text) * 8)
        measured = emulate(traces, bits_per_s, args.repeats)
        simulated = predict(traces, bits_per_s)
        rows += compare(bits_per_s, measured, simulated)
    print(json.dumps([asdict(row) for row in rows]) if args.json else "\n".join(told(rows)))
    return 0


def why_not() -> str:
    """Say what is missing; empty if links can be emulated here."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "expected root on Linux, which may make network namespaces"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"expected iproute2, got no '{program}'"
    name = f"chakra-{os.getpid()}-probe"
    probe = _said(["ip", "netns", "add", name])
    _said(["ip", "netns", "del", name])
    return f"expected to make a network namespace, got: {probe}" if probe else ""


def make_traces(ranks: int, sizes: Sequence[int]) -> TraceSet:
    """Return a set whose ranks make each kind of communication in each size, one after the other."""
    return TraceSet(tuple(_trace(rank, ranks, sizes) for rank in range(ranks)))


def _trace(rank: int, ranks: int, sizes: Sequence[int]) -> Trace:
    world = ProcessGroup("0", tuple(range(ranks)), ranks)
    builder = TraceBuilder(rank=rank, world_size=ranks, process_groups=[world])
    last: list[int] = []
    for place, (size, kind) in enumerate((size, kind) for size in sizes for kind in KINDS):
        comm_type = KINDS[kind]
        columns = {"pg_name": "0", "comm_dtype": "float", "comm_async": False, "is_cpu_op": True, "duration_ns": 1,
                   "start_ns": place, "ctrl_deps": last}  # fmt: skip
        if comm_type is not None:
            # Of an all-gather, what each rank gives.
            own = size // ranks if comm_type == CommType.ALL_GATHER else size
            node = builder.add(kind, NodeType.COMM_COLL_NODE, comm_type=int(comm_type), comm_size=own, **columns)
            last = [node]
        elif rank < 2:
            point = NodeType.COMM_SEND_NODE if rank == 0 else NodeType.COMM_RECV_NODE
            last = [builder.add(kind, point, comm_size=size, comm_src=0, comm_dst=1, comm_tag=0, **columns)]
    return builder.build()


def emulate(traces: TraceSet, bits_per_s: int, repeats: int) -> list[dict[str, object]]:
    """Replay over shaped links and return the report's rows of communications."""
    count = len(traces)
    with tempfile.TemporaryDirectory() as folder, network(count, bits_per_s) as names:
        write_set(traces, Path(folder) / "traces")
        words = ["-m", "chakra_et.replay", f"{folder}/traces", "--only", "comm", "--delays", "none", "--check",
                 "--repeats", str(repeats), "--json"]  # fmt: skip
        processes = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, *words], text=True, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env={
                    **os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": "0",
                    "MASTER_ADDR": f"{NETWORK}.1", "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "eth0",
                    "OMP_NUM_THREADS": "1"})
            for rank, name in enumerate(names)
        ]  # fmt: skip
        try:
            said = [process.communicate(timeout=TIMEOUT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    for process, (_, errors) in zip(processes, said, strict=True):
        if process.returncode:
            raise SystemExit(f"a rank ended with exit code {process.returncode}: {errors[-500:]}")
    report = json.loads(said[0][0])
    rows: list[dict[str, object]] = report["communications"]
    return rows


@contextmanager
def network(count: int, bits_per_s: int) -> Iterator[list[str]]:
    """Make namespaces with a shaped link each to a common bridge; at the end, all of it is gone."""
    stem = f"chakra-{os.getpid()}"
    hub, names = f"{stem}-hub", [f"{stem}-{rank}" for rank in range(count)]
    try:
        for name in (hub, *names):
            _do("ip", "netns", "add", name)
        _do("ip", "-n", hub, "link", "add", "bridge", "type", "bridge")
        _do("ip", "-n", hub, "link", "set", "bridge", "up")
        for rank, name in enumerate(names):
            port = f"port{rank}"
            _do("ip", "-n", hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            _do("ip", "-n", hub, "link", "set", port, "master", "bridge", "up")
            _do("ip", "-n", name, "addr", "add", f"{NETWORK}.{rank + 1}/24", "dev", "eth0")
            # What a rank sends must not wait long behind what it has sent: the other side's data, on the same
            # connection, would wait for its acknowledgements.
            _do("ip", "netns", "exec", name, "sysctl", "-q", "-w", f"net.ipv4.tcp_limit_output_bytes={1 << 16}")
            for device in ("eth0", "lo"):
                _do("ip", "-n", name, "link", "set", device, "up")
            for place, device in ((hub, port), (name, "eth0")):
                shape(place, device, bits_per_s)
        yield names
    finally:
        for name in (*names, hub):
            _said(["ip", "netns", "del", name])


def shape(place: str, device: str, bits_per_s: int) -> None:
    """Hold what leaves by a device to a rate."""
    # A bucket of 1 ms: what lies in it passes at once. The queue is so long that nothing is dropped.
    bucket = max(bits_per_s // 8 // 1000, 1 << 14)
    rate = ("rate", f"{bits_per_s}bit", "burst", str(bucket), "limit", str(64 << 20))
    _do("tc", "-n", place, "qdisc", "add", "dev", device, "root", "tbf", *rate)


def predict(traces: TraceSet, bits_per_s: int) -> list[tuple[str, int, int]]:
    """Return kind, size and simulated time of each communication."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "system.toml"
        path.write_text(SYSTEM.format(bandwidth=round(bits_per_s / 8 * PAYLOAD)))
        result = simulate(traces, load_system(path), options=SimulateOptions(comm="native", iteration="all"))
    nodes = result.traces.trace(0).nodes.filter(pl.col("type") >= int(NodeType.COMM_SEND_NODE))
    return [(name, size, spent) for name, size, spent in nodes.select("name", "comm_size", "duration_ns").iter_rows()]


def compare(
    bits_per_s: int, measured: Sequence[dict[str, object]], simulated: Sequence[tuple[str, int, int]]
) -> list[Row]:
    """Put measured times beside simulated ones."""
    by_kind: dict[str, list[tuple[int, int]]] = {}
    for row in measured:
        by_kind.setdefault(str(row["kind"]).strip("_"), []).append(
            (int(str(row["size_bytes"])), int(str(row["transfer_p50_ns"])))
        )
    rows = []
    for kind in KINDS:
        wanted = sorted((size, spent) for name, size, spent in simulated if name == kind)
        for (size, spent), (_, told_ns) in zip(sorted(by_kind[kind.strip("_")]), wanted, strict=True):
            rows.append(Row(bits_per_s, kind.strip("_"), size, spent, told_ns, told_ns / spent - 1))
    return rows


def told(rows: Sequence[Row]) -> list[str]:
    """Return a table of the rows, and the largest error."""
    lines = [f"{'link':>12} {'communication':<22} {'size':>10} {'measured':>12} {'simulated':>12} {'error':>8}"]
    for row in rows:
        lines.append(
            f"{row.rate_bits_per_s / 1e6:>7.0f} Mb/s {row.kind:<22} {format_bytes(row.size_bytes):>10} "
            f"{format_ns(row.measured_ns):>12} {format_ns(row.simulated_ns):>12} {row.error:>+8.1%}"
        )
    worst = max(rows, key=lambda row: abs(row.error))
    return [*lines, f"largest error: {worst.error:+.1%} ({worst.kind}, {format_bytes(worst.size_bytes)})"]


def _do(*words: str) -> None:
    error = _said(list(words))
    if error:
        raise SystemExit(f"{' '.join(words)}: {error}")


def _said(words: list[str]) -> str:
    """Run a program and return what it complained about; empty if it did what it should."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return (done.stderr.strip() or f"exit code {done.returncode}") if done.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
