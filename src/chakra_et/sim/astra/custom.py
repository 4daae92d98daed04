"""Custom collectives: a trace of sends, receives and compute that a rank runs in place of an algorithm.

The nodes of such a trace take no slot. They become nodes of the engine that belong to the collective: they may start
when it does, and it ends when they all have.

Shape letters: I inner nodes of all custom collectives.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et._jit.astra.state import CLASSES, KIND_RECV, KIND_SEND, KIND_TIMED, NONE
from chakra_et.errors import InputError, SimulationError
from chakra_et.io import read
from chakra_et.ir import CommType, NodeType, build_graph
from chakra_et.sim.workload import Workload
from chakra_et.specs import AstraConfig, read_per_node_custom

__all__ = ["InnerNodes", "inner_nodes", "with_inner"]

Int = npt.NDArray[np.int64]
_KINDS = {
    NodeType.COMP_NODE: KIND_TIMED,
    NodeType.COMM_SEND_NODE: KIND_SEND,
    NodeType.COMM_RECV_NODE: KIND_RECV,
}


@dataclass(frozen=True, slots=True, eq=False)
class InnerNodes:
    """Nodes of custom collectives, collective after collective.

    Attributes:
        owner: int64 [I]: position of the collective in the workload.
        kind: int64 [I].
        cost: int64 [I], ns.
        peer: int64 [I]: rank that a message goes to or comes from.
        bytes: int64 [I].
        tag: int64 [I]: number of the collective; messages of one don't meet those of another.
        dep: int64 [K]: for each edge, the inner node that depends.
        pred: int64 [K]: and what it depends on.
    """

    owner: Int
    kind: Int
    cost: Int
    peer: Int
    bytes: Int
    tag: Int
    dep: Int
    pred: Int


def _custom_prefixes(config: AstraConfig, kinds: Int, ids: Int) -> list[str | None]:
    """Return the prefix of the traces that each collective runs, or None where it runs an algorithm."""
    per_node = read_per_node_custom(config)
    by_type = {
        int(CommType.ALL_REDUCE): config.all_reduce_custom,
        int(CommType.ALL_GATHER): config.all_gather_custom,
        int(CommType.REDUCE_SCATTER): config.reduce_scatter_custom,
        int(CommType.ALL_TO_ALL): config.all_to_all_custom,
    }
    if not per_node and not any(by_type.values()):
        return [None] * len(kinds)
    return [per_node.get(node) or by_type.get(kind) for kind, node in zip(kinds.tolist(), ids.tolist(), strict=True)]


def inner_nodes(
    workload: Workload, config: AstraConfig, rows: Int, groups: Int, members: list[tuple[int, ...]]
) -> tuple[Int, InnerNodes]:
    """Return which of some collectives are custom ones, and what these consist of.

    Args:
        workload: All ranks.
        config: Machine and algorithms.
        rows: Positions of the collectives.
        groups: Group of each of them.
        members: Ranks of each group.

    Raises:
        SimulationError: A trace of a custom collective is missing, or holds something else.
    """
    kinds, ids = workload.integers("comm_type")[rows], workload.series("id").to_numpy()[rows]
    owners = workload.ranks[workload.owners[rows]]
    prefixes = _custom_prefixes(config, kinds, ids)
    custom = np.array([prefix is not None for prefix in prefixes], bool)
    if custom.any() and config.splits != 1:
        raise SimulationError(
            f"expected preferred-dataset-splits of 1 with custom collectives, got {config.splits}: ASTRA-sim never "
            "ends them; change it in the system file"
        )
    turn: Counter[tuple[int, int]] = Counter()
    tags: dict[tuple[int, int], int] = {}
    parts: list[tuple[Int, ...]] = []
    count = 0
    cache: dict[tuple[str, int], tuple[Int, ...]] = {}
    for index in np.flatnonzero(custom).tolist():
        rank, group = int(owners[index]), int(groups[index])
        listed = members[group]
        place = sorted(listed).index(rank)
        key = (str(prefixes[index]), place)
        if key not in cache:
            cache[key] = _read(config, *key)
        kind, cost, peer, size, dep, pred = cache[key]
        number = turn[rank, group]
        turn[rank, group] += 1
        tag = tags.setdefault((group, number), len(tags))
        listed_ranks = np.array(listed, np.int64)
        if peer.max(initial=0) >= len(listed):
            raise SimulationError(f"{key[0]}.{place}.et: expected ranks below {len(listed)}, got {int(peer.max())}")
        ranks = np.where(peer >= 0, listed_ranks[np.maximum(peer, 0)], -1)
        whole = np.full(len(kind), 1, np.int64)
        parts.append((whole * rows[index], kind, cost, ranks, size, whole * tag, dep + count, pred + count))
        count += len(kind)
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else [np.empty(0, np.int64)] * 8
    return np.flatnonzero(custom), InnerNodes(*joined)


def with_inner(
    inner: InnerNodes, columns: dict[str, Int], edges: Int, place: Int, keys: int, requests: int
) -> tuple[dict[str, Int], Int, Int, int, int]:
    """Put inner nodes behind the other nodes of their ranks.

    Args:
        inner: Nodes of custom collectives.
        columns: Columns of the engine's node table, ascending rank.
        edges: int64 [2, E]: dependent node and predecessor, positions in the engine's order.
        place: Engine's position of each node of the workload.
        keys: Number of keys of sends and receives.
        requests: Number of keys of rendezvous.

    Returns:
        The same with inner nodes: columns, edges, the owner of each node (-1 for those outside), keys, requests.
    """
    outer, owner = len(columns["rank"]), place[inner.owner]
    rank = columns["rank"][owner]
    sends, messages = inner.kind == KIND_SEND, inner.kind != KIND_TIMED
    source, target = np.where(sends, rank, inner.peer), np.where(sends, inner.peer, rank)
    pairs = np.stack([inner.tag, source, target])[:, messages]
    _, request = np.unique(pairs, axis=1, return_inverse=True)
    _, key = np.unique(np.concatenate([pairs, inner.bytes[None, messages]]), axis=1, return_inverse=True)
    own = {
        "rank": rank, "slot": np.full(len(rank), CLASSES - 1), "kind": inner.kind, "cost": inner.cost,
        "plan": np.full(len(rank), NONE), "peer": inner.peer, "bytes": inner.bytes, "request": np.full(len(rank), NONE),
    }  # fmt: skip
    own["plan"][messages], own["request"][messages] = keys + key.reshape(-1), requests + request.reshape(-1)
    order = np.lexsort((np.concatenate([np.zeros(outer, np.int64), owner + 1]), np.append(columns["rank"], rank)))
    at = np.empty(len(order), np.int64)
    at[order] = np.arange(len(order))
    joined = {name: np.append(values, own[name])[order] for name, values in columns.items()}
    owners = np.append(np.full(outer, NONE, np.int64), at[owner])[order]
    all_edges = at[np.concatenate([edges, np.stack([inner.dep, inner.pred]) + outer], axis=1)]
    collectives = np.unique(at[owner])
    rows = np.flatnonzero(owners != NONE)
    joined["plan"][collectives] = rows[np.searchsorted(owners[rows], collectives, side="left")]
    joined["peer"][collectives] = rows[np.searchsorted(owners[rows], collectives, side="right") - 1] + 1
    keys += int(key.max(initial=-1)) + 1
    return joined, all_edges, owners, keys, requests + int(request.max(initial=-1)) + 1


def _read(config: AstraConfig, prefix: str, place: int) -> tuple[Int, ...]:
    """Return kind, cost, peer and bytes of the nodes of one algorithm rank, and its edges."""
    path = config.resolve(f"{prefix}.{place}.et")
    try:
        trace = read(path)
    except InputError as err:
        raise SimulationError(f"custom collective: {err}") from err
    types = trace.integers("type", 0)
    unknown = ~np.isin(types, list(_KINDS))
    if unknown.any():
        node = trace.nodes["id"][int(np.argmax(unknown))]
        raise SimulationError(f"{path}: node {node}: expected a send, a receive or compute, got another type")
    kind = np.zeros(len(types), np.int64)
    for number, what in _KINDS.items():
        kind[types == number] = what
    peer = np.where(kind == KIND_SEND, trace.integers("comm_dst"), trace.integers("comm_src"))
    peer = np.where(kind == KIND_TIMED, -1, peer)
    size = np.where(kind == KIND_TIMED, -1, trace.integers("comm_size"))
    lacking = (kind != KIND_TIMED) & ((peer < 0) | (size < 1))
    if lacking.any():
        node = trace.nodes["id"][int(np.argmax(lacking))]
        raise SimulationError(f"{path}: node {node}: expected comm_size and a peer of a send or receive, got none")
    graph = build_graph(trace)
    if len(graph.dangling):
        raise SimulationError(f"{path}: expected its dependencies in the trace, got one on node {graph.dangling[0][1]}")
    dep = np.repeat(np.arange(len(types), dtype=np.int64), np.diff(graph.indptr))
    return kind, np.maximum(trace.integers("duration_ns", 0), 1), peer, size, dep, graph.preds
