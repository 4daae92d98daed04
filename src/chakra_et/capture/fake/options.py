"""How to capture before execution, and what came of it: values without PyTorch, for the command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from chakra_et.errors import InputError

__all__ = ["DEVICES", "MOST_ROLES", "ROUTINGS", "FakeOptions", "FakeRank", "Ranks", "Routing", "run_roles"]

Routing = Literal["balanced", "zipf"]
Ranks = Sequence[int] | Literal["roles"]
ROUTINGS: tuple[Routing, ...] = ("balanced", "zipf")
DEVICES = ("cuda", "cpu")
MOST_ROLES = 64


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

    Example:
        >>> FakeOptions.from_text(FakeOptions("out", world_size=64).to_text()).world_size
        64
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
        for name, known in (("device", DEVICES), ("routing", ROUTINGS)):
            if getattr(self, name) not in known:
                raise InputError(f"{name}: expected {' or '.join(known)}, got {getattr(self, name)!r}")

    def local_size(self) -> int:
        """Return the ranks on one server."""
        return min(self.ranks_per_server, self.world_size)

    def to_text(self) -> str:
        """Return the options as JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_text(text: str) -> FakeOptions:
        """Read what `to_text` wrote."""
        return FakeOptions(**json.loads(text))


@dataclass(frozen=True, slots=True)
class FakeRank:
    """What was captured of one rank.

    Attributes:
        rank: Global rank.
        operators: Recorded operators, communications included.
        communications: Recorded communications.
        peers: Ranks with other roles: those that it sends to or receives from, and those in an all-to-all whose parts
            differ from rank to rank.
        warnings: What was assumed, and how often.
        files: Files that were written.
    """

    rank: int
    operators: int
    communications: int
    peers: tuple[int, ...] = ()
    warnings: dict[str, int] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


def run_roles(ranks: Ranks, options: FakeOptions, run: Callable[[int], FakeRank]) -> tuple[FakeRank, ...]:
    """Capture the ranks that were asked for, or one of each role.

    Args:
        ranks: Global ranks; or ``roles``: rank 0, and the peers of each rank that is captured.
        options: How to capture.
        run: Captures one rank.

    Returns:
        What was captured, by rank.

    Raises:
        InputError: There is no such rank, or there are very many roles.

    Example:
        >>> chain = lambda rank: FakeRank(rank, 1, 1, peers=tuple(p for p in (rank - 1, rank + 1) if 0 <= p < 4))
        >>> [one.rank for one in run_roles("roles", FakeOptions("out", world_size=4), chain)]
        [0, 1, 2, 3]
    """
    if isinstance(ranks, str):
        if ranks != "roles":
            raise InputError(f"ranks: expected global ranks or 'roles', got {ranks!r}")
        return _run_peers(run)
    strange = [rank for rank in ranks if not 0 <= rank < options.world_size]
    if strange or not ranks:
        raise InputError(
            f"ranks: expected some of 0 to {options.world_size - 1}, got {strange[0] if strange else 'none'}"
        )
    return tuple(run(rank) for rank in sorted(set(ranks)))


def _run_peers(run: Callable[[int], FakeRank]) -> tuple[FakeRank, ...]:
    done: dict[int, FakeRank] = {}
    waiting = [0]
    while waiting:
        rank = waiting.pop(0)
        done[rank] = run(rank)
        waiting = sorted({*waiting, *done[rank].peers} - done.keys())
        if len(done) + len(waiting) > MOST_ROLES:
            raise InputError(
                f"ranks: expected at most {MOST_ROLES} roles, got more: ranks exchange messages; name some of them"
            )
    return tuple(done[rank] for rank in sorted(done))
