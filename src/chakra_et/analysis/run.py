"""Running analyses over all ranks: each rank is measured by itself, and what is kept of it is put together.

A trace set in memory is measured in place. Files are read a rank at a time, in several processes where that pays: a set
need not fit into memory.

Shape letters: R ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from chakra_et.analysis.options import Options
from chakra_et.analysis.result import Coverage, Result
from chakra_et.analysis.view import RankFacts, RankView
from chakra_et.errors import ChakraError, InputError, TraceError
from chakra_et.io import FORMATS, list_paths, read
from chakra_et.ir import ProcessGroup, Trace, TraceSet
from chakra_et.ir.process_group import join_groups
from chakra_et.units import format_number_of, format_ranks

__all__ = ["Job", "Measure", "Measured", "Progress", "Source", "make_job", "measure_all", "run_one"]

Source = TraceSet | Trace | str | Path | Sequence[str | Path]
Progress = Callable[[str, int, int], None]
Measure = Callable[[RankView], Any]
P = TypeVar("P")
R = TypeVar("R", bound=Result)
# Below so many nodes, starting processes costs more than they save; and how few bytes a node takes in a file.
_PARALLEL_NODES = 2_000_000
_NODE_BYTES = {".gz": 12, ".parquet": 12, ".et": 120, ".json": 500}


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What is common to all ranks.

    Attributes:
        ranks: Global ranks, ascending.
        world_size: Number of ranks of the job, as far as the traces tell.
        groups: Process groups of the job.
        facts: What each rank's view tells.
        options: What was asked.
    """

    ranks: tuple[int, ...]
    world_size: int
    groups: tuple[ProcessGroup, ...]
    facts: Mapping[int, RankFacts]
    options: Options

    @property
    def coverage(self) -> Coverage:
        """How much of the device's time is classified, linked and modelled, over all ranks."""
        facts = [fact for fact in self.facts.values() if fact.has_device]
        device = sum(fact.device_ns for fact in facts)
        compute = sum(fact.compute_ns for fact in facts)
        return Coverage(
            _share(sum(fact.classified_ns for fact in facts), device),
            _share(sum(fact.linked_ns for fact in facts), device),
            _share(sum(fact.modelled_ns for fact in facts), compute),
        )

    @property
    def has_device(self) -> bool:
        """True if any rank has a device."""
        return any(fact.has_device for fact in self.facts.values())

    @property
    def steps(self) -> int:
        """How many stretches of time are looked at, on the rank that has most; at least 1."""
        return max((len(fact.windows) for fact in self.facts.values()), default=0) or 1

    @property
    def rank_steps(self) -> int:
        """How many stretches of time are looked at, added up over ranks; at least 1."""
        return sum(len(fact.windows) for fact in self.facts.values()) or 1

    @property
    def stretch(self) -> str:
        """What one stretch of time is called: ``step``, or ``profile`` where there are no iterations."""
        windows = (window for fact in self.facts.values() for window in fact.windows)
        return "step" if any(window.iteration is not None for window in windows) else "profile"

    @property
    def per_stretch(self) -> str:
        """What a cost is told of: ``a step``, or ``in the profile`` where there are no iterations."""
        return "a step" if self.stretch == "step" else "in the profile"

    @property
    def notes(self) -> tuple[str, ...]:
        """What was guessed, each once."""
        notes = [note for fact in self.facts.values() for note in fact.notes]
        lost = [fact for fact in self.facts.values() if fact.unlinked]
        if lost:
            notes.append(
                f"{format_ranks(fact.rank for fact in lost)}: {sum(fact.unlinked for fact in lost):,} of "
                f"{sum(fact.activities for fact in lost):,} activities were launched outside the profile; they count "
                "where they run (--linked-only leaves them out)"
            )
        empty = [fact for fact in self.facts.values() if fact.empty_steps]
        if empty:
            count = format_number_of(sum(fact.empty_steps for fact in empty), "iteration")
            notes.append(f"{format_ranks(fact.rank for fact in empty)}: {count} that run nothing are left out")
        hosted = [fact.rank for fact in self.facts.values() if not fact.has_device]
        if hosted:
            who = "no rank has" if len(hosted) == len(self.facts) else f"{format_ranks(hosted)}: no"
            notes.append(f"{who} device activities, so the host's operators are taken for them")
        marked = [{window.iteration for window in fact.all_windows} - {None} for fact in self.facts.values()]
        if len(marked) > 1 and all(marked) and not set.intersection(*marked):
            notes.insert(0, "the ranks have no iteration in common: they may be of different jobs")
        return tuple(dict.fromkeys(notes))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


@dataclass(frozen=True, slots=True)
class Measured:
    """What is kept of a rank.

    Attributes:
        world_size: Number of ranks of the job that it tells; 0 if it doesn't.
        groups: Process groups that it knows.
        facts: What its view tells.
        parts: What each analysis keeps of it.
    """

    world_size: int
    groups: tuple[ProcessGroup, ...]
    facts: RankFacts
    parts: tuple[Any, ...]


def run_one(
    measure: Callable[[RankView], P],
    combine: Callable[[Mapping[int, P], Job], R],
    source: Source,
    options: Options | None,
) -> R:
    """Run one analysis: measure every rank, and put them together."""
    options = options or Options()
    measured = measure_all([measure], source, options)
    return combine({rank: kept.parts[0] for rank, kept in measured.items()}, make_job(measured, options))


def make_job(measured: Mapping[int, Measured], options: Options) -> Job:
    """Return what is common to all ranks."""
    ranks = tuple(sorted(measured))
    known = [measured[rank].world_size for rank in ranks]
    world_size = max([*known, *(rank + 1 for rank in ranks), 0])
    return Job(
        ranks,
        world_size,
        join_groups((group for rank in ranks for group in measured[rank].groups), world_size),
        {rank: measured[rank].facts for rank in ranks},
        options,
    )


def measure_all(
    measures: Sequence[Measure],
    source: Source,
    options: Options,
    *,
    jobs: int = 0,
    progress: Progress | None = None,
) -> dict[int, Measured]:
    """Measure every rank.

    Args:
        measures: What each analysis measures.
        source: Traces, or where they are.
        options: What was asked.
        jobs: Processes for files; 0: one a core if they are large, else 1.
        progress: Called with the stage, ranks done, ranks in all.

    Returns:
        What is kept of each rank, by rank.

    Raises:
        InputError: Nothing there, two files of one rank, or an iteration that isn't there.
        FormatError: A file doesn't follow its format.
    """
    if isinstance(source, Trace):
        source = TraceSet((source,))
    if isinstance(source, TraceSet):
        if not len(source):
            raise TraceError("trace set: expected the trace of at least one rank, got none")
        found = (
            (rank, _measure(measures, trace, rank, options, source.process_groups))
            for rank, trace in zip(source.ranks, source, strict=True)
        )
        return dict(_reported(found, len(source), progress))
    return _measure_files(measures, _paths(source), options, jobs, progress)


def _measure(
    measures: Sequence[Measure], trace: Trace, rank: int, options: Options, groups: tuple[ProcessGroup, ...] = ()
) -> Measured:
    view = RankView(trace, rank, options)
    parts = tuple(measure(view) for measure in measures)
    known = tuple(dict.fromkeys((*groups, *trace.process_groups)))
    return Measured(trace.metadata.world_size or 0, known, view.facts, parts)


def _paths(source: str | Path | Sequence[str | Path]) -> list[str]:
    sources = [source] if isinstance(source, str | Path) else list(source)
    paths = [path for entry in sources for path in list_paths(entry, [one.suffixes for one in FORMATS])]
    if not paths:
        raise InputError("expected at least one path, got none; name a file, a directory or a glob")
    return paths


def _measure_files(
    measures: Sequence[Measure], paths: list[str], options: Options, jobs: int, progress: Progress | None
) -> dict[int, Measured]:
    """Read and measure a file at a time; a trace without a rank gets the place of its file."""
    work = [(measures, path, place, options) for place, path in enumerate(paths)]
    workers = min(jobs or _workers(paths), len(paths))
    found: Iterable[tuple[int, Measured]]
    if workers > 1:
        from joblib import Parallel, delayed

        calls = (delayed(_measure_file)(*entry) for entry in work)
        found = Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)(calls)
    else:
        found = (_measure_file(*entry) for entry in work)
    ranks: dict[int, Measured] = {}
    for rank, measured in _reported(found, len(paths), progress):
        if rank in ranks:
            raise InputError(f"rank {rank}: expected one file a rank, got two; name one of them")
        ranks[rank] = measured
    return ranks


def _workers(paths: list[str]) -> int:
    """Return how many processes pay: one a core for a set of millions of nodes, as far as sizes of files tell."""
    nodes = sum(
        os.path.getsize(path) // next((size for end, size in _NODE_BYTES.items() if path.endswith(end)), 1)
        for path in paths
        if os.path.exists(path)
    )
    return (os.cpu_count() or 1) if nodes > _PARALLEL_NODES else 1


def _measure_file(measures: Sequence[Measure], path: str, place: int, options: Options) -> tuple[int, Measured]:
    trace = read(path)
    rank = place if trace.rank is None else trace.rank
    try:
        return rank, _measure(measures, trace, rank, options)
    except ChakraError as err:
        raise type(err)(f"{path}: {err}") from err


def _reported(
    found: Iterable[tuple[int, Measured]], total: int, progress: Progress | None
) -> Iterator[tuple[int, Measured]]:
    for done, entry in enumerate(found):
        if progress is not None:
            progress("analyze", done + 1, total)
        yield entry
