"""Capture before execution: what a job would run, on one CPU, without its devices, its other ranks and its memory.

    from chakra_et.capture.fake import record_fake
    record_fake(train, "out/", world_size=64)        # train() builds a model and takes some optimizer steps

The program runs under fake tensors (shapes without values) and PyTorch's fake process group; every operator that would
reach the device is recorded, with its tensors and the groups of communications. Nothing takes time, so durations are 0:
`chakra convert` adds operations and bytes, from which the simulator has times.
"""

from __future__ import annotations

import contextlib
import gc
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from chakra_et.capture.fake_device import Relabel, pretend_device
from chakra_et.capture.fake_files import write_capture
from chakra_et.capture.fake_groups import World, environment_of, local_environment
from chakra_et.capture.fake_log import Log, Op
from chakra_et.capture.fake_mode import Recorder
from chakra_et.capture.fake_patches import patched_libraries
from chakra_et.capture.fake_pipeline import pretend_stages
from chakra_et.capture.fake_streams import Streams
from chakra_et.capture.fake_values import ROUTINGS, Routing, Values
from chakra_et.capture.fake_window import Window, WindowOver
from chakra_et.capture.groups import known_groups
from chakra_et.errors import InputError

__all__ = ["MOST_ROLES", "FakeOptions", "FakeRank", "record_fake", "run_rank", "same_roles"]

MOST_ROLES = 64
_FEW_COLLECTIONS = (200_000, 50, 50)


@dataclass(frozen=True, slots=True)
class FakeOptions:
    """How to capture without running.

    Attributes:
        out: Folder for ``host.<rank>.json.gz`` and ``manifest.<rank>.json``.
        world_size: Ranks of the job.
        device: Device that the trace is of, ``cuda`` or ``cpu``.
        wait: Optimizer steps before the window: by the second one, optimizers have their state, and FSDP its buffers.
        active: Optimizer steps that are recorded.
        routing: How tokens choose experts: ``balanced``, or ``zipf`` (the first expert gets most).
        ranks_per_server: Ranks that share a server, for ``LOCAL_RANK``.

    Raises:
        InputError: An option is out of its range.
    """

    out: str
    world_size: int = 1
    device: str = "cuda"
    wait: int = 1
    active: int = 1
    routing: Routing = "balanced"
    ranks_per_server: int = 8

    def __post_init__(self) -> None:
        for name, least in (("world_size", 1), ("wait", 0), ("active", 1), ("ranks_per_server", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name}: expected a whole number, {least} or more, got {value!r}")
        if self.device not in ("cuda", "cpu"):
            raise InputError(f"device: expected cuda or cpu, got {self.device!r}")
        if self.routing not in ROUTINGS:
            raise InputError(f"routing: expected {' or '.join(ROUTINGS)}, got {self.routing!r}")


@dataclass(frozen=True, slots=True)
class FakeRank:
    """What was captured of one rank.

    Attributes:
        rank: Global rank.
        operators: Recorded operators, communications included.
        communications: Recorded communications.
        peers: Ranks that it sends to or receives from, and those that share a tensor exchange with it that isn't alike
            on all ranks: they have other roles.
        warnings: What was assumed, and how often.
        files: Files that were written.
    """

    rank: int
    operators: int
    communications: int
    peers: tuple[int, ...] = ()
    warnings: dict[str, int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


def record_fake(
    function: Callable[[], Any],
    out: str | Path,
    *,
    world_size: int = 1,
    ranks: Sequence[int] | Literal["roles"] = "roles",
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
    with tempfile.TemporaryDirectory() as mailbox:
        return same_roles(ranks, options, lambda rank: run_rank(function, rank, options, mailbox=Path(mailbox)))


def same_roles(
    ranks: Sequence[int] | Literal["roles"], options: FakeOptions, run: Callable[[int], FakeRank]
) -> tuple[FakeRank, ...]:
    """Run the ranks that were asked for, or one of each role.

    Args:
        ranks: Global ranks, or ``roles``.
        options: How to capture.
        run: Captures one rank.

    Raises:
        InputError: There is no such rank, or there are very many roles.
    """
    if not isinstance(ranks, str):
        strange = [rank for rank in ranks if not 0 <= rank < options.world_size]
        if strange or not ranks:
            raise InputError(
                f"ranks: expected some of 0 to {options.world_size - 1}, got {strange[0] if strange else 'none'}"
            )
        return tuple(run(rank) for rank in sorted(set(ranks)))
    if ranks != "roles":
        raise InputError(f"ranks: expected global ranks or roles, got {ranks!r}")
    done: dict[int, FakeRank] = {}
    waiting = [0]
    while waiting:
        rank = waiting.pop(0)
        done[rank] = run(rank)
        waiting = sorted({*waiting, *done[rank].peers} - done.keys())
        if len(done) + len(waiting) > MOST_ROLES:
            raise InputError(
                f"ranks: expected at most {MOST_ROLES} roles, got more, as ranks exchange messages; name some ranks"
            )
    return tuple(done[rank] for rank in sorted(done))


def run_rank(
    function: Callable[[], Any], rank: int, options: FakeOptions, *, mailbox: Path | None = None
) -> FakeRank:
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
    environment = environment_of(rank, options.world_size, options.ranks_per_server)
    collections = gc.get_threshold()
    gc.set_threshold(*_FEW_COLLECTIONS)
    try:
        with _pretending(log, world, options, mailbox), local_environment(environment), window:
            with contextlib.suppress(WindowOver):
                function()
            groups = window.groups if window.groups is not None else known_groups()
        if window.steps < options.wait + options.active:
            log.warnings[window.shortfall()] += 1
        files = write_capture(log, world, groups, options, window.steps)
        return _summary(log, world, groups, options, files)
    except (DataDependentOutputException, DynamicOutputShapeException) as err:
        raise InputError(
            f"rank {rank}: expected a program whose shapes don't depend on values, got {err.func}; "
            "leave it out under a fake capture, or give it a fixed size"
        ) from err
    finally:
        gc.set_threshold(*collections)
        world.close()
        log.close()


@contextlib.contextmanager
def _pretending(log: Log, world: World, options: FakeOptions, mailbox: Path | None) -> Any:
    values = Values(options.routing, log.warnings)
    streams = Streams(log)
    local_rank = world.rank % min(options.ranks_per_server, options.world_size)
    local_size = min(options.ranks_per_server, options.world_size)
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.intercept())
        stack.enter_context(pretend_device(options.device, local_rank, local_size, streams))
        stack.enter_context(patched_libraries(world, log, values, foreach=options.device != "cpu"))
        stack.enter_context(pretend_stages(mailbox, log.warnings))
        stack.enter_context(Relabel())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(Recorder(log, world, values))
        yield


def _summary(
    log: Log, world: World, groups: list[dict[str, Any]], options: FakeOptions, files: tuple[Path, ...]
) -> FakeRank:
    members = {group["pg_name"]: group["ranks"] for group in groups}
    communications = [record for record in log.records if isinstance(record, Op) and record.note is not None]
    peers: set[int] = set()
    for record in communications:
        name = record.function._schema.name
        group = members.get((record.note or {})["pg"], [])
        if name in ("c10d::send", "c10d::recv_"):
            peers.add(group[record.args[2]])
        elif name == "c10d::alltoall_base_" and options.routing != "balanced" and record.args[4]:
            peers.update(group)
    operators = sum(isinstance(record, Op) for record in log.records)
    return FakeRank(
        world.rank, operators, len(communications), tuple(sorted(peers - {world.rank})), dict(log.warnings), files
    )
