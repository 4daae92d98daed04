"""Graph exports are read back by networkx, or by eye."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import polars as pl
import pytest

from chakra_et.errors import OutputError
from chakra_et.ir import NodeType, Trace, TraceBuilder, TraceSet
from chakra_et.reports.dot import MOST_NODES, export_dot, export_graphml

HOSTILE = 'say "<hi>" & \\ bye\x00\n\u2028]]>'


def small() -> TraceSet:
    builder = TraceBuilder(rank=3)
    builder.add(HOSTILE, NodeType.COMP_NODE, id=7, start_ns=5, duration_ns=2)
    builder.add("reduce", NodeType.COMM_COLL_NODE, id=9, sync_deps=[7], ctrl_deps=[7, 100])
    builder.add("step", NodeType.METADATA_NODE, id=11)
    return TraceSet((builder.build(),))


def test_graphml_reads_back(tmp_path: Path) -> None:
    (path,) = export_graphml(small(), tmp_path / "out")
    assert path == tmp_path / "out" / "trace.3.graphml"
    graph = nx.read_graphml(path, force_multigraph=True)
    assert graph.nodes["7"] == {
        "name": 'say "<hi>" & \\ bye   ]]>',
        "type": "COMP_NODE",
        "start_ns": 5,
        "duration_ns": 2,
    }
    assert sorted((a, b, data["kind"]) for a, b, data in graph.edges(data=True)) == [
        ("7", "9", "ctrl"),
        ("7", "9", "sync"),
    ]


def test_dot_text(tmp_path: Path) -> None:
    (path,) = export_dot(small(), tmp_path)
    assert path.read_text(encoding="utf-8").splitlines() == [
        "digraph trace {",
        "  rankdir=LR;",
        '  7 [label="7: say \\"<hi>\\" & \\\\ bye   ]]>" shape=box];',
        '  9 [label="9: reduce" shape=ellipse];',
        '  11 [label="11: step" shape=note];',
        "  7 -> 9 [color=gray40];",
        "  7 -> 9 [color=blue];",
        "}",
    ]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    export_dot(small(), tmp_path)
    with pytest.raises(OutputError, match="expected a new file"):
        export_dot(small(), tmp_path)
    assert len(export_dot(small(), tmp_path, force=True)) == 1


def test_too_many_nodes(tmp_path: Path) -> None:
    base = small().traces[0].nodes[:1]
    many = pl.concat([base] * (MOST_NODES + 1)).with_columns(
        pl.Series("id", np.arange(MOST_NODES + 1, dtype=np.uint64))
    )
    with pytest.raises(OutputError, match=f"expected at most {MOST_NODES} nodes for a drawing, got {MOST_NODES + 1}"):
        export_dot(TraceSet((Trace(many),)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
