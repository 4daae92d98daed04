"""`Scene`: one stretch of a job, ready to be simulated again and again.

What doesn't depend on the machine is found once: the graph, who meets whom, who waits for whom, what nodes are. With a
network, ranks may be folded; which ones depends on where they lie in it, so that there is a `Cast` for each layout.

Shape letters: N nodes, M meetings, P participants, R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.engine_state import Plan
from chakra_et.ir import NodeType, TraceSet
from chakra_et.sim.communicators import Communicators, Peers, find_communicators, find_peers
from chakra_et.sim.compute import Work, find_work
from chakra_et.sim.fold import Fold, fold_ranks, hash_contents, no_fold
from chakra_et.sim.measured import Exchange, measure, plain_exchange, recorded_offsets, window_ends, window_starts
from chakra_et.sim.meeting_errors import check_meetings, refuse_missing
from chakra_et.sim.meetings import Meetings, make_meetings, match_nodes
from chakra_et.sim.network.communications import Communications, group_communications
from chakra_et.sim.network.topology import Grid
from chakra_et.sim.plan import make_plan, successors
from chakra_et.sim.resources import ResourceModel, compute_nodes, engines, streams
from chakra_et.sim.workload import Workload, make_tables, make_workload

__all__ = ["Cast", "Scene", "missing_ranks"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


class Cast:
    """The ranks that stand for all, and what is known of their nodes."""

    def __init__(self, scene: Scene, fold: Fold) -> None:
        self.fold = fold
        self.groups = scene.groups
        leaders = [scene.traces.traces[leader] for leader in fold.leaders.tolist()]
        self.workload: Workload = make_workload(TraceSet(tuple(leaders), scene.traces.process_groups))
        rows = match_nodes(self.workload, scene.groups, fold)
        check_meetings(self.workload, rows, scene.groups, fold)
        self.meetings: Meetings = make_meetings(rows, scene.groups, fold)
        self._offsets = scene.clock_offsets
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._exchanges: dict[tuple[bool, bool | None], Exchange] = {}

    @cached_property
    def offsets(self) -> Int:
        """What is added to each rank's clock, int64 [R]."""
        if self._offsets is None:
            return recorded_offsets(self.workload, self.meetings)
        return np.array([self._offsets.get(rank, 0) for rank in self.workload.ranks.tolist()], np.int64)

    @cached_property
    def begin(self) -> Int:
        """When each rank begins, int64 [R], ns."""
        return window_starts(self.workload, self.offsets)

    @cached_property
    def recorded_end(self) -> Int:
        """When each rank's last node ended when it was recorded, int64 [R], ns; -1 where nothing tells."""
        return window_ends(self.workload, self.offsets)

    @cached_property
    def measured(self) -> Exchange:
        """How communications went when they were recorded."""
        return measure(self.workload, self.meetings, self.offsets)

    @cached_property
    def duration(self) -> Int:
        """Recorded durations, int64 [N], ns."""
        return np.maximum(self.workload.integers("duration_ns", 0), 0)

    @cached_property
    def work(self) -> Work:
        """What nodes are."""
        return find_work(self.workload)

    @cached_property
    def compute(self) -> Bool:
        """Compute nodes, bool [N]."""
        return compute_nodes(self.workload)

    @cached_property
    def communicates(self) -> Bool:
        """Communications, bool [N]."""
        found = np.zeros(self.workload.node_count, np.bool_)
        for part in (self.meetings.nodes, self.meetings.single, self.meetings.unknown):
            found[part] = True
        return found

    @cached_property
    def communications(self) -> Communications:
        """The meetings, equal ones put together."""
        return group_communications(self.meetings.table)

    @cached_property
    def measured_table(self) -> pl.DataFrame:
        """The meetings with their measured transfers, for a fit; of a message, what its receiver takes."""
        own = pl.DataFrame({"meeting": self.meetings.rooms, "own": self.measured.own_ns})
        own = own.filter(pl.Series(self.measured.waits))
        found = own.group_by("meeting", maintain_order=True).agg(pl.col("own").median(), last=pl.col("own").last())
        table = self.meetings.table.with_row_index("meeting").with_columns(pl.col("meeting").cast(pl.Int64))
        table = table.join(found, on="meeting", how="left", maintain_order="left")
        return table.with_columns(measured_ns=pl.when(pl.col("kind") == "send").then("last").otherwise("own"))

    @cached_property
    def unsized(self) -> Bool:
        """Meetings of unknown size, bool [M]."""
        return self.meetings.table["size_bytes"].is_null().to_numpy()

    @cached_property
    def empty(self) -> Bool:
        """Meetings that transfer nothing and are no barrier, bool [M]."""
        barrier = (pl.col("comm_type") == 9).fill_null(False)
        return (
            self.meetings.table.select((pl.col("size_bytes") == 0).fill_null(False) & ~barrier).to_series().to_numpy()
        )

    @cached_property
    def lists(self) -> tuple[Int, Int]:
        """Successor lists of the graph."""
        return successors(self.workload)

    def exchange(self, *, measured: bool, sends_wait: bool | None) -> Exchange:
        """Return how participants meet.

        Args:
            measured: True to take transfers as recorded.
            sends_wait: Whether senders wait for receivers; None for as recorded, and without a record, not.
        """
        recorded = self.workload.present("start_ns")[self.meetings.nodes].all()
        if sends_wait is None and measured and recorded:
            return self.measured
        key = (measured, sends_wait)
        if key not in self._exchanges:
            found = plain_exchange(self.workload, self.meetings, sends_wait=bool(sends_wait))
            if sends_wait is None and recorded:
                sent = self.workload.integers("type")[self.meetings.nodes] != NodeType.COMM_COLL_NODE
                found = replace(found, arrival=np.where(sent, self.measured.arrival, found.arrival))
            own = self.measured.own_ns if measured else found.own_ns
            self._exchanges[key] = replace(found, own_ns=own, name=f"measured {measured}, sends wait {sends_wait}")
        return self._exchanges[key]

    def plan(self, exchange: Exchange, model: ResourceModel, *, channels: int, slowdown: float) -> Plan:
        """Return the engine's plan without times; it is kept for the next time."""
        key = (exchange.name, model, channels, slowdown)
        if key not in self._plans:
            if model == "streams":
                found = streams(self.workload, self.meetings)
            else:
                found = engines(self.workload, self.meetings, channels=channels)
            # Without engines there is nothing to slow down.
            slowdown = slowdown if model == "engines" else 1.0
            self._plans[key] = make_plan(self.workload, self.lists, self.meetings, exchange, found, slowdown=slowdown)
        return self._plans[key]


class Scene:
    """The traces of all ranks for one stretch of the job, and the groups that they use."""

    def __init__(self, traces: TraceSet, clock_offsets: Mapping[int, int] | None, iteration: int | None) -> None:
        self.traces, self.clock_offsets, self.iteration = traces, clock_offsets, iteration
        self.tables = make_tables(traces)
        self.groups = find_communicators(traces, self.tables)
        self.peers = find_peers(traces, self.tables)
        # Recorded times differ from rank to rank, unless one is a copy of the other.
        recorded = any(trace.metadata.family == "collected" for trace in self.tables.traces)
        self.may_fold = len(traces) > (len(self.tables.traces) if recorded else 1)
        self._casts: dict[tuple[object, ...], Cast] = {}
        missing = missing_ranks(traces, self.groups, self.peers)
        if missing:
            workload = make_workload(traces)
            fold = no_fold(traces, self.groups, self.peers)
            refuse_missing(workload, match_nodes(workload, self.groups, fold), self.groups, missing)

    def cast(self, grid: Grid | None, delays: Mapping[int, int], *, fold: bool) -> Cast:
        """Return the ranks that stand for all.

        Args:
            grid: The layout of the network; None without one.
            delays: By how much ranks begin late.
            fold: False to let each rank stand for itself.
        """
        key = (fold, (grid, tuple(sorted(delays.items()))) if fold else None)
        if key not in self._casts:
            self._casts[key] = Cast(self, self._fold(grid, delays) if fold else self._no_fold())
        return self._casts[key]

    def _no_fold(self) -> Fold:
        return no_fold(self.traces, self.groups, self.peers)

    @cached_property
    def contents(self) -> npt.NDArray[np.uint64]:
        """Hash of what each rank does, uint64 [R]."""
        return hash_contents(self.traces, self.tables)

    def _fold(self, grid: Grid | None, delays: Mapping[int, int]) -> Fold:
        late = np.array([delays.get(rank, 0) for rank in self.traces.ranks], np.uint64)
        initial = self.contents + late * np.uint64(0x9E3779B97F4A7C15)

        def places(ranks: Int, base: Int) -> Int:
            return grid.relative(ranks, base) if grid is not None else np.zeros(len(ranks), np.int64)

        return fold_ranks(self.traces, self.groups, self.peers, places, initial)


def missing_ranks(traces: TraceSet, groups: Communicators, peers: Peers) -> list[int]:
    """Return the ranks that others communicate with, and that have no trace."""
    partners = np.unique(np.concatenate((groups.members, peers.peer)))
    found: list[int] = np.setdiff1d(partners, np.array(traces.ranks, np.int64)).tolist()
    return found
