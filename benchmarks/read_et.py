"""Read and write a large `.et`, against protobuf's own parser on the same messages.

The file is made here: a million nodes like those of a converted trace, about ten attributes each. The baseline parses
every message with the generated class (upb runtime) and touches nothing. Times are CPU seconds of one process, best of
some runs; the compiled loops are loaded before the clock starts.

    python benchmarks/read_et.py [--nodes 1000000] [--runs 3]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.et import message_spans, parse_et, read_et, write_et
from chakra_et.ir import NodeType, Trace, TraceBuilder, TraceMetadata


def make_trace(nodes: int) -> Trace:
    """Return a trace of host operators and kernels in time order.

    Args:
        nodes: Number of nodes.
    """
    index = np.arange(nodes, dtype=np.int64)
    host = pl.Series("is_cpu_op", index % 3 != 2)
    before = (
        pl.Series("ctrl_deps", np.maximum(index - 1, 0).astype(np.uint64)).reshape((nodes, 1)).cast(pl.List(pl.UInt64))
    )
    earlier = (
        pl.Series("sync_deps", np.maximum(index - 3, 0).astype(np.uint64)).reshape((nodes, 1)).cast(pl.List(pl.UInt64))
    )
    empty = pl.Series("data_deps", [[]], dtype=pl.List(pl.UInt64)).new_from_index(0, nodes)
    names = pl.Series("name", [f"aten::operator_{i % 300}" for i in range(3000)])
    frame = pl.DataFrame(
        {
            "id": index.astype(np.uint64),
            "name": names.gather(index % 3000),
            "type": pl.Series([int(NodeType.COMP_NODE)], dtype=pl.UInt8).new_from_index(0, nodes),
            "ctrl_deps": before,
            "data_deps": empty,
            "sync_deps": earlier,
            "start_ns": 1_700_000_000_000_000_000 + index * 1_713,
            "duration_ns": 1_000 + index % 7_919,
            "is_cpu_op": host,
            "parent": index // 10,
            "tid": 4_242 + index % 3,
            "correlation": index + 17,
            "rf_id": index * 2,
            "seq_id": index // 4,
            "op_schema": pl.Series(["aten::operator(Tensor self, Tensor other) -> Tensor"]).new_from_index(0, nodes),
        }
    )
    nulls = {"stream": pl.when(~host).then(pl.lit(7, pl.Int64)), "op_schema": pl.when(host).then("op_schema")}
    return Trace(frame.with_columns(**nulls), (), TraceMetadata(rank=0, world_size=1, family="synthesized"))


def cpu_seconds(work: Callable[[], object], runs: int) -> float:
    """Return the CPU time of the fastest of some runs, s."""
    best = float("inf")
    for _ in range(runs):
        begin = time.process_time()
        kept = work()
        best = min(best, time.process_time() - begin)
        del kept
    return best


def slices(data: bytes) -> list[bytes]:
    """Return the messages of a file."""
    buf = np.frombuffer(data, np.uint8)
    return [data[start:end] for start, end in message_spans(buf, "trace.0.et").tolist()]


def parse_all(messages: list[bytes]) -> None:
    """Parse every node with protobuf, and touch nothing."""
    parse = proto.Node.FromString
    for message in messages:
        parse(message)


def main() -> None:
    """Run the benchmark and print its ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        small = write_et(TraceBuilder(rank=0).build(), Path(folder) / "warm.0.et")
        read_et(small)
        read_et(write_et(make_trace(100), Path(folder) / "warm.1.et"))
        trace = make_trace(options.nodes)
        path = Path(folder) / "trace.0.et"
        write_s = cpu_seconds(lambda: write_et(trace, path, force=True), options.runs)
        data = path.read_bytes()
        read_s = cpu_seconds(lambda: parse_et(data, "trace.0.et"), options.runs)
        messages = slices(data)[1:]
        floor_s = cpu_seconds(lambda: parse_all(messages), options.runs)
        again = parse_et(data, "trace.0.et")
    equal = again.nodes.equals(trace.nodes.select(again.nodes.columns))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{options.nodes} nodes, {len(data) / 1e6:.0f} MB, read back equal: {equal}")
    print(f"read into a Trace   {read_s:6.2f} CPU s  {len(data) / read_s / 1e6:6.0f} MB/s")
    print(f"protobuf, untouched {floor_s:6.2f} CPU s")
    print(f"ratio               {read_s / floor_s:6.2f}")
    print(f"write               {write_s:6.2f} CPU s  {len(data) / write_s / 1e6:6.0f} MB/s")
    print(f"peak memory of the whole benchmark {peak:.1f} GB")


if __name__ == "__main__":
    main()
