"""Copies of traces for ranks that the set lacks.

A copy does what its original does, with the partners that lie around it as the original's lie around that one. Groups
that hold both stay as they are. Others must be evenly spaced, as in grids of tensor, pipeline and data parallel ranks:
then the copy's group is the one of the same length and distance that holds it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir import ProcessGroup, Trace, TraceSet
from chakra_et.ir.process_group import groups_of
from chakra_et.sim.communicators import peers_of

__all__ = ["mirror_ranks"]

_PEERS = ("comm_src", "comm_dst")


def mirror_ranks(traces: TraceSet) -> tuple[TraceSet, tuple[str, ...]]:
    """Add a copy for each rank of the job that has no trace.

    The original is the rank that shares most groups with the missing one and exchanges no messages with it (those do
    something else), of these the nearest.

    Args:
        traces: The traces; their groups, peers and `world_size` tell how many ranks there are.

    Returns:
        The traces of all ranks, and what was copied, in words.

    Raises:
        SimulationError: A group isn't evenly spaced.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0, world_size=4, process_groups=[ProcessGroup("tp", (0, 1), 2)])
        >>> _ = builder.add("r", NodeType.COMM_COLL_NODE, pg_name="tp", comm_type=0, comm_size=4)
        >>> mirrored, said = mirror_ranks(TraceSet((builder.build(),)))
        >>> [trace.process_groups[0].ranks for trace in mirrored], said
        ([(0, 1), (0, 1), (2, 3), (2, 3)], ('ranks 1 to 3 are copies of rank 0',))
    """
    originals = dict(zip(traces.ranks, traces, strict=True))
    known = {
        rank: groups_of(rank, (*trace.process_groups, *traces.process_groups)) for rank, trace in originals.items()
    }
    peers = {rank: peers_of(trace)[0] for rank, trace in originals.items()}
    beyond = [max(group.ranks, default=-1) for groups in known.values() for group in groups.values()]
    size = max(
        traces.world_size, *(top + 1 for top in beyond), *(peer + 1 for met in peers.values() for peer in met), 0
    )
    missing = [rank for rank in range(size) if rank not in originals]
    copies: dict[int, Trace] = {}
    sources: dict[int, list[int]] = {}
    for rank in missing:
        source = min(originals, key=lambda one: _distance(one, rank, known[one], peers[one]))
        copies[rank] = _copy(originals[source], source, rank, known[source], size)
        sources.setdefault(source, []).append(rank)
    every = {rank: replace(trace, metadata=replace(trace.metadata, rank=rank)) for rank, trace in originals.items()}
    said = tuple(f"{_listed(ranks)} of rank {source}" for source, ranks in sources.items())
    merged = tuple(trace for _, trace in sorted({**every, **copies}.items()))
    return TraceSet(merged, ()), said


def _distance(one: int, rank: int, groups: dict[str, ProcessGroup], peers: list[int]) -> tuple[bool, int, int]:
    shared = sum(rank in group.ranks for group in groups.values())
    return rank in peers, -shared, abs(one - rank)


def _copy(trace: Trace, source: int, rank: int, groups: dict[str, ProcessGroup], size: int) -> Trace:
    moved = {name: _moved(group, source, rank, size) for name, group in groups.items()}
    nodes = trace.nodes
    changes = [
        (pl.col(name) + rank - source).alias(name)
        for name in _PEERS
        if name in nodes.columns and nodes[name].null_count() < nodes.height
    ]
    if "comm_root" in nodes.columns and nodes["comm_root"].null_count() < nodes.height:
        roots = [
            {"pg_name": name, "comm_root": before, "new_root": after}
            for name, group in groups.items()
            for before, after in zip(group.ranks, moved[name].ranks, strict=True)
        ]
        schema = {"pg_name": pl.String, "comm_root": pl.Int64, "new_root": pl.Int64}
        table = pl.DataFrame(roots, schema=schema)
        found = nodes.select("pg_name", "comm_root").join(table, on=list(schema)[:2], how="left", maintain_order="left")
        changes.append(pl.coalesce(found["new_root"], nodes["comm_root"]).alias("comm_root"))
    # Without names of ranks, copies share the node table.
    nodes = nodes.with_columns(changes) if changes else nodes
    return replace(
        trace, nodes=nodes, process_groups=tuple(moved.values()), metadata=replace(trace.metadata, rank=rank)
    )


def _moved(group: ProcessGroup, source: int, rank: int, size: int) -> ProcessGroup:
    """Return the group that a copy means by the name of the original's group."""
    ranks = np.array(group.ranks, np.int64)
    if rank in group.ranks or source not in group.ranks:
        return group
    steps = np.diff(ranks)
    if len(ranks) == 1:
        return replace(group, ranks=(rank,))
    stride = int(steps[0])
    if stride <= 0 or (steps != stride).any():
        raise SimulationError(
            f"process group '{group.name}' of rank {source}: expected evenly spaced ranks to mirror, got "
            f"{', '.join(map(str, group.ranks[:8]))}; add the missing traces instead"
        )
    block = stride * len(ranks)
    first = rank // block * block + rank % stride
    if first + block - stride >= size:
        raise SimulationError(
            f"process group '{group.name}' of rank {source}: expected its like around rank {rank} in a job of {size} "
            "ranks to mirror, got one that is cut off; add the missing traces instead"
        )
    return replace(group, ranks=tuple(range(first, first + block, stride)))


def _listed(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} is a copy"
    whole = ranks == list(range(ranks[0], ranks[-1] + 1))
    named = f"ranks {ranks[0]} to {ranks[-1]}" if whole else f"{len(ranks)} ranks from {ranks[0]} to {ranks[-1]}"
    return f"{named} are copies"
