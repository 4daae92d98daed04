"""What a process group is for, where its ranks are, and the bytes that NCCL's tests count for its communications."""

from __future__ import annotations

import re

from chakra_et.ir.process_group import ProcessGroup

__all__ = ["axis_of", "bus_factor", "full_bytes", "scope_of"]

# In order: the first that fits counts. Megatron writes TENSOR_MODEL_PARALLEL_GROUP, DeviceMesh mesh_tp, DeepSpeed and
# FSDP their own words; initials stand between separators.
_AXES: tuple[tuple[str, str], ...] = (
    # Gradients of experts, and with context parallelism: data parallel all the same.
    ("dp", r"data_?parallel"),
    ("ep", r"expert|(?:^|[^a-z])(?:moe_?)?e(?:t|d)?p(?:[^a-z]|$)"),
    ("cp", r"context|sequence|(?:^|[^a-z])(?:cp|sp|ulysses|ring_attn)(?:[^a-z]|$)"),
    ("tp", r"tensor|(?:^|[^a-z])(?:tp|mp)(?:[^a-z]|$)"),
    ("pp", r"pipe|embedding|(?:^|[^a-z])pp(?:[^a-z]|$)"),
    ("dp", r"data|replica|fsdp|shard|zero|(?:^|[^a-z])(?:dp|ddp|hsdp)(?:[^a-z]|$)"),
    ("world", r"default|world"),
)


def axis_of(group: ProcessGroup | None) -> str | None:
    """Return the axis of parallelism that a group's description (or name) tells: tp, pp, dp, ep, cp or world.

    PyTorch describes every group that the user doesn't as ``undefined``, which tells nothing.

    Example:
        >>> axis_of(ProcessGroup("12", (0, 1), 2, "TENSOR_MODEL_PARALLEL_GROUP")), axis_of(ProcessGroup("3", (0,), 1))
        ('tp', None)
    """
    if group is None:
        return None
    text = f"{group.description} {group.name}".lower()
    return next((axis for axis, pattern in _AXES if re.search(pattern, text)), None)


def scope_of(ranks: tuple[int, ...], server_size: int | None) -> str | None:
    """Return ``intra`` if all ranks share a server, ``inter`` if not, None if it can't be known.

    Example:
        >>> scope_of((0, 4), 8), scope_of((0, 8), 8), scope_of((0, 8), None)
        ('intra', 'inter', None)
    """
    if server_size is None or not ranks:
        return None
    return "intra" if len({rank // server_size for rank in ranks}) == 1 else "inter"


def bus_factor(kind: str, size: int) -> float:
    """Return what NCCL's tests multiply algorithm bandwidth with to compare it with a link's.

    All-reduce 2 (n - 1) / n; all-gather, reduce-scatter, all-to-all, gather and scatter (n - 1) / n; others 1 (NCCL
    tests, doc/PERFORMANCE.md).

    Example:
        >>> bus_factor("all_reduce", 8), bus_factor("all_gather", 4), bus_factor("send", 2)
        (1.75, 0.75, 1.0)
    """
    if size < 2:
        return 1.0
    if kind == "all_reduce":
        return 2 * (size - 1) / size
    if kind in ("all_gather", "reduce_scatter", "reduce_scatter_block", "all_to_all", "gather", "scatter"):
        return (size - 1) / size
    return 1.0


def full_bytes(kind: str, comm_size: int, size: int) -> int:
    """Return the bytes of the whole vector, from which NCCL's tests compute algorithm bandwidth.

    `comm_size` holds it already, but for an all-gather and a gather, where it is what each rank contributes.

    Example:
        >>> full_bytes("all_gather", 100, 4), full_bytes("all_reduce", 100, 4)
        (400, 100)
    """
    return comm_size * size if kind in ("all_gather", "gather") else comm_size
