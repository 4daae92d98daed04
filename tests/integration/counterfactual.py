"""What-if on converted traces, to compare with the generator's own second run.

The simulator does the what-if: transfers as measured, each beginning when the last participant has come. What it has no
option for (slower streams) is done to the traces' durations.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from chakra_et.conversion import ConversionResult, ConvertOptions, convert
from chakra_et.ir import NodeType, TraceSet
from chakra_et.sim.simulate import simulate
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
            "link half as fast": Edit(comm_scale=2.0),
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
    """Simulate the traces with an edit, and return when the last rank ends, ns from machine time 0.

    Args:
        traces: Converted and matched traces.
        edit: What to change.
        offsets_ns: When each rank's window begins, on the machine's clock.
    """
    result = simulate(
        with_slow_streams(traces, edit) if edit.stream_scale else traces,
        comm="measured",
        iteration="all",
        comm_scale=edit.comm_scale,
        compute_scale={"*": edit.kernel_scale, "copy": 1.0, "memset": 1.0},
        host_scale=edit.host_thread_scale,
        rank_delay_ns=edit.rank_delay_ns,
    )
    assert result.notes == ()
    return result.finish_ns + min(offsets_ns.values())


def with_slow_streams(traces: TraceSet, edit: Edit) -> TraceSet:
    """Make what runs on some streams slower; a transfer takes as long as the slowest participant asks for."""
    factors = [trace.column("stream").replace_strict(edit.stream_scale, default=1.0) for trace in traces]
    tables = [
        pl.DataFrame({"key": keys(trace), "factor": factor}).drop_nulls("key")
        for trace, factor in zip(traces, factors, strict=True)
    ]
    slowest = pl.concat(tables).group_by("key").agg(pl.col("factor").max().alias("slowest"))
    slow = []
    for trace, factor in zip(traces, factors, strict=True):
        nodes = trace.nodes.with_columns(factor=factor, key=keys(trace)).join(
            slowest, on="key", how="left", maintain_order="left"
        )
        work = ~pl.col("is_cpu_op") & trace.column("gap_kind").is_null()
        wait = trace.column("wait_ns").fill_null(0)
        transfer = (pl.col("duration_ns") - wait) * pl.coalesce("slowest", "factor") + wait
        duration = pl.when(work).then(transfer).otherwise("duration_ns").round().cast(pl.Int64)
        slow.append(trace.with_columns([nodes.select(duration.alias("duration_ns")).to_series()]))
    return TraceSet(tuple(slow), traces.process_groups)


def keys(trace) -> pl.Series:
    """What a communication has in common with those that it meets; null on other nodes."""
    names = ("comm_src", "comm_dst", "comm_tag", "comm_seq", "pg_name")
    nodes = trace.nodes.with_columns(trace.column(name).cast(pl.String).fill_null("") for name in names)
    members = {group.name: str(group.ranks) for group in trace.process_groups}
    coll = pl.concat_str(pl.col("pg_name").replace(members), pl.col("comm_seq"), separator="/")
    sent = pl.concat_str("comm_src", "comm_dst", "comm_tag", "comm_seq", separator="/")
    kind = pl.col("type")
    return nodes.select(key=pl.when(kind == int(NodeType.COMM_COLL_NODE)).then(coll).when(kind.is_in(COMM)).then(sent))[
        "key"
    ]
