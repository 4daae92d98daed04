"""DistributedDataParallel without results of communications.

Its reducer needs the result of each all-reduce, which a fake one doesn't have, and rebuilds its buckets after the first
step with tensors that must hold values. Here a communication hook in Python reduces buckets, and they are from the
start what they would be from the second step on: filled from the last parameter back, as gradients come. With
``find_unused_parameters``, they stay as they are.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from chakra_et.capture.patches import replaced

__all__ = ["pretend_ddp"]

_MB = 1 << 20
# PyTorch's own, where the user gives none.
_BUCKET_MB, _FIRST_BYTES = 25, _MB


@contextlib.contextmanager
def pretend_ddp(warnings: Counter[str]) -> Iterator[None]:
    """Let DistributedDataParallel work while the context is open.

    Args:
        warnings: Counts what was left out.
    """
    kind = DistributedDataParallel
    init, register = kind.__init__, kind.register_comm_hook
    signature = inspect.signature(init)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs).arguments
        given.update(device_ids=None, output_device=None, init_sync=False)
        given.pop("self")
        cap = given.get("bucket_cap_mb")
        limits = [_FIRST_BYTES, _BUCKET_MB * _MB] if cap is None else [int(cap * _MB)]
        # Where parameters may stay unused, the reducer never rebuilds its buckets.
        stays = given.get("find_unused_parameters") and not given.get("static_graph")
        changes = {} if stays else {"_compute_bucket_assignment_by_size": _assignment(limits)}
        with replaced(dist, changes):
            init(self, **given)
        buckets = _Buckets(self.process_group)
        # A lambda, as the hook's annotations would be checked.
        register(self, None, lambda state, bucket: buckets.reduce(bucket))

    def refuse(self: Any, *_: Any, **__: Any) -> None:
        warnings["DistributedDataParallel.register_comm_hook: left out, buckets are all-reduced"] += 1

    with (
        replaced(kind, {"__init__": wrapped, "register_comm_hook": refuse}),
        replaced(dist.Reducer, {"_rebuild_buckets": lambda reducer: False}),
    ):
        yield


def _assignment(limits: list[int]) -> Any:
    """Return what assigns parameters to buckets as the reducer does once it has seen gradients come."""
    assign = dist._compute_bucket_assignment_by_size

    def assigned(tensors: Any, _: Any, sparse: Any = (), *__: Any, **___: Any) -> tuple[list[list[int]], list[int]]:
        backward = list(range(len(tensors)))[::-1]
        # With indices given, buckets come in the order of the tensors; the caller turns that order round.
        buckets, sizes = assign(list(tensors)[::-1], limits, list(sparse)[::-1], backward)
        return buckets[::-1], sizes[::-1]

    return assigned


class _Buckets:
    """All-reduces of one model's gradients, awaited at the end of its backward pass."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._works: list[Any] = []

    def reduce(self, bucket: Any) -> Any:
        """Reduce one bucket."""
        buffer = bucket.buffer()
        buffer.div_(self._group.size())
        if not self._works:
            torch.autograd.Variable._execution_engine.queue_callback(self._wait)
        self._works.append(dist.all_reduce(buffer, group=self._group, async_op=True))
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(buffer)
        return future

    def _wait(self) -> None:
        for work in self._works:
            work.wait()
        self._works.clear()
