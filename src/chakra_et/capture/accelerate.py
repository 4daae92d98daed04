"""Record a run with Accelerate: what its ``Accelerator.profile`` takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from accelerate.utils import ProfileKwargs

from chakra_et.capture.torch import Recorder, record

__all__ = ["ChakraProfile"]


@dataclass
class ChakraProfile(ProfileKwargs):
    """A profile handler that records a window of steps.

    Attributes:
        out: Folder for the files.
        options: As of `chakra_et.capture.torch.record`.

    Accelerate takes it at ``profile``, not among the handlers that an ``Accelerator`` is made with.

    Example:
        with accelerator.profile(ChakraProfile(out="out/", options={"wait": 10, "warmup": 2})) as profiler:
            for batch in loader:
                train(batch)
                profiler.step()
    """

    out: str = "chakra-capture"
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Recorder:
        """Return the recorder that ``Accelerator.profile`` enters and the loop steps."""
        return record(self.out, **self.options)
