"""Capture before execution: what a job would run, on one CPU, without its devices, its other ranks and its memory.

    from chakra_et.capture.fake import record_fake
    record_fake(train, "out/", world_size=64)        # train() builds a model and takes some optimizer steps

The program runs under fake tensors (shapes without values) and PyTorch's fake process group; every operator that would
reach the device is recorded, with its tensors and the groups of communications. Nothing takes time, so durations are 0:
`chakra convert` adds operations and bytes, from which the simulator has times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakra_et.capture.fake.record import record_fake

__all__ = ["record_fake"]


def __getattr__(name: str) -> Any:
    # Options are read where there is no PyTorch.
    if name == "record_fake":
        from chakra_et.capture.fake.record import record_fake

        return record_fake
    raise AttributeError(f"module 'chakra_et.capture.fake' has no attribute '{name}'")
