"""Running a program under pretence, a rank after the other, and recording what it would run."""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.utils._device
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from chakra_et.capture.fake.device import Relabel, pretend_device
from chakra_et.capture.fake.files import write_capture
from chakra_et.capture.fake.groups import World, environment_of, local_environment
from chakra_et.capture.fake.log import Log, Op
from chakra_et.capture.fake.mode import Recorder
from chakra_et.capture.fake.options import FakeOptions, FakeRank, Ranks, Routing, run_roles
from chakra_et.capture.fake.patches import patched_libraries
from chakra_et.capture.fake.pipeline import pretend_stages
from chakra_et.capture.fake.streams import Streams
from chakra_et.capture.fake.values import Values
from chakra_et.capture.fake.window import Window, WindowOver
from chakra_et.errors import InputError

__all__ = ["record_fake", "run_rank"]

_FEW_COLLECTIONS = (200_000, 50, 50)


def record_fake(
    function: Callable[[], Any],
    out: str | Path,
    *,
    world_size: int = 1,
    ranks: Ranks = "roles",
    device: str = "cuda",
    wait: int = 1,
    active: int = 1,
    routing: Routing = "balanced",
    ranks_per_server: int = 8,
) -> tuple[FakeRank, ...]:
    """Record what a function would run on some ranks of a job, without running it.

    The function is called once for each rank, with the variables that torchrun sets. It does what it does in the job:
    it may call ``init_process_group`` for any backend, use ``cuda`` devices, and so on. The call ends when the window
    does.

    Args:
        function: Builds the model and takes optimizer steps.
        out: Folder for the files, which `chakra convert` takes.
        world_size: Ranks of the job.
        ranks: Global ranks to record; ``roles``: rank 0, and the ranks that it exchanges messages with, and those that
            these do, so that each stage of a pipeline is there.
        device: Device that the trace is of, ``cuda`` or ``cpu``.
        wait: Optimizer steps before the window.
        active: Optimizer steps in the window.
        routing: How tokens choose experts, ``balanced`` or ``zipf``.
        ranks_per_server: Ranks that share a server.

    Returns:
        What was recorded, a rank each.

    Raises:
        InputError: An option is out of its range, or the program asks for what can't be had without values.

    Example:
        >>> def train():
        ...     model = torch.nn.Linear(4096, 4096, device="cuda")
        ...     optimizer = torch.optim.AdamW(model.parameters())
        ...     for _ in range(2):
        ...         model(torch.randn(512, 4096, device="cuda")).square().mean().backward()
        ...         optimizer.step()
        >>> [recorded] = record_fake(train, tempfile.mkdtemp())
        >>> recorded.operators > 10, recorded.communications
        (True, 0)
    """
    options = FakeOptions(str(out), world_size, device, wait, active, routing, ranks_per_server)
    # It keeps what it finds in torch.cuda when it is imported: that must not be ours, once the program is over.
    import_module("torch._dynamo.device_interface")
    with tempfile.TemporaryDirectory() as mailbox:
        return run_roles(ranks, options, lambda rank: run_rank(function, rank, options, mailbox=Path(mailbox)))


def run_rank(function: Callable[[], Any], rank: int, options: FakeOptions, *, mailbox: Path | None = None) -> FakeRank:
    """Record what a function would run on one rank, and write the files.

    Args:
        function: Builds the model and takes optimizer steps.
        rank: Global rank.
        options: How to capture.
        mailbox: Folder in which stages of a pipeline leave shapes for the next.

    Raises:
        InputError: The program asks for what can't be had without values.
    """
    log = Log()
    world = World(rank, options.world_size, log)
    window = Window(log, wait=options.wait, active=options.active)
    environment = environment_of(rank, options.world_size, options.local_size())
    collections, default = gc.get_threshold(), torch.utils._device.CURRENT_DEVICE
    dtype = torch.get_default_dtype()
    gc.set_threshold(*_FEW_COLLECTIONS)
    try:
        with _pretending(log, world, options, mailbox), local_environment(environment), window:
            with contextlib.suppress(WindowOver):
                function()
            groups = world.groups()
        if not window.is_over:
            log.warnings[window.shortfall()] += 1
        found = _summary(log, world, groups, options)
        return replace(found, files=write_capture(log, found, groups, options, window))
    except (DataDependentOutputException, DynamicOutputShapeException) as err:
        raise InputError(
            f"rank {rank}: expected a program whose shapes don't depend on values, got {err.func}; "
            "leave it out under a fake capture, or give it a fixed size"
        ) from err
    finally:
        gc.set_threshold(*collections)
        torch.set_default_dtype(dtype)
        if default != torch.utils._device.CURRENT_DEVICE:
            torch.set_default_device(default)
        world.close()
        log.close()


@contextlib.contextmanager
def _pretending(log: Log, world: World, options: FakeOptions, mailbox: Path | None) -> Any:
    values = Values(options.routing, log.warnings)
    streams = Streams(log)
    local_size = options.local_size()
    local_rank = world.rank % local_size
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.intercept())
        stack.enter_context(pretend_device(options.device, local_rank, local_size, streams))
        stack.enter_context(patched_libraries(world, log, values, foreach=options.device != "cpu"))
        stack.enter_context(pretend_stages(mailbox, log.warnings))
        stack.enter_context(Relabel())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(Recorder(log, world, values))
        yield


def _summary(log: Log, world: World, groups: list[dict[str, Any]], options: FakeOptions) -> FakeRank:
    members = {group["pg_name"]: group["ranks"] for group in groups}
    communications = [record for record in log.records if isinstance(record, Op) and record.note is not None]
    peers: set[int] = set()
    for record in communications:
        name = record.function._schema.name
        group = members.get((record.note or {})["pg"], [])
        if name in ("c10d::send", "c10d::recv_"):
            peers.add(group[record.args[2]])
        elif options.routing != "balanced" and (
            name == "c10d::alltoall_" or (name == "c10d::alltoall_base_" and record.args[4])
        ):
            peers.update(group)
    operators = sum(isinstance(record, Op) for record in log.records)
    others = tuple(sorted(peers - {world.rank}))
    return FakeRank(world.rank, operators, len(communications), others, dict(log.warnings))
