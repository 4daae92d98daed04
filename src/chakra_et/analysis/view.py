"""`RankView`: one rank's trace as analyses see it; what several of them need is computed once, and only if needed.

Shape letters: N nodes, A activities, W windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis import windows as stretches
from chakra_et.analysis.activities import (
    CATEGORIES,
    find_activities,
    has_device,
    launches_of,
    recorded_starts,
)
from chakra_et.analysis.calls import calls_of
from chakra_et.analysis.cover import Cover, cover_of
from chakra_et.analysis.idle import Idle, find_idle
from chakra_et.analysis.markers import Steps
from chakra_et.analysis.options import Options
from chakra_et.analysis.steps import find_steps
from chakra_et.analysis.windows import Window
from chakra_et.errors import InputError
from chakra_et.ir import CommType, Graph, NodeType, Trace, build_graph
from chakra_et.ir.call_stack import parent_rows
from chakra_et.ir.communications import communications

__all__ = ["RankFacts", "RankView"]

Int = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank's view tells about itself; small, and kept when the trace is gone.

    Attributes:
        rank: Global rank.
        has_device: False where the host's work is analyzed.
        windows: The chosen stretches.
        all_windows: All of them.
        activities: Its activities, all of them.
        unlinked: Of these, those that were launched outside the profile.
        empty_steps: Iterations that run nothing, where others do.
        device_ns: Time of the activities in the chosen stretches, added up.
        classified_ns: Of that, time of kernels with a class.
        linked_ns: Of that, time of activities with a known launcher.
        compute_ns: Time of the computing kernels in the chosen stretches, added up.
        modelled_ns: Of that, time of kernels whose operator has a FLOP or byte model.
        notes: What was guessed.
    """

    rank: int
    has_device: bool
    windows: tuple[Window, ...]
    all_windows: tuple[Window, ...]
    activities: int
    unlinked: int
    empty_steps: int
    device_ns: int
    classified_ns: int
    linked_ns: int
    compute_ns: int
    modelled_ns: int
    notes: tuple[str, ...]


class RankView:
    """One rank's trace, and what analyses read off it.

    Attributes:
        trace: The trace.
        rank: Its global rank.
        options: What was asked.
    """

    def __init__(self, trace: Trace, rank: int, options: Options | None = None) -> None:
        self.trace = trace
        self.rank = rank
        self.options = options or Options()

    @property
    def nodes(self) -> pl.DataFrame:
        """The node table."""
        return self.trace.nodes

    @cached_property
    def has_device(self) -> bool:
        """False where no node runs on a device; then the host's work and communications are the activities."""
        return has_device(self.trace)

    @cached_property
    def _starts(self) -> tuple[Int, tuple[str, ...]]:
        return recorded_starts(self.trace)

    @property
    def start_ns(self) -> Int:
        """When nodes start, int64 [N]: as recorded, else as rebuilt."""
        return self._starts[0]

    @cached_property
    def duration_ns(self) -> Int:
        """How long nodes take, int64 [N]."""
        duration: Int = np.maximum(self.trace.integers("duration_ns", 0), 0)
        return duration

    @cached_property
    def graph(self) -> Graph:
        """The dependency graph of all nodes."""
        return build_graph(self.trace)

    @cached_property
    def parent_rows(self) -> Int:
        """Position of each node's parent in the call stack, int64 [N]; -1 for none."""
        return parent_rows(self.trace)

    @cached_property
    def _launched(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Activities and the calls that launched them."""
        table = find_activities(self.trace, self.start_ns, self.options.kernel_classes)
        calls = launches_of(self.trace, table, self.start_ns, self.parent_rows)
        if not self.has_device:
            return table.with_columns(linked=pl.lit(True)), calls
        linked = calls["call_row"].is_not_null()
        if not linked.any():
            # No runtime calls at all: not a profile's trace, and its launchers are its operators.
            linked = pl.Series(self.parent_rows[table["row"].to_numpy()] >= 0)
        table = table.with_columns(linked=linked)
        if self.options.linked_only:
            return table.filter(linked), calls.filter(linked)
        return table, calls

    @property
    def _plain_activities(self) -> pl.DataFrame:
        return self._launched[0]

    @cached_property
    def activities(self) -> pl.DataFrame:
        """Activities by start, [A], as `find_activities` returns them, with `linked` and `window`.

        `linked` tells that the launcher is known; `window` is the index of the chosen stretch in which an activity
        starts, null outside.
        """
        table = self._plain_activities
        place, inside = self._window_of(table["start_ns"].to_numpy(), table["end_ns"].to_numpy())
        return table.with_columns(window=pl.Series(place).set(pl.Series(~inside), None))

    def _window_of(self, start: Int, end: Int) -> tuple[Int, npt.NDArray[np.bool_]]:
        """Return the chosen stretch in which each activity starts, or the one before, and whether it is in any."""
        if not self.windows:
            return np.zeros(len(start), np.int64), np.zeros(len(start), np.bool_)
        begins, ends = self.window_bounds
        place = np.searchsorted(begins, start, side="right") - 1
        # The last stretch of all holds what has no length and stands at its very end.
        final = (start == ends[-1]) & (end <= start) & (self.windows[-1] == self.all_windows[-1])
        inside = (place >= 0) & ((start < ends[place]) | final)
        return place, inside

    @property
    def launches(self) -> pl.DataFrame:
        """The runtime call that launched each activity, [A], as `launches_of` returns it."""
        return self._launched[1]

    @cached_property
    def issued_ns(self) -> Int:
        """When the host launched each activity, int64 [A]: its call's start, else its operator's, else its own."""
        own = self._plain_activities["start_ns"].to_numpy()
        if not self.has_device:
            return own
        parent = self.parent_rows[self._plain_activities["row"].to_numpy()]
        caller = np.where(parent >= 0, self.start_ns[parent], own) if len(self.start_ns) else own
        call = self.launches["call_start_ns"]
        return np.where(call.is_not_null().to_numpy(), call.fill_null(0).to_numpy(), np.minimum(caller, own))

    @property
    def _issued_in_steps(self) -> Int:
        """When the host launched each activity, int64 [A]; before any step where that was before the profile."""
        launched = self.launches["call_row"].is_not_null().to_numpy()
        if not launched.any() or self.steps.source == "repeats":
            return self.issued_ns
        lost = ~launched & (self.parent_rows[self._plain_activities["row"].to_numpy()] < 0)
        return np.where(lost, np.iinfo(np.int64).min, self.issued_ns)

    @cached_property
    def steps(self) -> Steps:
        """Iterations that annotations mark, or that repeat; none for a whole profile."""
        return find_steps(self.trace, self._plain_activities, self.issued_ns)

    @cached_property
    def all_windows(self) -> tuple[Window, ...]:
        """The stretch of each iteration; of the whole profile where there are none, or where that was asked for."""
        table = self._plain_activities
        found: tuple[Window, ...] = ()
        if self.options.iteration != "whole" and self.steps.table.height:
            if self.has_device:
                found = stretches.tile(self.steps.table, table, self._issued_in_steps)
            else:
                ranges = self.steps.table.select("iteration", "label", "begin_ns", "end_ns").rows()
                found = tuple(Window(*row, *row[2:]) for row in ranges)
        return found or stretches.whole(table)

    @cached_property
    def windows(self) -> tuple[Window, ...]:
        """The chosen stretches, in time order.

        Raises:
            InputError: None of the iterations that were asked for is there.
        """
        try:
            return stretches.choose(self.all_windows, self.options.iteration)
        except InputError as err:
            raise InputError(f"rank {self.rank}: {err}") from err

    @cached_property
    def window_bounds(self) -> tuple[Int, Int]:
        """Begin and end of each chosen stretch, ns, int64 [W] each."""
        begins = np.array([window.begin_ns for window in self.windows], np.int64)
        return begins, np.array([window.end_ns for window in self.windows], np.int64)

    @cached_property
    def iterations(self) -> pl.Series:
        """Number of the iteration of each chosen stretch, int64 [W]; null for the whole profile."""
        return pl.Series("iteration", [window.iteration for window in self.windows], dtype=pl.Int64)

    def cover(self, category: str) -> Cover:
        """Return when any activity of a category runs."""
        return self._covers[category]

    @cached_property
    def _covers(self) -> dict[str, Cover]:
        table = self._plain_activities
        found = {}
        for category in CATEGORIES:
            own = table.filter(pl.col("category") == category)
            found[category] = cover_of(own["start_ns"].to_numpy(), own["end_ns"].to_numpy())
        return found

    @cached_property
    def communications(self) -> pl.DataFrame:
        """All communications by start, [C]: on ranks with a device, those of the device, if it has any.

        Columns of `chakra_et.ir.communications.communications`, and ``end_ns``, ``iteration`` and ``window`` (where
        it starts; null outside the chosen stretches), ``kind`` (the name of the type; ``unknown`` for kernels that only
        their names tell).
        """
        more = ("comm_dtype", "wait_ns", "transfer_ns", "in_split_sizes", "out_split_sizes")
        table = communications(self.trace, self.rank, more)
        if self.has_device and not table["is_cpu_op"].all():
            table = table.filter(~pl.col("is_cpu_op").fill_null(False))
            if self.options.linked_only:
                table = table.join(self._plain_activities.select("row"), on="row", how="semi", maintain_order="left")
        table = pl.concat([table, self._unnamed(table)], how="diagonal")
        row = table["row"].to_numpy()
        start = self.start_ns[row]
        end = start + self.duration_ns[row]
        place, inside = self._window_of(start, end)
        window = pl.Series("window", place).set(pl.Series(~inside), None)
        return table.with_columns(
            window,
            self.iterations.gather(window),
            start_ns=pl.Series(start),
            end_ns=pl.Series(end),
            ready_ns=pl.Series(self.start_ns[table["ready_row"].to_numpy()]),
            kind=_comm_words(),
        ).sort("start_ns", "end_ns")

    def _unnamed(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return activities that are communications by their names alone."""
        told = self._plain_activities.filter(pl.col("category") == CATEGORIES[1])
        told = told.join(table.select("row"), on="row", how="anti")
        return told.select(
            rank=pl.lit(self.rank, pl.Int64), row="row", name="name", start_ns="start_ns",
            duration_ns=pl.col("end_ns") - pl.col("start_ns"), ready_row="row", comm_size="bytes",
        )  # fmt: skip

    def communication_pieces(self, keys: tuple[str, ...]) -> pl.DataFrame:
        """Return the communications cut so that those of equal keys don't overlap.

        Args:
            keys: ``rank``, ``iteration``, ``pg_name``, ``comm_type``, ...

        Returns:
            The keys, ``begins`` (the communication starts in this stretch), ``communication_ns`` (of the piece, inside
            its stretch), ``overlap_ns`` (of that, while something computes).
        """
        table = self.communications
        start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
        begins, ends = self.window_bounds
        first = np.searchsorted(ends, start, side="right")
        behind = np.maximum(np.searchsorted(begins, end, side="left"), np.searchsorted(begins, start, side="right"))
        count = np.maximum(behind - first, 0)
        rows = np.repeat(np.arange(len(start)), count)
        window = first[rows] + np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        pieces = table.drop("iteration", "window")[rows].with_columns(
            comm_type="kind",
            iteration=self.iterations.gather(pl.Series(window)),
            window=pl.Series(window),
            begins=pl.Series(start[rows] >= begins[window]),
            begin=pl.Series(np.maximum(start[rows], begins[window])),
            until=pl.Series(np.minimum(end[rows], ends[window])),
        )
        over = list(dict.fromkeys(("window", *keys)))
        covered = pl.col("until").cum_max().shift().over(over)
        pieces = pieces.with_columns(begin=pl.min_horizontal(pl.max_horizontal("begin", covered), "until"))
        begin, until = pieces["begin"].to_numpy(), pieces["until"].to_numpy()
        hidden = self.cover(CATEGORIES[0]).between(begin, until)
        return pieces.select(*keys, "begins", communication_ns=pl.Series(until - begin), overlap_ns=pl.Series(hidden))

    @cached_property
    def op_rows(self) -> Int:
        """Position of the operator that launched each activity, int64 [A]; -1 where an annotation or nothing did."""
        rows = self.activities["row"].to_numpy()
        if not self.has_device:
            return rows
        parent = self.parent_rows[rows]
        kinds = self.nodes["type"].fill_null(0).to_numpy()
        return np.where((parent >= 0) & (kinds[parent] > 1), parent, -1) if len(kinds) else parent

    @cached_property
    def idle(self) -> Idle:
        """The stretches of the chosen windows in which the device idles, and what it waits for in them."""
        return find_idle(self.trace, self.graph, self.activities, self.windows, self.start_ns, self.duration_ns)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """The operator call behind each activity, [A], as `calls_of` returns it."""
        return calls_of(self.trace, self.activities["row"].to_numpy(), self.op_rows, self.parent_rows)

    @cached_property
    def facts(self) -> RankFacts:
        """What is kept of the view when the trace is gone."""
        inside = self.activities.filter(pl.col("window").is_not_null())
        time = pl.col("end_ns") - pl.col("start_ns")
        computes = pl.col("category") == CATEGORIES[0]
        device, classified, linked, compute = inside.select(
            time.sum().alias("a"),
            time.filter(pl.col("kind") != "other").sum().alias("b"),
            time.filter("linked").sum().alias("c"),
            time.filter(computes).sum().alias("d"),
        ).row(0)
        modelled = self.activities.select(
            time.filter(computes & pl.col("window").is_not_null() & self.calls["work_model"].is_not_null()).sum()
        ).item()
        table = self._plain_activities
        told = sum(window.iteration is not None for window in self.all_windows)
        return RankFacts(
            rank=self.rank,
            has_device=self.has_device,
            windows=self.windows,
            all_windows=self.all_windows,
            activities=table.height,
            unlinked=table.height - int(table["linked"].sum()),
            empty_steps=self.steps.table.height - told if told else 0,
            device_ns=device,
            classified_ns=classified,
            linked_ns=linked,
            compute_ns=compute,
            modelled_ns=int(modelled),
            notes=(*self._untimed(), *self._starts[1], *self.steps.notes),
        )

    def _untimed(self) -> tuple[str, ...]:
        """Say that nothing takes time, if so."""
        if not len(self.duration_ns) or self.duration_ns.any():
            return ()
        return (
            "no times: all durations are 0, as in an execution trace alone; convert it together with its Kineto "
            "profile",
        )


def _comm_words() -> pl.Expr:
    """Return the names of communications' types."""
    words = {int(kind): kind.name.lower() for kind in CommType}
    kind = pl.col("type")
    return (
        pl.when(kind == int(NodeType.COMM_SEND_NODE)).then(pl.lit("send"))
        .when(kind == int(NodeType.COMM_RECV_NODE)).then(pl.lit("recv"))
        .otherwise(pl.col("comm_type").replace_strict(words, default="unknown", return_dtype=pl.String))
    )  # fmt: skip
