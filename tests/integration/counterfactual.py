"""What-if on converted traces, to compare with the generator's own second run.

The ranks' graphs are scheduled together: a matched communication is an arrival on each rank, and a transfer that
begins when the last one has arrived.

Shape letters: R ranks, N nodes of all ranks, C communications.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from chakra_et._jit.schedule import schedule
from chakra_et.conversion import ConversionResult, ConvertOptions, convert
from chakra_et.ir import NodeType, TraceSet, build_graph
from chakra_et.testing import Edit, MachineConfig, ProfileConfig, Program, Run, run

COMM = [int(t) for t in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE, NodeType.COMM_COLL_NODE)]


@dataclass(frozen=True)
class Experiment:
    """A program, its run, and the trace set that was converted from that run's profiles."""

    program: Program
    run: Run
    result: ConversionResult

    def error(self, edit: Edit) -> float:
        """How far the edited trace's makespan is from the edited run's, as a share of the latter."""
        truth = run(self.program, edit=edit, config=self.run.config, show=self.run.show).makespan_ns
        return edited_makespan(self.result.traces, edit, window_starts(self.run)) / truth - 1

    def edits(self) -> dict[str, Edit]:
        """Every edit that makes sense for the program."""
        ranks = range(self.program.ranks)
        found = {
            "as it was": Edit(),
            "kernels x2": Edit(kernel_scale=2.0),
            "comm x3": Edit(comm_scale=3.0),
            "last rank late": Edit(rank_delay_ns={ranks[-1]: 3_000_000}),
        }
        for name in sorted({thread.name for thread in self.program.threads}):
            scale = {self.program.tid(rank, name): 2.0 for rank in ranks}
            found[f"thread {name} x2"] = Edit(host_thread_scale=scale)
        for stream in self.program.streams:
            found[f"stream {stream} x3"] = Edit(stream_scale={stream: 3.0})
        return found


def experiment(
    program: Program,
    folder,
    *,
    show: ProfileConfig | None = None,
    config: MachineConfig | None = None,
    options: ConvertOptions | None = None,
    host: bool = False,
) -> Experiment:
    """Run a program, write its profiles to a folder, and convert them."""
    done = run(program, show=show, config=config)
    done.write(folder, host=host, compress=False)
    return Experiment(program, done, convert(folder, options=options))


def window_starts(done: Run) -> dict[int, int]:
    """When each rank's profile begins, on the machine's clock: at the first event that it shows."""
    show = done.show
    starts = {}
    for rank in done.ranks:
        shown = [
            event.start_ns
            for event in rank.host
            if (show.python_functions or event.category != "python_function")
            and (show.profiler_steps or not event.name.startswith("ProfilerStep#"))
        ]
        times = [*shown, *(event.start_ns for event in rank.device)]
        starts[rank.rank] = min(time for time in times if time >= show.window_start_ns)
    return starts


def edited_makespan(traces: TraceSet, edit: Edit, offsets_ns: dict[int, int]) -> int:
    """Apply an edit to the traces' durations and return the makespan of their joint schedule, ns from machine time 0.

    Args:
        traces: Converted and matched traces.
        edit: What to change.
        offsets_ns: When each rank's window begins, on the machine's clock.
    """
    before, after, durations, keys = [], [], [], []
    base = 0
    for rank, trace in zip(traces.ranks, traces, strict=True):
        count = len(trace)
        graph = build_graph(trace)
        duration = _edited(trace, edit)
        is_comm = trace.nodes["type"].is_in(COMM).to_numpy()
        # Nodes: root, arrivals and everything else at base + 1 + position, transfers at base + 1 + count + position.
        done = np.arange(count) + base + 1 + np.where(is_comm, count, 0)
        node = np.repeat(np.arange(count), np.diff(graph.indptr)) + base + 1
        before += [done[graph.preds], np.full((np.diff(graph.indptr) == 0).sum(), base)]
        after += [node, np.flatnonzero(np.diff(graph.indptr) == 0) + base + 1]
        comm = np.flatnonzero(is_comm)
        delay = offsets_ns[rank] + edit.rank_delay_ns.get(rank, 0)
        durations += [np.array([delay]), np.where(is_comm, 0, duration), np.where(is_comm, duration, 0)]
        keys.append(
            pl.DataFrame(
                {
                    "key": _keys(trace, comm),
                    "scale": _comm_scale(trace, comm, edit),
                    "arrival": comm + base + 1,
                    "transfer": comm + base + 1 + count,
                }
            )
        )
        base += 1 + 2 * count
    meetings = pl.concat(keys).with_columns(scale=pl.col("scale").max().over("key"))
    pairs = meetings.join(meetings, on="key")
    before.append(pairs["arrival"].to_numpy())
    after.append(pairs["transfer_right"].to_numpy())
    first, second = np.concatenate(before).astype(np.int64), np.concatenate(after).astype(np.int64)
    order = np.argsort(second, kind="stable")
    indptr = np.zeros(base + 1, np.int64)
    np.cumsum(np.bincount(second, minlength=base), out=indptr[1:])
    length = np.concatenate(durations)
    length[meetings["transfer"].to_numpy()] *= meetings["scale"].to_numpy()
    length = np.rint(length).astype(np.int64)
    start, _, visited = schedule(indptr, first[order], length)
    assert len(visited) == base, "the joint graph has a cycle"
    return int((start + length).max())


def _keys(trace, comm) -> pl.Series:
    nodes = trace.nodes[comm]
    if not len(comm):
        return pl.Series(dtype=pl.String)
    sent = pl.col("type") != int(NodeType.COMM_COLL_NODE)
    peers = [
        pl.col(name).cast(pl.String).fill_null("") if name in nodes.columns else pl.lit("")
        for name in ("comm_src", "comm_dst", "comm_tag")
    ]
    members = {g.name: str(g.ranks) for g in trace.process_groups}
    group = pl.col("pg_name").fill_null("").replace(members)
    return nodes.select(
        key=pl.when(sent)
        .then(pl.concat_str(pl.lit("p2p"), *peers, pl.col("comm_seq").cast(pl.String), separator="/"))
        .otherwise(pl.concat_str(pl.lit("coll"), group, pl.col("comm_seq").cast(pl.String), separator="/"))
    )["key"]


def _stream_scale(trace, edit: Edit) -> np.ndarray:
    stream, scale = trace.integers("stream"), np.ones(len(trace))
    for number, factor in edit.stream_scale.items():
        scale = np.where(stream == number, factor, scale)
    return scale


def _comm_scale(trace, comm, edit: Edit) -> np.ndarray:
    """The factor that each participant asks for; the transfer takes as long as the slowest of them."""
    return _stream_scale(trace, edit)[comm] * edit.comm_scale


def _edited(trace, edit: Edit) -> np.ndarray:
    """Edited durations, float64 [N]; those of communications are the unscaled transfers."""
    nodes = trace.nodes
    duration = trace.integers("duration_ns", 0).astype(np.float64)
    comm = nodes["type"].is_in(COMM).to_numpy()
    duration -= np.where(comm, trace.integers("wait_ns", 0), 0)
    gap = trace.column("gap_kind").is_not_null().to_numpy()
    host = trace.column("is_cpu_op").to_numpy()
    work = ~host & ~gap & ~comm
    kernel = work & trace.column("copy_kind").is_null().to_numpy()
    duration = np.where(work, duration * _stream_scale(trace, edit), duration)
    duration = np.where(kernel, duration * edit.kernel_scale, duration)
    tid = trace.integers("tid")
    # Idle time straight after a wait is the operating system's, which wakes the thread.
    idle = (trace.column("gap_kind") == "host_idle").fill_null(False) & (trace.nodes["sync_deps"].list.len() == 0)
    idle = idle.to_numpy()
    for number, scale in edit.host_thread_scale.items():
        duration = np.where((tid == number) & host & (~gap | idle), duration * scale, duration)
    return duration
