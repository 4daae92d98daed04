"""Pipelines of ``torch.distributed.pipelining`` without their other stages.

Before its first step, a schedule lets stages vote whether they know the shapes of what they exchange, and else sends
those along the pipeline. Here nobody answers: the vote is this stage's own, and shapes go from the capture of one stage
to that of the next through a folder.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from chakra_et.capture.patches import after_import, replaced
from chakra_et.errors import InputError

__all__ = ["pretend_stages"]

_STAGES = "torch.distributed.pipelining.stage"


@contextlib.contextmanager
def pretend_stages(mailbox: Path | None, warnings: Counter[str]) -> Iterator[None]:
    """Answer for the other stages while the context is open.

    Args:
        mailbox: Folder for shapes that stages tell each other; None: they aren't kept.
        warnings: Counts what was assumed.
    """
    with contextlib.ExitStack() as stack:

        def patch(module: Any) -> None:
            kind = module.PipelineStage
            if hasattr(kind, "_warmup_forward_vote"):  # older versions exchange neither votes nor shapes like this
                stack.enter_context(replaced(kind, _Posts(module, mailbox, warnings).methods))

        stack.callback(after_import(_STAGES, patch))
        yield


class _Posts:
    def __init__(self, module: Any, mailbox: Path | None, warnings: Counter[str]) -> None:
        self._module, self._mailbox, self._warnings = module, mailbox, warnings
        self._latest: Any = None

        def vote(stage: Any, has_backward: bool, received_acc: Any = None) -> torch.Tensor:
            dynamic = module.InferenceMode.needs_dynamic(stage._user_meta, has_backward)
            with _disable_current_modes():
                return torch.tensor([0 if dynamic else 1], dtype=torch.int32)

        def result(stage: Any, received_result: Any = None) -> Any:
            return received_result if received_result is not None else vote(stage, True)

        def send(stage: Any, meta: Any, dst_stage: int) -> None:
            if dst_stage > stage.stage_index:
                self._latest = meta
                if mailbox is not None:
                    (mailbox / f"stage.{dst_stage}").write_bytes(pickle.dumps(meta))

        def receive(stage: Any, src_stage: int) -> Any:
            if src_stage > stage.stage_index:
                metas = module._derive_grad_metas(stage._stage_meta.outputs)
                return module._StageBackwardMeta(backward_metas=metas)
            return self._forward(stage.stage_index)

        self.methods = {
            "_warmup_forward_vote": vote,
            "_warmup_backward_result": result,
            "_recv_meta": receive,
            "_send_meta": send,
        }

    def _forward(self, stage: int) -> Any:
        path = self._mailbox / f"stage.{stage}" if self._mailbox is not None else None
        if path is not None and path.exists():
            return pickle.loads(path.read_bytes())
        if self._latest is not None:
            self._warnings["shapes that a pipeline stage receives: taken to be those that this rank sends"] += 1
            return self._latest
        raise InputError(
            f"pipeline stage {stage}: expected the shapes of its inputs, got none from the stage before; pass "
            "input_args and output_args to PipelineStage, or capture the ranks of earlier stages too"
        )
