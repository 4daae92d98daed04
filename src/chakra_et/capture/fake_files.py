"""The files of a fake capture."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from chakra_et.atomic import replace_file
from chakra_et.capture.fake_groups import World
from chakra_et.capture.fake_log import Log
from chakra_et.capture.fake_writer import execution_trace
from chakra_et.capture.files import CaptureFiles, write_manifest

if TYPE_CHECKING:
    from chakra_et.capture.fake import FakeOptions

__all__ = ["write_capture"]


def write_capture(
    log: Log, world: World, groups: list[dict[str, Any]], options: FakeOptions, steps: int
) -> tuple[Path, ...]:
    """Write the execution trace and the manifest of one rank.

    Args:
        log: The records.
        world: The job.
        groups: Process groups as PyTorch's records.
        options: How it was captured.
        steps: Optimizer steps that the program took.

    Returns:
        The files.

    Raises:
        OutputError: One can't be written.
    """
    files = CaptureFiles(Path(options.out), world.rank)
    header = {
        "family": "compiled",
        "rank": world.rank,
        "world_size": world.world_size,
        "device": options.device,
    }
    number = world.rank % min(options.ranks_per_server, world.world_size)
    device = "cpu" if options.device == "cpu" else f"{options.device}:{number}"
    replace_file(files.host, execution_trace(log, groups=groups, header=header, device=device))
    record = {
        "chakra_capture": 1,
        "rank": world.rank,
        "world_size": world.world_size,
        "fake": True,
        "family": "compiled",
        "process_groups": groups,
        "devices": [{"type": options.device, "name": "fake"}],
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "window": {"first_step": options.wait, "steps": max(steps - options.wait, 0), "ended_by": "window"},
        "routing": options.routing,
        "warnings": [f"{text} ({count} times)" if count > 1 else text for text, count in log.warnings.items()],
        "files": [files.host.name],
    }
    write_manifest(files.manifest, record)
    return files.host, files.manifest
