"""`TraceSet`: the traces of all ranks of one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from chakra_et.errors import TraceError
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace

__all__ = ["TraceSet"]


@dataclass(frozen=True, slots=True, eq=False)
class TraceSet:
    """The traces of a job, one a rank, in rank order.

    Attributes:
        traces: Traces, ordered by rank; ranks are unique. A trace without a rank gets its position.
        process_groups: Communicators of the whole job; empty until ranks were merged.

    Raises:
        TraceError: Two traces claim the same rank.

    Example:
        >>> TraceSet(()).ranks
        ()
    """

    traces: tuple[Trace, ...]
    process_groups: tuple[ProcessGroup, ...] = ()

    def __post_init__(self) -> None:
        ranks = self.ranks
        if len(set(ranks)) != len(ranks):
            twice = sorted({rank for rank in ranks if ranks.count(rank) > 1})
            raise TraceError(f"trace set: expected one trace a rank, got several for rank {twice[0]}")

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global ranks, in the order of `traces`."""
        return tuple(index if trace.rank is None else trace.rank for index, trace in enumerate(self.traces))

    @property
    def world_size(self) -> int:
        """Number of ranks of the job, as far as the traces tell."""
        known = [trace.metadata.world_size or 0 for trace in self.traces]
        return max([*known, *(rank + 1 for rank in self.ranks), 0])

    def __len__(self) -> int:
        return len(self.traces)

    def __iter__(self) -> Iterator[Trace]:
        return iter(self.traces)

    def trace(self, rank: int) -> Trace:
        """Return the trace of a rank.

        Raises:
            TraceError: The set has no such rank.
        """
        for own, trace in zip(self.ranks, self.traces, strict=True):
            if own == rank:
                return trace
        raise TraceError(f"trace set: expected one of the ranks {list(self.ranks)}, got {rank}")

    def map(self, function: Callable[[Trace], Trace]) -> TraceSet:
        """Return the set with `function` applied to every trace."""
        return replace(self, traces=tuple(function(trace) for trace in self.traces))
