"""The nodes of all ranks as ASTRA-sim's feeder reads them: which slot they take, for how long, and whom they meet.

Shape letters: N nodes of all ranks, R ranks, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.astra.state import (
    KIND_COLLECTIVE,
    KIND_CUSTOM,
    KIND_INVALID,
    KIND_MEMORY,
    KIND_METADATA,
    KIND_RECV,
    KIND_SEND,
    KIND_TIMED,
)
from chakra_et.errors import SimulationError
from chakra_et.io import attribute_values
from chakra_et.ir import CommType, NodeType
from chakra_et.sim.astra.custom import InnerNodes, inner_nodes
from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.phases import collective_phases
from chakra_et.sim.astra.tables import PlanTable, bus_ns
from chakra_et.sim.workload import Workload
from chakra_et.specs import AstraConfig

__all__ = ["NodeFacts", "read_nodes"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_TAGS = 500_000_000  # tags are taken modulo this


@dataclass(slots=True, eq=False)
class NodeFacts:
    """Facts of nodes, in the workload's order; the names are those of the engine's table of nodes.

    Attributes:
        slot: int64 [N]: 0 CPU, 1 GPU, 2 communication, 3 receive, 4 none.
        kind: int64 [N].
        cost: int64 [N], ns.
        plan: int64 [N]: plan of a collective, key of a send or receive, -1.
        peer: int64 [N]: other rank of a send or receive.
        bytes: int64 [N]: size of a send or receive.
        request: int64 [N]: key of its rendezvous.
        keys: Number of keys of sends and receives.
        requests: Number of keys of rendezvous.
        compute: bool [N]: GPU compute, which isn't exposed communication.
        inner: Nodes inside custom collectives, None if there are none.
        table: The plans.
    """

    slot: Int
    kind: Int
    cost: Int
    plan: Int
    peer: Int
    bytes: Int
    request: Int
    keys: int
    requests: int
    compute: Bool
    inner: InnerNodes | None
    table: PlanTable


def read_nodes(workload: Workload, config: AstraConfig, options: AstraOptions) -> NodeFacts:
    """Read the nodes.

    Raises:
        SimulationError: A node that ASTRA-sim can't run; the text says which one, and why.
    """
    types = workload.integers("type", 0)
    host = workload.flags("is_cpu_op")
    collective = types == NodeType.COMM_COLL_NODE
    sent = (types == NodeType.COMM_SEND_NODE) | (types == NodeType.COMM_RECV_NODE)
    kind = np.full(len(types), KIND_TIMED, np.int64)
    slot = np.where(host, 0, np.where(types == NodeType.COMP_NODE, 1, 2)).astype(np.int64)
    slot[types == NodeType.COMM_RECV_NODE] = 3
    # On the wire, times are whole us; that is what ASTRA-sim reads.
    cost = np.maximum((workload.integers("duration_ns", 0) + 500) // 1000 * 1000, 1)
    fill = np.full(len(types), -1, np.int64)
    facts = NodeFacts(
        slot=slot, kind=kind, cost=cost, plan=fill, peer=fill.copy(), bytes=fill.copy(), request=fill.copy(),
        keys=0, requests=0, compute=(types == NodeType.COMP_NODE) & ~host, inner=None,
        table=PlanTable(config, options, [tuple(range(config.npus))]),
    )  # fmt: skip
    if config.replay_only:
        return facts
    _refuse_host_communication(workload, collective & host)
    for number, what in ((NodeType.INVALID_NODE, KIND_INVALID), (NodeType.METADATA_NODE, KIND_METADATA)):
        kind[types == number], slot[types == number] = what, 4
    if config.roofline:
        _roofline(workload, config, facts)
    _memory(workload, config, facts, (types == NodeType.MEM_LOAD_NODE) | (types == NodeType.MEM_STORE_NODE))
    if collective.any():
        _collectives(workload, config, options, facts, collective)
    if sent.any():
        _messages(workload, config, facts, sent, types)
    return facts


def _refuse_host_communication(workload: Workload, wrong: Bool) -> None:
    if wrong.any():
        raise _error(workload, wrong, "expected a collective on the device, got is_cpu_op true; repair the trace")


def _error(workload: Workload, wrong: Bool, text: str) -> SimulationError:
    """Return an error about the first of some nodes."""
    rank, node, name = workload.place(int(np.argmax(wrong)))
    more = int(wrong.sum()) - 1
    rest = f" ({more} more like it)" if more else ""
    return SimulationError(f"rank {rank}: node {node} ('{name}'): {text}{rest}")


def _roofline(workload: Workload, config: AstraConfig, facts: NodeFacts) -> None:
    """Time of compute from operations and bytes: floor(num_ops / min(bandwidth * intensity, peak))."""
    present = workload.present("num_ops") & workload.present("tensor_size")
    lacking = facts.compute & ~present
    if lacking.any():
        raise _error(workload, lacking, "expected num_ops and tensor_size, as roofline-enabled asks for, got none")
    operations, size = workload.integers("num_ops", 0), workload.integers("tensor_size", 0)
    empty = facts.compute & (size == 0)
    facts.kind[empty], facts.slot[empty], facts.compute[empty] = KIND_INVALID, 4, False
    rows = np.flatnonzero(facts.compute)
    idle = facts.compute & (operations <= 0)
    if idle.any():
        raise _error(workload, idle, "expected num_ops above 0, as roofline-enabled asks for, got 0")
    intensity = operations[rows] / size[rows]
    rate = np.minimum(config.local_mem_bw * 1e9 * intensity, config.peak_perf * 1e12)
    if (rate <= 0).any():
        raise SimulationError("expected peak-perf and local-mem-bw above 0 in the system file, as roofline needs them")
    facts.cost[rows] = (operations[rows] / rate * 1e9).astype(np.int64)


def _memory(workload: Workload, config: AstraConfig, facts: NodeFacts, rows: Bool) -> None:
    if not rows.any():
        return
    if config.memory_type == "NO_MEMORY_EXPANSION":
        raise _error(workload, rows, "expected no memory nodes, as the memory file says NO_MEMORY_EXPANSION, got one")
    lacking = rows & ~workload.present("tensor_size")
    if lacking.any():
        raise _error(workload, lacking, "expected tensor_size of a memory node, got none")
    if config.remote_mem_bw < 1:
        raise SimulationError("expected remote-mem-bw of 1 GB/s or more in the memory file, got less")
    size = workload.integers("tensor_size", 0)[rows]
    facts.kind[rows] = KIND_MEMORY
    facts.cost[rows] = config.remote_mem_latency + size // config.remote_mem_bw


def _collectives(workload: Workload, config: AstraConfig, options: AstraOptions, facts: NodeFacts, rows: Bool) -> None:
    kinds = workload.integers("comm_type")
    simulated = rows & (kinds != CommType.BROADCAST)
    sizes = workload.integers("comm_size")
    for name, values in (("comm_type", kinds), ("comm_size", sizes)):
        lacking = simulated & (values < 0)
        if lacking.any():
            raise _error(workload, lacking, f"expected {name} of a collective, got none")
    facts.kind[simulated] = KIND_COLLECTIVE
    groups, numbers = _groups(workload, config, simulated, facts.table)
    involved, masks = _involved(workload, simulated)
    involved[numbers != 0] = 0  # only collectives outside of groups can leave dimensions out
    at = np.flatnonzero(simulated)
    _check_members(workload, facts, groups, numbers, at)
    custom, inner = inner_nodes(workload, config, at, groups[at], facts.table.groups)
    if len(custom):
        facts.inner, facts.kind[at[custom]] = inner, KIND_CUSTOM
        at = np.delete(at, custom)
    table = np.stack([kinds[at], sizes[at], groups[at], involved[at]], axis=1)
    distinct, first, inverse = np.unique(table, axis=0, return_index=True, return_inverse=True)
    delay = bus_ns(config, options)
    plans = []
    for (kind, size, group, mask), row in zip(distinct.tolist(), first, strict=True):
        members = None if group == 0 else facts.table.groups[group]
        try:
            chunks, phases = collective_phases(config, _comm_type(kind), size, members, masks[mask], delay)
        except SimulationError as err:
            rank, node, name = workload.place(int(at[row]))
            raise SimulationError(f"rank {rank}: node {node} ('{name}'): {err}") from err
        if any(phase.reduced for phase in phases) and config.local_mem_bw <= 0:
            raise SimulationError("expected local-mem-bw above 0 in the system file, as reductions need it, got none")
        plans.append(facts.table.add(group, chunks, phases))
    facts.plan[at] = np.array(plans, np.int64)[inverse.reshape(-1)]


def _comm_type(number: int) -> CommType:
    try:
        return CommType(number)
    except ValueError as err:
        raise SimulationError(f"expected a comm_type from 0 to {max(CommType)}, got {number}") from err


def _groups(workload: Workload, config: AstraConfig, rows: Bool, table: PlanTable) -> tuple[Int, Int]:
    """Return the group of each node (0: the whole job), and the id that its trace calls it; add groups to the table."""
    names = workload.series("pg_name").fill_null("")
    groups, ids = np.zeros(len(names), np.int64), np.zeros(len(names), np.int64)
    known = dict(config.groups)
    for text in names.filter(pl.Series(rows)).unique(maintain_order=True).to_list():
        here = rows & (names == text).to_numpy()
        if text in ("", "0"):
            continue
        if not text.isascii() or not text.isdecimal():
            raise _error(workload, here, f"expected a whole number as pg_name, got '{text}'; ASTRA-sim knows no other")
        number = int(text)
        if number not in known:
            have = f"groups {sorted(known)}" if known else "no group"
            raise _error(workload, here, f"expected group {number} in the group file, got {have}; add it (--groups)")
        ids[here] = number
        if len(known[number]) < config.npus:
            groups[here] = len(table.groups)
            table.groups.append(known[number])
    return groups, ids


def _involved(workload: Workload, rows: Bool) -> tuple[Int, list[tuple[bool, ...]]]:
    """Return which mask of dimensions each node has, and the masks; without one, all dimensions take part."""
    number: Int = np.zeros(workload.node_count, np.int64)
    masks: list[tuple[bool, ...]] = [()]
    known: dict[int, dict[int, list[bool]]] = {}
    for index, trace in enumerate(workload.traces):
        found = known.get(id(trace.nodes))
        if found is None:
            found = known[id(trace.nodes)] = attribute_values(trace, "involved_dim")
        for row, values in found.items():
            mask = tuple(bool(value) for value in values)
            if mask not in masks:
                masks.append(mask)
            number[workload.offsets[index] + row] = masks.index(mask)
    return np.where(rows, number, 0), masks


def _check_members(workload: Workload, facts: NodeFacts, groups: Int, numbers: Int, rows: Int) -> None:
    owners, groups = workload.owners, groups[rows]
    for group in np.unique(groups):
        members = np.array(facts.table.groups[group], np.int64)
        strangers = np.zeros(workload.node_count, bool)
        here = rows[groups == group]
        strangers[here] = ~np.isin(workload.ranks[owners[here]], members)
        if strangers.any():
            number = numbers[np.argmax(strangers)]
            raise _error(workload, strangers, f"expected a member of group {number}, got a rank that isn't in its list")


def _messages(workload: Workload, config: AstraConfig, facts: NodeFacts, rows: Bool, types: Int) -> None:
    sends = types == NodeType.COMM_SEND_NODE
    owner = workload.ranks[workload.owners]
    source = np.where(sends, owner, workload.integers("comm_src"))
    target = np.where(sends, workload.integers("comm_dst"), owner)
    tag, size = workload.integers("comm_tag"), workload.integers("comm_size")
    outside = (np.minimum(source, target) < 0) | (np.maximum(source, target) >= config.npus)
    for name, lacking in (
        ("comm_dst", rows & sends & ~workload.present("comm_dst")),
        ("comm_src", rows & ~sends & ~workload.present("comm_src")),
        ("comm_tag", rows & ~workload.present("comm_tag")),
        ("comm_size of 1 byte or more", rows & (size < 1)),
        ("a rank of the network as its peer", rows & outside),
        ("another rank as its peer", rows & (source == target)),
    ):  # fmt: skip
        if lacking.any():
            raise _error(workload, lacking, f"expected {name} of a send or receive, got none; ASTRA-sim can't run it")
    at = np.flatnonzero(rows)
    facts.kind[at] = np.where(sends[at], KIND_SEND, KIND_RECV)
    facts.peer[at] = np.where(sends[at], target[at], source[at])
    facts.bytes[at] = size[at]
    pair = np.stack([tag[at] % _TAGS, source[at], target[at]], axis=1)
    distinct, requests = np.unique(pair, axis=0, return_inverse=True)
    facts.request[at], facts.requests = requests.reshape(-1), len(distinct)
    sized = np.stack([facts.request[at], size[at]], axis=1)
    distinct, keys = np.unique(sized, axis=0, return_inverse=True)
    facts.plan[at], facts.keys = keys.reshape(-1), len(distinct)
