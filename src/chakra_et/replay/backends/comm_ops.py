"""How each kind of communication is started on one of torch's process groups.

The methods of `torch.distributed.ProcessGroup` are what `torch.distributed`'s own functions, and DDP's reducer, call: a
replay then makes the same `c10d` operators with the same arguments as were recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from chakra_et.replay.communications.call import COALESCED, CommCall

__all__ = ["Start", "bind", "has_average", "reduce_op_of", "transportable"]

Tensors = Sequence[Any]
Start = Callable[[Tensors, Tensors], Any]

_REDUCE_OPS = {
    "sum": "SUM", "avg": "AVG", "product": "PRODUCT", "min": "MIN", "max": "MAX", "band": "BAND", "bor": "BOR",
    "bxor": "BXOR", "premul_sum": "SUM",
}  # fmt: skip
_OPTIONS = {
    "allreduce_": "AllreduceOptions",
    "allreduce_coalesced_": "AllreduceCoalescedOptions",
    "broadcast_": "BroadcastOptions",
    "reduce_": "ReduceOptions",
    "reduce_scatter_": "ReduceScatterOptions",
    "_reduce_scatter_base_": "ReduceScatterOptions",
    "reduce_scatter_tensor_coalesced_": "ReduceScatterOptions",
    "gather_": "GatherOptions",
    "scatter_": "ScatterOptions",
    "alltoall_": "AllToAllOptions",
    "alltoall_base_": "AllToAllOptions",
    "barrier": "BarrierOptions",
}
# gloo's element types; others travel as bytes where nothing is computed with them.
_GLOO_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
                torch.int64)  # fmt: skip


def reduce_op_of(name: str, *, averages: bool) -> str:
    """Return which reduce operation a backend is given for a recorded one.

    Args:
        name: The recorded one.
        averages: True if the backend has ``avg``, which gloo got late.
    """
    if name not in _REDUCE_OPS or name == "premul_sum" or (name == "avg" and not averages):
        return "sum"
    return name


def has_average(group: Any) -> bool:
    """Return whether a group can average; all its ranks must ask."""
    options = c10d.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.AVG
    try:
        group.allreduce([torch.zeros(1)], options).wait()
    except (RuntimeError, ValueError):
        return False
    return True


def bind(group: Any, call: CommCall, *, rank: int, averages: bool, device: torch.device) -> Start:
    """Return what starts a call: takes its input and output tensors, returns torch's `Work`.

    Args:
        group: Torch's process group.
        call: The communication.
        rank: Global rank of this process.
        averages: True if the group's backend has ``avg``.
        device: Where the tensors are.
    """
    options = _options(call, rank, averages, device)
    kind = call.kind
    if kind in COALESCED:
        return _bind_coalesced(group, call, options)
    if kind in ("send", "recv_", "recv_any_source_"):
        return _bind_point(group, call)
    is_root = call.root == rank
    starts: dict[str, Start] = {
        "allreduce_": lambda given, taken: group.allreduce(given, options),
        "broadcast_": lambda given, taken: group.broadcast(given, options),
        "reduce_": lambda given, taken: group.reduce(given, options),
        "allgather_": lambda given, taken: group.allgather([taken], given, options),
        "_allgather_base_": lambda given, taken: group._allgather_base(taken[0], given[0], options),
        "reduce_scatter_": lambda given, taken: group.reduce_scatter(taken, [given], options),
        "_reduce_scatter_base_": lambda given, taken: group._reduce_scatter_base(taken[0], given[0], options),
        "gather_": lambda given, taken: group.gather([taken] if is_root else [], given, options),
        "scatter_": lambda given, taken: group.scatter(taken, [given] if is_root else [], options),
        "alltoall_": lambda given, taken: group.alltoall(taken, given, options),
        "barrier": lambda given, taken: group.barrier(options),
    }
    if kind == "alltoall_base_":
        out_splits, in_splits = list(call.out_splits), list(call.in_splits)
        return lambda given, taken: group.alltoall_base(taken[0], given[0], out_splits, in_splits, options)
    return starts[kind]


def _bind_coalesced(group: Any, call: CommCall, options: Any) -> Start:
    members = len(call.ranks)

    def by_rank(taken: Tensors) -> list[list[Any]]:
        each = len(taken) // members
        return [list(taken[place * each : (place + 1) * each]) for place in range(members)]

    return {
        "allreduce_coalesced_": lambda given, taken: group.allreduce_coalesced(given, options),
        "allgather_coalesced_": lambda given, taken: group.allgather_coalesced(by_rank(taken), given, options),
        "allgather_into_tensor_coalesced_": lambda given, taken: group.allgather_into_tensor_coalesced(
            taken, given, options
        ),
        "reduce_scatter_tensor_coalesced_": lambda given, taken: group.reduce_scatter_tensor_coalesced(
            taken, given, options
        ),
    }[call.kind]


def _bind_point(group: Any, call: CommCall) -> Start:
    peer = call.ranks.index(call.peer) if call.peer is not None else -1
    if call.kind == "send":
        return lambda given, taken: group.send(given, peer, call.tag)
    if call.kind == "recv_any_source_":
        return lambda given, taken: group.recv_anysource(taken, call.tag)
    return lambda given, taken: group.recv(taken, peer, call.tag)


def _options(call: CommCall, rank: int, averages: bool, device: torch.device) -> Any:
    options = getattr(c10d, _OPTIONS.get(call.kind, "AllgatherOptions"))()
    if call.reduce_op:
        options.reduceOp = getattr(dist.ReduceOp, _REDUCE_OPS[reduce_op_of(call.reduce_op, averages=averages)])
    if call.root is not None:
        options.rootRank = call.ranks.index(call.root)
    if hasattr(options, "asyncOp"):
        options.asyncOp = call.asynchronous
    if call.kind == "barrier" and device.type == "cuda":
        options.device_ids = [device.index or 0]
    return options


def transportable(tensor: Any, *, backend: str, reduces: bool) -> Any:
    """Return a tensor that a backend can send: the same memory, as bytes where gloo doesn't know the element type.

    Args:
        tensor: The tensor.
        backend: Name of the backend.
        reduces: True if it is computed with: then only types of one byte can be taken for bytes.
    """
    known = backend != "gloo" or tensor.dtype in _GLOO_DTYPES
    if known or not tensor.is_contiguous() or (reduces and tensor.element_size() != 1):
        return tensor
    return tensor.unsqueeze(-1).view(torch.uint8)
