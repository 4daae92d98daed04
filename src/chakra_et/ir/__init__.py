"""The data model: columns, traces, trace sets, process groups, graphs. It knows no file format."""

from __future__ import annotations

from chakra_et.ir.builder import TraceBuilder
from chakra_et.ir.columns import COLUMNS, Column
from chakra_et.ir.enums import CommType, NodeType
from chakra_et.ir.graph import Graph, build_graph
from chakra_et.ir.process_group import ProcessGroup
from chakra_et.ir.trace import Trace, TraceMetadata
from chakra_et.ir.trace_set import TraceSet

__all__ = [
    "COLUMNS",
    "Column",
    "CommType",
    "Graph",
    "NodeType",
    "ProcessGroup",
    "Trace",
    "TraceBuilder",
    "TraceMetadata",
    "TraceSet",
    "build_graph",
]
