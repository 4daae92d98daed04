"""Rules about ids, types, edges and attributes.

Shape letters: N nodes, E edges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from chakra_et._jit.cycles import components
from chakra_et.ir import Graph, NodeType, Trace, TraceSet, build_graph
from chakra_et.ir.arrays import string_bytes
from chakra_et.ir.columns import ATTRIBUTE_COLUMNS
from chakra_et.ir.graph import DEPENDENCY_COLUMNS, edge_list, positions
from chakra_et.units import format_name
from chakra_et.validation.findings import Hits

__all__ = ["check_attributes", "check_edges", "check_ids", "check_types"]

Int = npt.NDArray[np.int64]
_MOST_CYCLES = 20
# First bytes of the fields that hold a text, a float or a double in an attribute (field number << 3 | wire type).
_NOT_WHOLE = {b"\x19": "double", b"\x2d": "float", b"\xea\x01": "string", b"\xfa\x01": "bytes"}


def check_ids(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Ids are unique."""
    ids = trace.nodes["id"].to_numpy()
    again = ids[positions(ids, ids) != np.arange(len(ids))].tolist()
    yield Hits("id-unique", again, lambda k: f"expected unique ids, got {again[k]} more than once")


def check_types(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Every node has a type of the schema."""
    low, high = int(NodeType.METADATA_NODE), int(NodeType.COMM_COLL_NODE)
    types = trace.nodes["type"]
    bad = trace.nodes.filter(~types.is_between(low, high).fill_null(False)).select("id", "type").rows()
    yield Hits(
        "type-invalid",
        [row[0] for row in bad],
        lambda k: f"expected a node type from {low} to {high}, got {'none' if bad[k][1] is None else bad[k][1]}",
    )


def check_edges(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Edges lead to other nodes, and never around in a circle."""
    ids = trace.nodes["id"].to_numpy()
    for column in DEPENDENCY_COLUMNS:
        edges = edge_list(trace, column)
        yield _edge_hits("edge-dangling", ids, edges.node, edges.dep_id, edges.dep < 0, f"{column} that are nodes")
        yield _edge_hits(
            "edge-self", ids, edges.node, edges.dep_id, edges.dep == edges.node, f"{column} on other nodes"
        )
    graph = build_graph(trace)
    cycles, count = _cycles(graph)
    names = trace.nodes["name"].fill_null("")
    texts = []
    for cycle in cycles:
        path = [f"{ids[node]} ('{format_name(names[int(node)])}')" for node in cycle[:8]]
        path += ["..."] if len(cycle) > 8 else []
        texts.append(f"expected an acyclic graph, got the cycle {' -> '.join([*path, str(ids[cycle[0]])])}")
    nodes = [int(ids[cycle[0]]) for cycle in cycles] + [None] * (count - len(cycles))
    yield Hits("edge-cycle", nodes, lambda k: texts[k] if k < len(texts) else "expected an acyclic graph, got a cycle")


def _edge_hits(
    rule: str,
    ids: npt.NDArray[np.uint64],
    node: Int,
    dep_id: npt.NDArray[np.uint64],
    mask: npt.NDArray[np.bool_],
    expected: str,
) -> Hits:
    nodes = ids[node[mask]].tolist()
    deps = dep_id[mask].tolist()
    return Hits(rule, nodes, lambda k: f"expected {expected}, got {deps[k]}")


def _cycles(graph: Graph) -> tuple[list[list[int]], int]:
    """Return one cycle of each of the first components that have any, and the number of such components."""
    component = components(graph.indptr, graph.preds)
    sizes = np.bincount(component, minlength=1)
    knots = np.flatnonzero(sizes > 1)
    first = {int(component[node]): node for node in reversed(np.flatnonzero(np.isin(component, knots[:_MOST_CYCLES])))}
    return [_cycle_from(graph, component, int(node)) for node in sorted(first.values())], len(knots)


def _cycle_from(graph: Graph, component: Int, node: int) -> list[int]:
    """Walk predecessors inside a component until a node comes again; return the circle in the order of its edges."""
    seen: dict[int, int] = {}
    path: list[int] = []
    while node not in seen:
        seen[node] = len(path)
        path.append(node)
        preds = graph.preds[graph.indptr[node] : graph.indptr[node + 1]]
        node = int(preds[component[preds] == component[node]][0])
    circle = path[seen[node] :][::-1]
    start = circle.index(min(circle))
    return circle[start:] + circle[:start]


def check_attributes(trace: Trace, rank: int, trace_set: TraceSet) -> Iterator[Hits]:
    """Attributes that programs read as whole numbers are whole numbers in the file."""
    if "attr" not in trace.nodes.columns:
        return
    offsets, data = string_bytes(trace.nodes["attr"])
    whole = [column.name for column in ATTRIBUTE_COLUMNS if "string" not in column.wire and "list" not in column.wire]
    names = b"|".join(bytes([0x0A, len(name)]) + name.encode() for name in whole)
    pattern = re.compile(b"(" + names + b")(" + b"|".join(map(re.escape, _NOT_WHOLE)) + b")", re.DOTALL)
    found = [(match.start(), match.group(1)[2:].decode(), match.group(2)) for match in pattern.finditer(data.tobytes())]
    rows = np.searchsorted(offsets, [start for start, _, _ in found], side="right") - 1
    nodes = trace.nodes["id"].gather(rows).to_list()
    yield Hits(
        "attr-kind",
        nodes,
        lambda k: f"expected attribute '{found[k][1]}' of an integer or bool kind, got {_NOT_WHOLE[found[k][2]]}",
    )
