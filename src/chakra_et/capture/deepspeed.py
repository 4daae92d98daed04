"""Record a run with DeepSpeed: its engine tells the steps."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from chakra_et.capture.torch import Recorder, record

__all__ = ["record_engine"]


def record_engine(engine: Any, out: str | Path, **options: Any) -> Recorder:
    """Record a window of an engine's steps; call it on every rank.

    A step ends where the engine's optimizer makes one, not at each micro-batch.

    Args:
        engine: What ``deepspeed.initialize`` returned first; its ``step`` is wrapped.
        out: Folder for the files.
        **options: As of `chakra_et.capture.torch.record`.

    Returns:
        The recorder; `Recorder.stop` at the end of the training waits for its files.

    Example:
        engine, *_ = deepspeed.initialize(model=model, config=config)
        with record_engine(engine, "out/", wait=10, warmup=2):
            train(engine)
    """
    recorder = record(out, **options)
    step = engine.step

    @functools.wraps(step)
    def counted(*args: Any, **kwargs: Any) -> Any:
        before = engine.global_steps
        result = step(*args, **kwargs)
        if engine.global_steps != before:
            recorder.step()
        return result

    engine.step = counted
    return recorder
