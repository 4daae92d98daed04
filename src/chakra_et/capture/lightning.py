"""Record a Lightning run: a callback for ``lightning`` and ``pytorch_lightning``, which is what NeMo 2 takes too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ModuleNotFoundError as missing:
    if missing.name != "lightning":
        raise
    from pytorch_lightning import Callback

from chakra_et.capture.torch import Recorder, record

__all__ = ["ChakraCallback"]


class ChakraCallback(Callback):
    """Records a window of training steps; a step is one of the optimizer's, whatever is accumulated for it.

    Args:
        out: Folder for the files.
        **options: As of `chakra_et.capture.torch.record`.

    Example:
        trainer = lightning.Trainer(callbacks=[ChakraCallback("out/", wait=10, warmup=2, active=1)])
    """

    def __init__(self, out: str | Path, **options: Any) -> None:
        self._out = out
        self._options = options
        self._recorder: Recorder | None = None
        self._steps = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin to count; by now, process groups are there."""
        self._steps = trainer.global_step
        self._recorder = record(self._out, **self._options)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End a step, if the optimizer has made one."""
        if self._recorder is not None and trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self._recorder.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop, and wait for the files."""
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Write what was recorded up to an error."""
        self._stop(exception)

    def _stop(self, error: BaseException | None = None) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.__exit__(type(error) if error is not None else None, error, None)
