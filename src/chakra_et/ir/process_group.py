"""Process groups: which ranks take part in a communication."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["MOST_RANKS", "ProcessGroup", "groups_from_records", "groups_of", "join_groups"]


# More ranks than any job has; a number beyond it is damage, and must not make anybody allocate a list of ranks.
MOST_RANKS = 1 << 24


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A communicator.

    Attributes:
        name: ``pg_name``, unique inside one rank.
        ranks: Global ranks in group order; empty when unknown.
        size: Number of participants (``group_size``).
        description: Free text that a framework gave it (``pg_desc``), such as ``dp`` or ``mesh_tp``.
        backend: Backend string, such as ``cuda:nccl``.

    Example:
        >>> ProcessGroup("0", (0, 1), 2).size
        2
    """

    name: str
    ranks: tuple[int, ...]
    size: int
    description: str = ""
    backend: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the group as plain data, in PyTorch's spelling."""
        return {
            "pg_name": self.name,
            "pg_desc": self.description,
            "backend_config": self.backend,
            "ranks": list(self.ranks),
            "group_size": self.size,
        }

    @staticmethod
    def from_dict(record: dict[str, object]) -> ProcessGroup:
        """Build a group from PyTorch's record of it (``pg_config`` or ``process_group:init``)."""
        raw = record.get("ranks") or ()
        ranks = tuple(map(int, raw)) if isinstance(raw, list | tuple) and all(map(_is_rank, raw)) else ()
        given = str(record.get("group_size", record.get("pg_size", "")))
        size = int(given) if given.isdecimal() and len(given) < 9 else len(ranks)
        return ProcessGroup(
            name=str(record.get("pg_name", "")),
            ranks=ranks,
            size=size if size <= MOST_RANKS else len(ranks),
            description=str(record.get("pg_desc", "")),
            backend=str(record.get("backend_config", "")),
        )


def _is_rank(value: object) -> bool:
    return isinstance(value, int) and 0 <= value < MOST_RANKS


def groups_from_records(records: object) -> tuple[ProcessGroup, ...]:
    """Build the groups of a list of PyTorch's records; what isn't a record with a name is left out."""
    found = records if isinstance(records, list) else []
    named = (record for record in found if isinstance(record, dict) and record.get("pg_name") is not None)
    return tuple(map(ProcessGroup.from_dict, named))


def groups_of(rank: int, groups: Iterable[ProcessGroup]) -> dict[str, ProcessGroup]:
    """Return the groups that a rank means, by name: one name may stand for several groups of disjoint ranks.

    Args:
        rank: Global rank.
        groups: Groups of the set and of the rank's own trace; of equally good ones, the first counts.

    Example:
        >>> groups_of(2, [ProcessGroup("tp", (0, 1), 2), ProcessGroup("tp", (2, 3), 2)])["tp"].ranks
        (2, 3)
    """
    found: dict[str, ProcessGroup] = {}
    for group in groups:
        held = found.get(group.name)
        if held is None or (rank in group.ranks, bool(group.ranks)) > (rank in held.ranks, bool(held.ranks)):
            found[group.name] = group
    return found


def join_groups(groups: Iterable[ProcessGroup], world_size: int) -> tuple[ProcessGroup, ...]:
    """Join the groups that all ranks know; one name may stand for several disjoint groups.

    A group without ranks that is as big as the job is the whole job.

    Args:
        groups: Groups of all ranks; of equal ones, the first counts.
        world_size: Number of ranks of the job.

    Example:
        >>> [group.ranks for group in join_groups([ProcessGroup("0", (), 2), ProcessGroup("0", (0, 1), 2)], 2)]
        [(0, 1)]
    """
    joined: dict[tuple[str, tuple[int, ...]], ProcessGroup] = {}
    world = tuple(range(world_size))
    for group in groups:
        if not group.ranks and group.size == len(world):
            group = replace(group, ranks=world)
        joined.setdefault((group.name, group.ranks), group)
    ranked = {name for name, ranks in joined if ranks}
    return tuple(group for (name, ranks), group in joined.items() if ranks or name not in ranked)
