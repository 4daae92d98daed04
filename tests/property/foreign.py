"""Chakra messages as others may write them: every attribute kind, any order, doc strings, fields of newer schemas."""

from __future__ import annotations

from hypothesis import strategies as st

from chakra_et.io._proto import et_def_pb2 as proto
from chakra_et.io._table import ATTRIBUTES_OWN
from chakra_et.io.et import delimited
from chakra_et.testing.strategies import texts

NAMES = [entry.name for entry in ATTRIBUTES_OWN] + ["scope", "involved_dim", "start_time_micros", ""]
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 5)
VALUES = {
    "double": st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float),
    "float": st.floats(width=32, allow_nan=False) | SMALL.map(float),
    "int32": I32 | SMALL,
    "int64": I64 | SMALL,
    "uint32": U32 | SMALL,
    "uint64": U64 | SMALL,
    "sint32": I32 | SMALL,
    "sint64": I64 | SMALL,
    "fixed32": U32 | SMALL,
    "fixed64": U64 | SMALL,
    "sfixed32": I32 | SMALL,
    "sfixed64": I64 | SMALL,
    "bool": st.booleans(),
    "string": texts(),
    "bytes": st.binary(max_size=6),
}
MICROS = SMALL | U64
UNKNOWN = st.sampled_from([b"\x58\x05", b"\x5a\x02hi", b"\x61" + bytes(8), b"\xfd\x7f\x01\x02\x03\x04"])


@st.composite
def attributes(draw):
    kind = draw(st.sampled_from(sorted(VALUES)))
    made = proto.AttributeProto(name=draw(st.sampled_from(NAMES)), doc_string=draw(st.just("") | texts()))
    shape = draw(st.sampled_from(["val", "val", "list", "nothing"]))
    if shape == "val":
        setattr(made, f"{kind}_val", draw(VALUES[kind]))
    elif shape == "list":
        values = getattr(made, f"{kind}_list")
        values.SetInParent()
        values.values.extend(draw(st.lists(VALUES[kind], max_size=3)))
    return made


def times():
    """Attributes as traces made here have them, so that agreeing and disagreeing microseconds both come up."""
    value = st.integers(0, 20_000)
    return st.builds(
        lambda name, ns: proto.AttributeProto(name=name, int64_val=ns),
        st.sampled_from(["start_time_ns", "duration_ns"]),
        value,
    )


@st.composite
def nodes(draw):
    """Return serialized nodes, sometimes with fields that the schema doesn't know."""
    made = proto.Node(
        id=draw(SMALL | U64),
        name=draw(texts()),
        type=draw(st.integers(0, 10) | I32),
        ctrl_deps=draw(st.lists(SMALL | U64, max_size=3)),
        data_deps=draw(st.lists(SMALL | U64, max_size=3)),
        start_time_micros=draw(MICROS),
        duration_micros=draw(MICROS),
        attr=draw(st.lists(attributes() | times(), max_size=6)),
    )
    for field in ("inputs", "outputs"):
        if draw(st.booleans()):
            info = proto.IOInfo(values=draw(texts()), shapes=draw(texts()), types=draw(texts()))
            raw = info.SerializeToString() + draw(st.just(b"") | UNKNOWN)
            getattr(made, field).ParseFromString(raw)
            getattr(made, field).SetInParent()
    return made.SerializeToString() + draw(st.just(b"") | UNKNOWN)


@st.composite
def metadata(draw):
    made = proto.GlobalMetadata(version=draw(st.sampled_from(["1.0.0", "0.0.4", ""])))
    made.attr.extend(draw(st.lists(attributes(), max_size=2)))
    for name, values in (("rank", VALUES["int64"]), ("trace_family", texts()), ("process_groups", texts())):
        if draw(st.booleans()):
            value = draw(values)
            made.attr.add(name=name, **{"int64_val" if isinstance(value, int) else "string_val": value})
    if len(made.attr) == 1 and not made.attr[0].name:
        made.version = "1.0.0"  # nothing tells one nameless attribute from a node's name
    return made.SerializeToString()


def files():
    """Return whole files: metadata, then nodes."""
    return st.builds(
        lambda first, rest: b"".join(delimited(message) for message in [first, *rest]),
        metadata(),
        st.lists(nodes(), max_size=4),
    )
