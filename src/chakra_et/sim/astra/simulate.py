"""`simulate_astra`: a workload on ASTRA-sim's machine, by ASTRA-sim's rules, to the tick.

Shape letters: N nodes of all ranks, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from chakra_et._jit.astra.state import (
    DOUBLE_BINARY_TREE,
    KIND_MEMORY,
    NONE,
    RING,
    STATUS_AGAIN,
    STATUS_DONE,
    STATUS_OPPOSED,
    Machine,
    make_records,
)
from chakra_et._jit.schedule import invert
from chakra_et.errors import SimulationError
from chakra_et.ir import TraceSet
from chakra_et.sim.astra.custom import with_inner
from chakra_et.sim.astra.failures import explain_mismatch, explain_opposed, explain_standstill
from chakra_et.sim.astra.machine import NodeTables, make_machine, run_machine
from chakra_et.sim.astra.nodes import NodeFacts, read_nodes
from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.totals import make_result
from chakra_et.sim.result import SimResult
from chakra_et.sim.workload import Workload, make_workload
from chakra_et.specs import AstraConfig

__all__ = ["check_ranks", "simulate_astra"]

Int = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]


def simulate_astra(
    traces: TraceSet,
    config: AstraConfig,
    *,
    options: AstraOptions | None = None,
    progress: Progress | None = None,
) -> SimResult:
    """Simulate by ASTRA-sim's rules: its issue order, collective algorithms, queues, and either of its networks.

    Args:
        traces: One trace a rank of the network, 0 .. R-1.
        config: Machine and algorithms.
        options: Backend, and the counterparts of ASTRA-sim's command line.
        progress: Called now and then with the number of nodes that have ended, and of all.

    Raises:
        SimulationError: Something that ASTRA-sim can't run, or would never end; the text names the cause.

    Example:
        >>> from chakra_et.ir import CommType, NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("ar", NodeType.COMM_COLL_NODE, comm_type=int(CommType.ALL_REDUCE), comm_size=1 << 20)
        >>> nodes = builder.build().nodes
        >>> from chakra_et.ir import Trace, TraceMetadata
        >>> job = TraceSet(tuple(Trace(nodes, metadata=TraceMetadata(rank=rank)) for rank in range(4)))
        >>> ring = AstraConfig(("Ring",), (4,), (50.0,), (500.0,), all_reduce=("ring",), splits=1, local_mem_bw=1600.0)
        >>> simulate_astra(job, ring).finish_ns
        33829
    """
    options = options or AstraOptions()
    check_ranks(traces, config, options)
    if list(traces.ranks) != sorted(traces.ranks):
        traces = replace(traces, traces=tuple(traces.trace(rank) for rank in sorted(traces.ranks)))
    result = None
    if options.fold == "auto" and _may_fold(traces, config, options):
        result = _simulate_one(traces, config, options, progress)
    return result or _simulate(traces, traces, config, options, progress)


def _simulate_one(
    traces: TraceSet, config: AstraConfig, options: AstraOptions, progress: Progress | None
) -> SimResult | None:
    """Simulate one rank for all, or return None: it can't stand for all, or all are needed to say why it can't end."""
    one = TraceSet(traces.traces[:1])
    facts = read_nodes(make_workload(one), config, options)
    if not _fold_holds(facts, config, options):
        return None
    try:
        return _simulate(one, traces, config, options, progress)
    except SimulationError:
        return None


def _simulate(
    simulated: TraceSet, traces: TraceSet, config: AstraConfig, options: AstraOptions, progress: Progress | None
) -> SimResult:
    """Simulate some ranks: all, or one that stands for all."""
    folded = len(simulated) < len(traces)
    workload = make_workload(simulated)
    facts = read_nodes(workload, config, options)
    order, count = _by_id(workload), workload.node_count
    tables = _node_tables(workload, facts, order, folded=folded)

    def run(solve: bool) -> tuple[Machine, int]:
        plans = facts.table.tables(folded=folded, solve=solve)
        machine = make_machine(tables, plans, config, options, folded=folded)
        return run_machine(machine, None if progress is None else lambda done: progress(done, count))

    machine, status = run(_may_solve(facts, config, options))
    if status == STATUS_AGAIN:
        machine, status = run(False)
    if status != STATUS_DONE:
        explain = explain_opposed if status == STATUS_OPPOSED else explain_mismatch
        raise explain(workload, machine, order)
    start, end = np.empty(count, np.int64), np.empty(count, np.int64)
    own = np.flatnonzero(machine.nodes.owner == NONE)
    start[order], end[order] = machine.state.start[own], machine.state.end[own]
    if (end < 0).any():
        raise explain_standstill(workload, machine, order)
    return make_result(
        workload, start, end, facts.compute, traces=traces, replay=config.replay_only, notes=_notes(config)
    )


def check_ranks(traces: TraceSet, config: AstraConfig, options: AstraOptions) -> None:
    """Check that there is one trace a rank of the network, and that the backend knows such a network.

    Raises:
        SimulationError: There are others, or the network has too many dimensions.
    """
    absent = sorted(set(range(config.npus)) - set(traces.ranks))
    if absent:
        raise SimulationError(
            f"expected the traces of {config.npus} ranks, as many as the network has, got none of rank "
            f"{', '.join(map(str, absent[:8]))}{', ...' if len(absent) > 8 else ''}; mirror them or change npus_count"
        )
    if len(traces) > config.npus:
        raise SimulationError(
            f"expected the traces of {config.npus} ranks, as many as the network has, got {len(traces)}; "
            "change npus_count"
        )
    if options.backend == "aware" and len(config.npus_count) > 1:
        raise SimulationError(
            f"expected a network of one dimension with the congestion-aware backend, got {len(config.npus_count)}; "
            "use --backend unaware, or simulate natively"
        )


def _may_fold(traces: TraceSet, config: AstraConfig, options: AstraOptions) -> bool:
    """True if all ranks have the same nodes, and nothing tells one rank from another."""
    if options.rendezvous or config.memory_type not in ("NO_MEMORY_EXPANSION", "PER_NPU_MEMORY_EXPANSION"):
        return False
    first = traces.traces[0].nodes
    return all(trace.nodes is first or trace.nodes.equals(first) for trace in traces)


def _fold_holds(facts: NodeFacts, config: AstraConfig, options: AstraOptions) -> bool:
    """True if all ranks do the same at the same time, and share no link that matters."""
    table = facts.table
    if len(table.groups) > 1 or facts.keys or facts.inner is not None:
        return False
    if not all(table.is_uniform(plan) for plan in range(len(table.plans))):
        return False
    if options.backend == "unaware" or config.topology[0] == "FullyConnected":
        return all(phase.algorithm != DOUBLE_BINARY_TREE for phase in table.phases)
    return all(phase.algorithm == RING for phase in table.phases)


def _may_solve(facts: NodeFacts, config: AstraConfig, options: AstraOptions) -> bool:
    """True if collectives may be computed without their messages.

    All or none: whose end comes first in a tick is not known then, and it would decide who is first at a memory that
    ranks share, or which of several chunks goes first.
    """
    shared = config.memory_type in ("PER_NODE_MEMORY_EXPANSION", "MEMORY_POOL")
    if shared and (facts.kind == KIND_MEMORY).any():
        return False
    return options.solve and facts.inner is None and facts.table.is_solvable


def _by_id(workload: Workload) -> Int:
    """Return positions in ascending id inside each rank: ASTRA-sim's order of issue."""
    ids, owners = workload.series("id").to_numpy(), workload.owners
    order = np.arange(len(ids), dtype=np.int64)
    within = owners[1:] == owners[:-1]
    if (ids[1:] > ids[:-1])[within].all():
        return order
    order = np.lexsort((ids, owners))
    same = (ids[order][1:] == ids[order][:-1]) & within
    if same.any():
        rank, node, name = workload.place(int(order[np.argmax(same)]))
        raise SimulationError(f"rank {rank}: node {node} ('{name}'): expected unique node ids, got this one twice")
    return order


def _node_tables(workload: Workload, facts: NodeFacts, order: Int, *, folded: bool) -> NodeTables:
    """Return the nodes in the engine's order: of each rank by ascending id, then those inside custom collectives."""
    count = len(order)
    owners = workload.owners if folded else workload.ranks[workload.owners]
    names = ("slot", "kind", "cost", "plan", "peer", "bytes", "request")
    columns = {name: getattr(facts, name) for name in names} | {"rank": owners}
    first = np.searchsorted(owners, np.arange(len(workload.ranks) + 1))
    if facts.inner is None and (order == np.arange(count)).all():
        succ_first, succs = invert(workload.indptr, workload.preds)
        nodes = make_records("nodes", count, owner=NONE, **columns)
        return NodeTables(nodes, np.diff(workload.indptr), first, succ_first, succs, facts.keys, facts.requests)
    columns = {name: values[order] for name, values in columns.items()}
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    edges = np.stack([place[np.repeat(np.arange(count), np.diff(workload.indptr))], place[workload.preds]])
    keys, requests, owner = facts.keys, facts.requests, np.full(count, NONE, np.int64)
    if facts.inner is not None:
        columns, edges, owner, keys, requests = with_inner(facts.inner, columns, edges, place, keys, requests)
        first = np.searchsorted(columns["rank"], np.arange(len(workload.ranks) + 1))
    missing = np.bincount(edges[0], minlength=len(owner))
    indptr = np.zeros(len(owner) + 1, np.int64)
    np.cumsum(missing, out=indptr[1:])
    succ_first, succs = invert(indptr, edges[1][np.argsort(edges[0], kind="stable")])
    missing[owner != NONE] += 1  # on the start of their collective
    nodes = make_records("nodes", len(owner), owner=owner, **columns)
    return NodeTables(nodes, missing, first, succ_first, succs, keys, requests)


def _notes(config: AstraConfig) -> tuple[str, ...]:
    return tuple(f"{key} changes nothing, as in ASTRA-sim" for key in config.ignored)
