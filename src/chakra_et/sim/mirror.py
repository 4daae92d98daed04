"""Copies of traces for ranks that the set lacks.

A copy does what its original does, with the partners that lie around it as the original's lie around that one. Groups
that hold both stay as they are. Others must be evenly spaced, as in grids of tensor, pipeline and data parallel ranks:
then the copy's group is the one of the same length and distance that holds it.

Ranks of one group do alike; of small groups more so than of large ones. Who exchanges messages does something else.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir import ProcessGroup, Trace, TraceSet
from chakra_et.ir.process_group import groups_of
from chakra_et.sim.communicators import find_peers

__all__ = ["mirror_ranks"]

_PEERS = ("comm_src", "comm_dst")


def mirror_ranks(traces: TraceSet) -> tuple[TraceSet, tuple[str, ...]]:
    """Add a copy for each rank of the job that has no trace.

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
    peers: dict[int, set[int]] = {rank: set() for rank in originals}
    for rank, peer, _ in find_peers(traces).directed:
        peers[rank].add(peer)
    told = [member for groups in known.values() for group in groups.values() for member in group.ranks]
    size = max([traces.world_size, *(rank + 1 for rank in told), *(rank + 1 for met in peers.values() for rank in met)])
    sources = _sources(known, peers, size)
    copies = {
        rank: _copy(originals[source], source, rank, known[source], size)
        for rank, source in sources.items()
        if rank != source
    }
    every = {rank: replace(trace, metadata=replace(trace.metadata, rank=rank)) for rank, trace in originals.items()}
    of_source: dict[int, list[int]] = {}
    for rank in sorted(copies):
        of_source.setdefault(sources[rank], []).append(rank)
    said = tuple(f"{_listed(ranks)} of rank {source}" for source, ranks in of_source.items())
    return TraceSet(tuple(trace for _, trace in sorted({**every, **copies}.items()))), said


def _sources(known: dict[int, dict[str, ProcessGroup]], peers: dict[int, set[int]], size: int) -> dict[int, int]:
    """Return the original of every rank: from each, the partners in its groups become copies, and their partners."""
    sources = {rank: rank for rank in known}
    sizes = sorted({len(group.ranks) for groups in known.values() for group in groups.values()})
    for most in sizes:
        reached = list(sources)
        while reached:
            rank = reached.pop()
            source = sources[rank]
            away = {peer + rank - source for peer in peers[source]}
            for group in known[source].values():
                # Sets know groups that their original isn't in: those of other originals.
                if source in group.ranks and len(group.ranks) <= most:
                    moved = _moved(group, source, rank, size).ranks
                    fresh = [one for one in moved if one not in sources and one not in away]
                    sources |= dict.fromkeys(fresh, source)
                    reached += fresh
    for rank in range(size):
        sources.setdefault(rank, min(known, key=lambda one: (rank in peers[one], abs(one - rank))))
    return sources


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
