"""The files of a fake capture."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch

from chakra_et.atomic import replace_file
from chakra_et.capture.fake.log import Log
from chakra_et.capture.fake.options import FakeOptions, FakeRank
from chakra_et.capture.fake.window import Window
from chakra_et.capture.fake.writer import execution_trace
from chakra_et.capture.files import CaptureFiles, write_manifest

__all__ = ["write_capture"]


def write_capture(
    log: Log, found: FakeRank, groups: list[dict[str, Any]], options: FakeOptions, window: Window
) -> tuple[Path, ...]:
    """Write the execution trace and the manifest of one rank.

    Args:
        log: The records.
        found: What was captured.
        groups: Process groups as PyTorch's records.
        options: How it was captured.
        window: Which steps were recorded.

    Returns:
        The files.

    Raises:
        OutputError: One can't be written.
    """
    files = CaptureFiles(Path(options.out), found.rank)
    header = {
        "family": "compiled",
        "rank": found.rank,
        "world_size": options.world_size,
        "device": options.device,
    }
    device = "cpu" if options.device == "cpu" else f"{options.device}:{found.rank % options.local_size()}"
    replace_file(files.host, execution_trace(log, groups=groups, header=header, device=device))
    record = {
        "chakra_capture": 1,
        "fake": json.loads(options.to_text()),
        "rank": found.rank,
        "world_size": options.world_size,
        "process_groups": groups,
        "devices": [{"type": options.device, "name": "fake"}],
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
        "window": {
            "first_step": min(options.wait, window.steps),
            "steps": max(window.steps - options.wait, 0),
            "ended_by": "window" if window.is_over else "exit",
        },
        "operators": found.operators,
        "communications": found.communications,
        "peers": list(found.peers),
        "warnings": [f"{text} ({count} times)" if count > 1 else text for text, count in found.warnings.items()],
        "files": [files.host.name],
    }
    # How it was captured is told without the user's folder.
    record["fake"].pop("out")
    write_manifest(files.manifest, record)
    return files.host, files.manifest
