"""Files from messages and back, through protobuf's own parser."""

from __future__ import annotations

import numpy as np

from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io.et import delimited, et_chunks, message_spans, parse_et


def file_of(*messages):
    """Return an `.et` file's content; messages or their bytes."""
    raw = [message if isinstance(message, bytes) else message.SerializeToString() for message in messages]
    return b"".join(delimited(message) for message in raw)


def messages_of(data):
    """Return metadata and nodes of a file."""
    spans = message_spans(np.frombuffer(data, np.uint8), "test").tolist()
    first, *rest = [data[start:end] for start, end in spans]
    return [proto.GlobalMetadata.FromString(first), *(proto.Node.FromString(raw) for raw in rest)]


def written(trace):
    """Return a trace's messages after writing."""
    return messages_of(b"".join(et_chunks(trace)))


def read_nodes(*nodes, metadata=None, path="trace.et"):
    """Return the trace of a file with these nodes; without `metadata`, one that others wrote."""
    first = proto.GlobalMetadata(version="1.0.0") if metadata is None else metadata
    return parse_et(file_of(first, *nodes), path)
