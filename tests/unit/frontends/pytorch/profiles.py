"""Small Kineto profiles and execution traces made by hand."""

import json

from chakra_et.frontends.pytorch.parse_et import parse_et
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto


def event(cat, name, ts, dur, *, tid=1, pid=1, ph="X", **args):
    """One trace event; keys of arguments may hold underscores for spaces."""
    return {"ph": ph, "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name, ts, dur, *, rf=0, ext=-1, tid=1, **args):
    """An operator of the host."""
    ids = {"Record function id": rf} if rf else {}
    return event("cpu_op", name, ts, dur, tid=tid, **{"External id": ext}, **ids, **args)


def call(name, ts, dur, correlation, *, tid=1):
    """A runtime call."""
    return event("cuda_runtime", name, ts, dur, tid=tid, correlation=correlation)


def kernel(name, ts, dur, correlation, *, stream=7, device=0, **args):
    """A kernel."""
    return event(
        "kernel", name, ts, dur, pid=device, tid=stream, device=device, stream=stream, correlation=correlation, **args
    )


def profile(events, **header):
    """Parse these events as a profile."""
    return parse_kineto("p.json", json.dumps({"schemaVersion": 1, **header, "traceEvents": events}).encode())


def node(number, name, *, parent=1, rf=0, tid=1, inputs=None, outputs=None, **attrs):
    """One node of an execution trace of schema 1.0.2 or later."""
    empty = {"values": [], "shapes": [], "types": []}
    values = {"rf_id": rf, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": tid, "fw_tid": 0, "op_schema": ""} | attrs
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": empty | (inputs or {}),
        "outputs": empty | (outputs or {}),
        "attrs": [
            {"name": key, "type": "string" if isinstance(value, str) else "uint64", "value": value}
            for key, value in values.items()
        ],
    }


def host_trace(nodes, schema="1.1.1-chakra.0.0.4", **header):
    """Parse these nodes as an execution trace."""
    return parse_et("h.json", json.dumps({"schema": schema, "pid": 1, **header, "nodes": nodes}).encode())
