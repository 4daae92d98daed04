"""Process groups that nobody answers: PyTorch's fake backend, and what its calls don't tell.

The dispatcher sees every ``c10d`` call, but not what is reduced, nor which call a work handle belongs to: methods of
`ProcessGroup` and `Work` are wrapped for that while a fake capture runs.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from chakra_et.capture.fake.log import Log
from chakra_et.capture.groups import known_groups, reduce_op_name
from chakra_et.capture.patches import replaced

__all__ = ["World", "environment_of", "local_environment", "replaced_everywhere"]

_METHODS = (
    "allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced", "broadcast", "allgather", "_allgather_base",
    "allgather_coalesced", "allgather_into_tensor_coalesced", "all_gather_single", "all_gather_single_coalesced",
    "gather", "scatter", "alltoall", "alltoall_base", "all_to_all_single", "barrier", "send", "recv", "recv_anysource",
)  # fmt: skip
_serials = itertools.count(1)


def environment_of(rank: int, world_size: int, local: int) -> dict[str, str]:
    """Return the variables that torchrun sets, for one rank.

    Args:
        rank: Global rank.
        world_size: Ranks of the job.
        local: Ranks on a server.
    """
    values = {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": rank % local,
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": rank // local,
        "GROUP_WORLD_SIZE": -(-world_size // local),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world_size,
        "ROLE_NAME": "default",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0,
        "TORCHELASTIC_RUN_ID": "none",
    }
    return {name: str(value) for name, value in values.items()}


@contextlib.contextmanager
def replaced_everywhere(owner: Any, changes: Mapping[str, Any]) -> Iterator[None]:
    """Give functions of a module other values for a while, also in the modules that imported them by name.

    Args:
        owner: The module that has them.
        changes: The other values, by the functions' names; those that the module lacks are left out.
    """
    pairs = [(getattr(owner, name), value) for name, value in changes.items() if hasattr(owner, name)]
    _swap(pairs)
    try:
        yield
    finally:
        # Modules that were imported meanwhile have the other values by name.
        _swap([(value, before) for before, value in pairs])


def _swap(pairs: list[tuple[Any, Any]]) -> None:
    known = {id(before): after for before, after in pairs}
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            names = vars(module)
            for name in [name for name, value in names.items() if id(value) in known]:
                names[name] = known[id(names[name])]


class World:
    """The job as one rank sees it.

    Args:
        rank: Global rank.
        world_size: Ranks of the job.
        log: Where waits are recorded.
    """

    def __init__(self, rank: int, world_size: int, log: Log) -> None:
        self.rank, self.world_size, self._log = rank, world_size, log
        self.serial = next(_serials)
        self.reduce_op: str | None = None
        self._works: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        # Python makes a new object for each look at a work handle unless one is alive: the caller gets the same.
        self._latest: tuple[int, Any] | None = None
        self._real_init = dist.init_process_group
        self._real_new_group = dist.new_group
        self._real_destroy = dist.destroy_process_group
        self._gone: dict[str, dict[str, Any]] = {}

    def init(self, backend: Any = None, *args: Any, **kwargs: Any) -> None:
        """Stand in for ``init_process_group``: the fake backend, whatever was asked for."""
        from torch.testing._internal.distributed.fake_pg import FakeStore

        if dist.is_initialized():
            raise ValueError("trying to initialize the default process group twice!")
        with _disable_current_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._real_init("fake", rank=self.rank, world_size=self.world_size, store=FakeStore())

    def new_group(self, ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Stand in for ``new_group``."""
        with _disable_current_modes(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            listed = [int(rank) for rank in ranks] if ranks is not None else None
            return self._real_new_group(listed, group_desc=kwargs.get("group_desc"))

    def split_group(self, parent_pg: Any = None, split_ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Stand in for ``split_group``."""
        mine = None
        parent = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
        for ranks in split_ranks or ():
            members = [parent[int(rank)] for rank in ranks]
            group = self.new_group(members, group_desc=kwargs.get("group_desc"))
            mine = group if self.rank in members else mine
        return mine

    def destroy(self, group: Any = None) -> None:
        """Stand in for ``destroy_process_group``: the groups are remembered."""
        self._gone.update((one["pg_name"], one) for one in known_groups())
        self._real_destroy(group)

    def groups(self) -> list[dict[str, Any]]:
        """Return the process groups that this rank is in, or was in, as PyTorch's records."""
        return list({**self._gone, **{one["pg_name"]: one for one in known_groups()}}.values())

    def close(self) -> None:
        """Take the process groups down."""
        if dist.is_initialized():
            with contextlib.suppress(Exception):
                self._real_destroy()

    def issued(self, work: Any, number: int) -> None:
        """Remember which communication a work handle stands for."""
        handle = dist.Work.unbox(work)
        self._works[handle] = number
        self._latest = (number, handle)

    @contextlib.contextmanager
    def intercept(self) -> Iterator[None]:
        """Wrap what tells of communications."""
        with contextlib.ExitStack() as stack:
            methods = {name: self._keeping_op(getattr(dist.ProcessGroup, name)) for name in _METHODS
                       if hasattr(dist.ProcessGroup, name)}  # fmt: skip
            stack.enter_context(replaced(dist.ProcessGroup, methods))
            # Not all versions have a class of its own for what the fake backend returns.
            kinds: list[Any] = [dist.Work, getattr(torch._C._distributed_c10d, "FakeWork", None)]
            for kind in kinds:
                if "wait" in vars(kind or object):
                    stack.enter_context(replaced(kind, {"wait": self._noting_wait(kind.wait)}))
            functions: dict[str, Any] = {
                "init_process_group": self.init,
                "new_group": self.new_group,
                "split_group": self.split_group,
                "destroy_process_group": self.destroy,
                "is_nccl_available": lambda: True,
            }
            stack.enter_context(replaced_everywhere(dist.distributed_c10d, functions))
            yield

    def _keeping_op(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*args: Any, **kwargs: Any) -> Any:
            before = self.reduce_op
            self.reduce_op = reduce_op_name((*args, *kwargs.values()))
            try:
                return method(*args, **kwargs)
            finally:
                self.reduce_op = before

        return kept

    def _noting_wait(self, wait: Callable[..., Any]) -> Callable[..., Any]:
        def noted(work: Any, *args: Any, **kwargs: Any) -> Any:
            self._log.wait_for(self._works.get(work))
            return wait(work, *args, **kwargs)

        return noted


@contextlib.contextmanager
def local_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
