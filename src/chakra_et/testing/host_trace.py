"""Write the host side of a run as PyTorch's observer does (schema 1.1.1): operators and tensors, no times."""

from __future__ import annotations

import json
from typing import Any

from chakra_et.testing import instructions as ins
from chakra_et.testing.communications import CALLS, ELEMENT_BYTES
from chakra_et.testing.records import HostEvent, RankRun

__all__ = ["make_host_trace"]

Node = dict[str, Any]
_TYPES = {"float": "float", "BFloat16": "c10::BFloat16", "Half": "c10::Half", "Float": "float", "Long": "long int"}
_BYTES = {"float": 4, **ELEMENT_BYTES}
_SCHEMAS = {
    "aten::linear": "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    "aten::gelu": "aten::gelu(Tensor self, *, str approximate='none') -> Tensor",
}


def make_host_trace(program: ins.Program, run: RankRun) -> dict[str, Any]:
    """Return the execution trace of one rank, ready for `json.dump`.

    Nodes come in the order in which operators end, children before parents, as the observer writes them. A node's
    ``rf_id`` equals "Record function id" of the same range in the profile. Node ids are even, tensor ids odd.

    Args:
        program: What ran.
        run: What happened.
    """
    threads = [thread.tid for thread in program.threads if thread.rank == run.rank]
    roots = {tid: 2 * (index + 2) for index, tid in enumerate(threads)}
    base = 2 * (len(threads) + 3)
    groups = [
        {
            "pg_name": group.name,
            "pg_desc": group.description,
            "backend_config": "cuda:nccl",
            "ranks": [] if len(group.ranks) == program.ranks else list(group.ranks),
            "group_size": len(group.ranks),
            "group_count": len(program.groups),
        }
        for group in program.groups
    ]
    nodes = [
        _node(root, "[pytorch|profiler|execution_trace|thread]", 2, rf_id=0, scope=7, tid=index + 1)
        for index, root in enumerate(roots.values())
    ]
    init = _node(base - 2, "## process_group:init ##", roots[threads[0]], rf_id=0, scope=7, tid=1)
    init["inputs"] = {"values": [json.dumps(groups)], "shapes": [[]], "types": ["String"], "strides": [[]]}
    nodes.append(init)
    forwards = _forward_nodes(run, base)
    ranges = [event for event in run.host if event.category in ("cpu_op", "user_annotation")]
    # Parents have smaller numbers: of those that end together, the child comes first.
    for event in sorted(ranges, key=lambda event: (event.end_ns, -event.number)):
        nodes.append(_range_node(event, base, roots, run.rank, forwards))
    nodes.append(_node(2, "[pytorch|profiler|execution_trace|process]", 2, rf_id=0, scope=7, tid=0))
    return {
        "schema": "1.1.1-chakra.0.0.4",
        "pid": next(thread.pid for thread in program.threads if thread.rank == run.rank),
        "time": "2026-01-01 00:00:00",
        "start_ts": run.start_ns // 1_000_000,
        "nodes": nodes,
        "finish_ts": run.end_ns // 1_000_000,
    }


def _forward_nodes(run: RankRun, base: int) -> dict[int, int]:
    """Node id of the forward operator, by autograd's sequence number."""
    return {
        event.source.sequence: base + 2 * event.number
        for event in run.host
        if isinstance(event.source, ins.Begin) and event.source.sequence >= 0 and not event.source.forward_tid
    }


def _range_node(event: HostEvent, base: int, roots: dict[int, int], rank: int, forwards: dict[int, int]) -> Node:
    parent = event.parent
    while parent is not None and parent.category == "python_function":
        parent = parent.parent
    begin = event.source
    backward = isinstance(begin, ins.Begin) and begin.forward_tid > 0
    tids = list(roots)
    node = _node(
        base + 2 * event.number,
        event.name,
        roots[event.tid] if parent is None else base + 2 * parent.number,
        rf_id=event.number,
        scope=7 if event.category == "user_annotation" else int(backward),
        tid=tids.index(event.tid) + 1,
        seq_id=begin.sequence if isinstance(begin, ins.Begin) else -1,
        fw_tid=tids.index(begin.forward_tid) + 1 if isinstance(begin, ins.Begin) and backward else 0,
        fw_parent=forwards.get(begin.sequence, 0) if isinstance(begin, ins.Begin) and backward else 0,
        op_schema=_SCHEMAS.get(event.name, ""),
    )
    if isinstance(begin, ins.Begin):
        _add_values(node, begin, rank)
    return node


def _add_values(node: Node, begin: ins.Begin, rank: int) -> None:
    """Give a node its tensors, and a communication its arguments in c10d's order."""
    device = f"cuda:{rank % 8}"
    if begin.comm is None:
        listed = any(begin.name == calls.op for calls in CALLS.values())
        node["inputs"] = _tensors(begin.inputs, device, listed=listed)
        node["outputs"] = _tensors(begin.outputs, device, listed=listed)
        if listed:
            for side in ("inputs", "outputs"):
                _append(node[side], "<Object>", "Object")
        return
    comm, stride = begin.comm, 1
    members = comm.group.ranks
    if len(members) > 1:
        stride = members[1] - members[0]
    waits = comm.collective == "wait"
    inputs = _tensors(begin.inputs, device, listed=True) if begin.inputs else _no_values()
    point_to_point = comm.collective in ("send", "recv")
    _append(inputs, [comm.seq, point_to_point], "Tuple[Int,Bool]")
    _append(inputs, ["", ""] if waits else [comm.group.name, comm.group.description], "Tuple[String,String]")
    _append(inputs, members.index(rank if comm.peer < 0 else comm.peer), "Int")
    _append(inputs, comm.collective, "String")
    _append(inputs, [], "GenericList[]")
    _append(inputs, [], "GenericList[]")
    _append(inputs, -1 if waits else members[0], "Int")
    _append(inputs, -1 if waits else stride, "Int")
    _append(inputs, len(members), "Int")
    node["inputs"] = inputs
    node["outputs"] = _tensors(begin.outputs, device, listed=True) if begin.outputs else _no_values()
    node["attrs"] += [
        {"name": "collective_name", "type": "string", "value": comm.collective},
        {"name": "dtype", "type": "string", "value": comm.dtype},
        {"name": "in_msg_nelems", "type": "uint64", "value": comm.in_nelems},
        {"name": "out_msg_nelems", "type": "uint64", "value": comm.out_nelems},
        {"name": "in_split_size", "type": "string", "value": "[]"},
        {"name": "out_split_size", "type": "string", "value": "[]"},
    ]
    if not waits:
        node["attrs"] += [
            {"name": "global_rank_start", "type": "uint64", "value": members[0]},
            {"name": "global_rank_stride", "type": "uint64", "value": stride},
            {"name": "pg_name", "type": "string", "value": comm.group.name},
            {"name": "pg_desc", "type": "string", "value": comm.group.description},
        ]
    node["attrs"].append({"name": "pg_size", "type": "uint64", "value": len(members)})


def _no_values() -> Node:
    return {"values": [], "shapes": [], "types": [], "strides": []}


def _append(values: Node, value: Any, kind: str) -> None:
    shape: list[Any] = [[] for _ in value] if isinstance(value, list) else []
    for key, entry in (("values", value), ("shapes", shape), ("types", kind), ("strides", shape)):
        values[key].append(entry)


def _tensors(tensors: tuple[ins.Tensor, ...], device: str, *, listed: bool) -> Node:
    """Tensors as ``[tensor, storage, offset, elements, bytes each, device]``, or lists of one for list arguments."""
    values = _no_values()
    for tensor in tensors:
        number = 2 * tensor.id + 1
        entry: list[Any] = [number, number + 1_000_000_001, 0, tensor.numel, _BYTES[tensor.dtype], device]
        kind = f"Tensor({_TYPES[tensor.dtype]})"
        values["values"].append([entry] if listed else entry)
        values["shapes"].append([[tensor.numel]] if listed else [tensor.numel])
        values["types"].append(f"GenericList[{kind}]" if listed else kind)
        values["strides"].append([[1]] if listed else [1])
    return values


def _node(
    number: int,
    name: str,
    parent: int,
    *,
    rf_id: int,
    scope: int,
    tid: int,
    seq_id: int = -1,
    fw_tid: int = 0,
    fw_parent: int = 0,
    op_schema: str = "",
) -> Node:
    attrs = [
        ("rf_id", "uint64", rf_id),
        ("fw_parent", "uint64", fw_parent),
        ("seq_id", "int64", seq_id),
        ("scope", "uint64", scope),
        ("tid", "uint64", tid),
        ("fw_tid", "uint64", fw_tid),
        ("op_schema", "string", op_schema),
        ("kernel_backend", "string", ""),
        ("kernel_file", "string", ""),
        ("tensor_range", "string", ""),
    ]
    return {
        "id": number,
        "name": name,
        "ctrl_deps": parent,
        "inputs": _no_values(),
        "outputs": _no_values(),
        "attrs": [{"name": key, "type": kind, "value": value} for key, kind, value in attrs],
    }
