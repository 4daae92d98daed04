"""What a process knows of its job: rank, size, and the process groups that it is in."""

from __future__ import annotations

import os
from typing import Any

import torch.distributed as dist

__all__ = ["describe_group", "known_groups", "rank_and_size", "reduce_op_name"]


def rank_and_size() -> tuple[int, int]:
    """Return global rank and world size: the process group's, else the launcher's, else those of a single process."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else default


def known_groups() -> list[dict[str, Any]]:
    """Return the process groups that this rank is in, as PyTorch's records with all ranks listed."""
    if not (dist.is_available() and dist.is_initialized()):
        return []
    groups = dist.distributed_c10d._world.pg_group_ranks
    return [describe_group(group) for group in groups if group is not dist.GroupMember.NON_GROUP_MEMBER]


def describe_group(group: Any) -> dict[str, Any]:
    """Return a process group as PyTorch's record, with all ranks listed."""
    ranks = dist.get_process_group_ranks(group)
    return {
        "pg_name": group.group_name,
        "pg_desc": getattr(group, "group_desc", ""),
        "backend_config": str(dist.distributed_c10d._world.pg_backend_config.get(group, "")),
        "ranks": ranks,
        "group_size": len(ranks),
    }


def reduce_op_name(arguments: tuple[Any, ...]) -> str | None:
    """Return the reduce operator among the arguments of a process group's method, in the trace's words."""
    for argument in arguments:
        found = getattr(argument, "reduceOp", argument)
        if isinstance(found, dist.ReduceOp):
            found = found.op
        if isinstance(found, dist.ReduceOp.RedOpType):
            return str(found.name).lower()
    return None
