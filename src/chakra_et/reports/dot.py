"""Export the graph of each rank as DOT or GraphML, for small traces and slices of big ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

import polars as pl

from chakra_et.errors import OutputError
from chakra_et.io._files import write_atomic
from chakra_et.ir import NodeType, Trace, TraceSet
from chakra_et.ir.graph import DEPENDENCY_COLUMNS, edge_list

__all__ = ["MOST_NODES", "dot_chunks", "export_dot", "export_graphml", "graphml_chunks"]

# Layout programs need minutes for more, and nobody can read the picture.
MOST_NODES = 20_000
_COLORS = {"ctrl": "gray40", "data": "black", "sync": "blue"}
_SHAPES = {"COMM": "ellipse", "MEM": "cylinder", "COMP": "box", "METADATA": "note", "INVALID": "octagon"}
_TYPE_NAMES = {int(kind): kind.name for kind in NodeType}
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'


def export_dot(trace_set: TraceSet, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write ``trace.<rank>.dot`` of every rank.

    Args:
        trace_set: The ranks.
        folder: Folder, made if it is absent.
        force: True to overwrite.

    Raises:
        OutputError: A rank has more than `MOST_NODES` nodes, or a file exists or can't be written.
    """
    return _export(trace_set, Path(folder), "dot", dot_chunks, force=force)


def export_graphml(trace_set: TraceSet, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write ``trace.<rank>.graphml`` of every rank; see `export_dot`."""
    return _export(trace_set, Path(folder), "graphml", graphml_chunks, force=force)


def _export(
    trace_set: TraceSet, folder: Path, suffix: str, chunks: Callable[[Trace], Iterator[bytes]], *, force: bool
) -> list[Path]:
    for rank, trace in zip(trace_set.ranks, trace_set, strict=True):
        if len(trace) > MOST_NODES:
            raise OutputError(
                f"rank {rank}: expected at most {MOST_NODES} nodes for a drawing, got {len(trace)}; "
                "cut out a part with `chakra slice`, or use the Perfetto export"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise OutputError(f"{folder}: expected a folder to write to, got an error: {err.strerror}") from err
    ranks = zip(trace_set.ranks, trace_set, strict=True)
    return [write_atomic(folder / f"trace.{rank}.{suffix}", chunks(trace), force=force) for rank, trace in ranks]


def _edges(trace: Trace) -> pl.DataFrame:
    """Return edges as ids: ``source``, ``target``, ``kind``; dangling ones are left out."""
    ids = trace.nodes["id"]
    parts = []
    for column in DEPENDENCY_COLUMNS:
        edges = edge_list(trace, column)
        known = edges.dep >= 0
        kind = pl.lit(column.removesuffix("_deps")).alias("kind")
        part = pl.DataFrame({"source": ids.gather(edges.dep[known]), "target": ids.gather(edges.node[known])})
        parts.append(part.with_columns(kind))
    return pl.concat(parts).unique(maintain_order=True)


def _type_name(number: int | None) -> str:
    return _TYPE_NAMES.get(number or 0, "INVALID_NODE")


def dot_chunks(trace: Trace) -> Iterator[bytes]:
    """Yield a trace's graph in the DOT language.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder()
        >>> node = builder.add("a", NodeType.COMP_NODE)
        >>> print(b"".join(dot_chunks(builder.build())).decode().splitlines()[2])
          0 [label="0: a" shape=box];
    """
    yield b"digraph trace {\n  rankdir=LR;\n"
    columns = ["id", "name", "type"]
    for number, name, kind in trace.nodes.select(columns).iter_rows():
        text = "".join(char if char.isprintable() else " " for char in name or "")
        text = text.replace("\\", "\\\\").replace('"', '\\"')
        shape = _SHAPES[_type_name(kind).split("_")[0]]
        yield f'  {number} [label="{number}: {text}" shape={shape}];\n'.encode()
    for source, target, kind in _edges(trace).iter_rows():
        yield f"  {source} -> {target} [color={_COLORS[kind]}];\n".encode()
    yield b"}\n"


def graphml_chunks(trace: Trace) -> Iterator[bytes]:
    """Yield a trace's graph as GraphML: nodes with name, type, start_ns, duration_ns; edges with their kind."""
    yield _XML.encode()
    keys = (("name", "string"), ("type", "string"), ("start_ns", "long"), ("duration_ns", "long"))
    for key, kind in keys:
        yield f'<key id="{key}" for="node" attr.name="{key}" attr.type="{kind}"/>\n'.encode()
    yield b'<key id="kind" for="edge" attr.name="kind" attr.type="string"/>\n<graph edgedefault="directed">\n'
    for number, name, kind, start, duration in trace.nodes.select("id", *(key for key, _ in keys)).iter_rows():
        # XML 1.0 has no way to write most control characters.
        text = "".join(char if char.isprintable() else " " for char in name or "")
        data = {"name": escape(text), "type": _type_name(kind), "start_ns": start, "duration_ns": duration}
        inner = "".join(f'<data key="{key}">{value}</data>' for key, value in data.items() if value is not None)
        yield f"<node id={quoteattr(str(number))}>{inner}</node>\n".encode()
    for source, target, kind in _edges(trace).iter_rows():
        yield f'<edge source="{source}" target="{target}"><data key="kind">{kind}</data></edge>\n'.encode()
    yield b"</graph>\n</graphml>\n"
