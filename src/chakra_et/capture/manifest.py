"""The manifest: what was captured, of which job, with what, and how it ended."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import sys
from typing import Any

import torch
import torch.distributed as dist

from chakra_et.capture.groups import known_groups
from chakra_et.capture.options import CaptureOptions

__all__ = ["describe_job"]


def describe_job(options: CaptureOptions, rank: int, world_size: int) -> dict[str, Any]:
    """Return what a manifest says of the process and its job.

    Args:
        options: What is captured.
        rank: Global rank.
        world_size: Ranks of the job.

    Returns:
        Plain data: rank, world size, process groups, host (a hash, if the capture is anonymous), devices, versions.
    """
    host = socket.gethostname()
    if options.anonymous:
        host = hashlib.sha256(f"chakra-et {host}".encode()).hexdigest()[:16]
    return {
        "rank": rank,
        "world_size": world_size,
        "local_rank": _environment_number("LOCAL_RANK"),
        "process_groups": known_groups(),
        "host": host,
        "devices": _devices(),
        "versions": _versions(),
        "backend": dist.get_backend() if dist.is_available() and dist.is_initialized() else "",
    }


def _environment_number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _devices() -> list[dict[str, Any]]:
    """Return the accelerators that this process uses, or the processor."""
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        return [{"type": "cuda", "name": properties.name, "memory_bytes": properties.total_memory}]
    return [{"type": "cpu", "name": platform.machine(), "threads": torch.get_num_threads()}]


def _versions() -> dict[str, str]:
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "nccl": _nccl_version(),
        "system": f"{sys.platform} {platform.release()}",
    }
    return {name: str(value) for name, value in found.items() if value}


def _nccl_version() -> str:
    if not (torch.cuda.is_available() and dist.is_available() and dist.is_nccl_available()):
        return ""
    return ".".join(map(str, torch.cuda.nccl.version()))
