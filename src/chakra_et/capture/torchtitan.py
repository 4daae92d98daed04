"""Record a run with TorchTitan: its profiler, with ours inside."""

from __future__ import annotations

import os
from dataclasses import dataclass

from torchtitan.tools.profiler import Profiler

from chakra_et.capture.torch import Recorder, record

__all__ = ["ChakraProfiler"]


class ChakraProfiler(Profiler):
    """TorchTitan's profiler, but that what it records is a Chakra capture.

    All of its configuration means what it means there: ``enable_profiling``, ``profile_freq`` (the window ends with
    that step), ``profiler_warmup``, ``profiler_active``, ``save_traces_folder``. There is one window.

    Example:
        config.profiler = ChakraProfiler.Config(enable_profiling=True, profile_freq=20)
    """

    @dataclass(kw_only=True, slots=True)
    class Config(Profiler.Config):
        """The configuration.

        Attributes:
            stacks, memory, index_ranges, anonymous: As of `chakra_et.capture.torch.record`.
        """

        stacks: bool = False
        memory: bool = False
        index_ranges: bool = False
        anonymous: bool = False

    def build_torch_profiler(self, *, global_step: int, base_folder: str, leaf_folder: str) -> Recorder | None:
        """Return the recorder that TorchTitan steps and closes, or None if profiling is off."""
        config = self._config
        if not config.enable_profiling:
            return None
        warmup, active = config.profiler_warmup, config.profiler_active
        return record(
            os.path.join(base_folder, config.save_traces_folder, leaf_folder),
            wait=max(config.profile_freq - warmup - active, 0),
            warmup=warmup,
            active=active,
            stacks=config.stacks,
            memory=config.memory,
            index_ranges=config.index_ranges,
            anonymous=config.anonymous,
        )
