"""What ASTRA-sim makes of a collective: chunks, and the phases that each of them goes through.

Rules and sources: docs/astra-sim.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from chakra_et._jit.astra.state import DIRECT, DOUBLE_BINARY_TREE, HALVING_DOUBLING, RING
from chakra_et.errors import SimulationError
from chakra_et.ir import CommType
from chakra_et.specs import AstraConfig

__all__ = ["Phase", "collective_phases"]

_GROUP_BUS_NS = 10  # inside a group, whatever endpoint-delay says
_NAMES = {
    CommType.ALL_REDUCE: "all_reduce",
    CommType.ALL_GATHER: "all_gather",
    CommType.ALL_TO_ALL: "all_to_all",
    CommType.REDUCE_SCATTER: "reduce_scatter",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a chunk: one algorithm among the ranks along one dimension, or of one group.

    Attributes:
        algorithm: RING, DIRECT, HALVING_DOUBLING or DOUBLE_BINARY_TREE.
        name: The algorithm as the configuration spells it.
        type: What it does: all-reduce, all-gather, reduce-scatter or all-to-all.
        members: Ranks that take part in one instance.
        stride: Distance of neighbors, in ranks; 0: neighbors in the group's list.
        level: Queue level, the dimension.
        rotation: Which queues of the level take turns: 0 all, 1 the first half, 2 the second half.
        bytes: Size of the chunk at the phase's start.
        window: Packets under way at once.
        bus_ns: Delay before each message.
        in_group: True in a group that is smaller than the job.
    """

    algorithm: int
    name: str
    type: CommType
    members: int
    stride: int
    level: int
    rotation: int
    bytes: int
    window: int
    bus_ns: int
    in_group: bool

    @property
    def sends(self) -> int:
        """Messages that each member sends; those of a tree depend on its place there."""
        count = self.members
        if self.algorithm == HALVING_DOUBLING:
            rounds = count.bit_length() - 1
            return 2 * rounds if self.type == CommType.ALL_REDUCE else rounds
        if self.algorithm == RING and self.type == CommType.ALL_TO_ALL:
            return count * (count - 1) // 2
        return 2 * (count - 1) if self.type == CommType.ALL_REDUCE else count - 1

    @property
    def message_bytes(self) -> int:
        """Size of a message of a ring, direct or tree phase."""
        if self.algorithm == DOUBLE_BINARY_TREE or self.type == CommType.ALL_GATHER:
            return self.bytes
        return self.bytes // self.members

    @property
    def reduced(self) -> int:
        """How many of the received messages, from the first on, are reduced."""
        if self.type not in (CommType.ALL_REDUCE, CommType.REDUCE_SCATTER):
            return 0
        if self.algorithm == HALVING_DOUBLING:
            return self.members.bit_length() - 2
        return self.members - 1

    @property
    def cycle(self) -> int:
        """Of a direct phase that reduces: packets after which others follow that aren't reduced; else 0.

        ASTRA-sim counts a window of packets that go out, then so many that come in, and begins again: packets of the
        window aren't reduced, and of an all-reduce only every other round of the others.
        """
        if self.algorithm != DIRECT or not self.reduced:
            return 0
        return self.window * (self.members - 1 if self.in_group else 1)

    def steps(self) -> list[tuple[int, int]]:
        """Return distance and message size of each step of halving-doubling."""
        rounds = self.members.bit_length() - 1
        halving = [(1 << k, self.bytes >> (k + 1)) for k in range(rounds)]
        if self.type == CommType.REDUCE_SCATTER:
            return halving
        if self.type == CommType.ALL_REDUCE:
            # The size is halved once more before it is doubled: on the way back, odd bytes are lost.
            least = self.bytes >> (rounds + 1)
            return halving + [(self.members >> (k + 1), least << (k + 1)) for k in range(rounds)]
        return [(self.members >> (k + 1), self.bytes << k) for k in range(rounds)]


def collective_phases(
    config: AstraConfig,
    kind: CommType,
    size: int,
    group: Sequence[int] | None,
    involved: Sequence[bool],
    bus_ns: int,
) -> tuple[int, list[Phase]]:
    """Return the number of chunks of a collective, and the phases of each.

    Args:
        config: Machine and algorithms.
        kind: Type of the collective.
        size: `comm_size`, bytes.
        group: Ranks of a group; None for all ranks.
        involved: Dimensions that take part; dimensions beyond its end do.
        bus_ns: Delay before each message.

    Raises:
        SimulationError: ASTRA-sim doesn't simulate such a collective, or not with this configuration.
    """
    if kind not in _NAMES:
        raise SimulationError(
            f"expected one of {', '.join(_NAMES.values())} or broadcast, which are what ASTRA-sim simulates, "
            f"got {kind.name.lower()}; export the trace for it (chakra export --to astra-sim), or simulate natively"
        )
    algorithms = getattr(config, _NAMES[kind])
    chunks, chunk = _chunks(config, kind, size)
    if group is not None and len(group) < config.npus:
        phases = _of_group(config, kind, algorithms, chunk, len(group))
    else:
        dims = _dimensions(config, algorithms, kind)
        taking_part = [dim for number, dim in enumerate(dims) if dim[1] > 1 and (*involved, *[True] * 64)[number]]
        phases = _of_dimensions(config, kind, taking_part, chunk, bus_ns)
    for phase in phases:
        _check(phase)
    return chunks, phases


def _chunks(config: AstraConfig, kind: CommType, size: int) -> tuple[int, int]:
    """Return number and size of the chunks: all have the full size, the last one too."""
    splits = config.splits
    if splits < 1:
        raise SimulationError("expected preferred-dataset-splits in the system file, 1 or more, got none; add it")
    chunk = size // splits
    if kind != CommType.ALL_GATHER and chunk < config.npus:
        chunk, size = config.npus, config.npus * splits
    if chunk == 0:
        raise SimulationError(
            f"expected an all-gather of at least as many bytes as preferred-dataset-splits ({splits}), got {size}: "
            "ASTRA-sim would cut it into empty chunks for ever; use fewer splits"
        )
    return -(-size // chunk), chunk


def _dimensions(config: AstraConfig, algorithms: Sequence[str], kind: CommType) -> list[tuple[str, int, int, int]]:
    """Return algorithm, size, stride and level of each dimension that the configuration lists."""
    if not algorithms:
        raise SimulationError(
            f"expected {_NAMES[kind].replace('_', '-')}-implementation in the system file, got none; add it"
        )
    if len(algorithms) > len(config.npus_count):
        raise SimulationError(
            f"expected at most {len(config.npus_count)} algorithms for {_NAMES[kind].replace('_', '-')}, one a "
            f"dimension of the network, got {len(algorithms)}"
        )
    found: list[tuple[str, int, int, int]] = []
    stride = 1
    for level, name in enumerate(algorithms):
        if name.startswith("one"):
            return [*found, (name, config.npus, 1, level)]
        found.append((name, config.npus_count[level], stride, level))
        stride *= config.npus_count[level]
    return found


def _of_dimensions(
    config: AstraConfig, kind: CommType, dims: list[tuple[str, int, int, int]], chunk: int, bus_ns: int
) -> list[Phase]:
    phases: list[Phase] = []

    def add(dim: tuple[str, int, int, int], what: CommType, rotation: int, size: int) -> None:
        name, members, stride, level = dim
        phases.append(_phase(name, what, members, stride, level, rotation, size, bus_ns, in_group=False))

    if kind == CommType.ALL_REDUCE and config.collective_optimization == "localBWAware":
        for dim in dims[:-1]:
            add(dim, CommType.REDUCE_SCATTER, 1, chunk)
            chunk //= _share(dim)
        for dim in dims[-1:]:
            add(dim, CommType.ALL_REDUCE, 1, chunk)
        for dim in reversed(dims[:-1]):
            add(dim, CommType.ALL_GATHER, 2, chunk)
            chunk *= _share(dim)
        return phases
    for dim in reversed(dims) if kind == CommType.ALL_GATHER else dims:
        add(dim, kind, 0, chunk)
        if kind == CommType.ALL_GATHER:
            chunk *= _share(dim)
        elif kind == CommType.REDUCE_SCATTER:
            chunk //= _share(dim)
    return phases


def _share(dim: tuple[str, int, int, int]) -> int:
    """Return into how many parts a dimension scatters a chunk; a tree reduces all of it, whatever it is asked for."""
    return 1 if dim[0] == "doubleBinaryTree" else dim[1]


def _of_group(config: AstraConfig, kind: CommType, algorithms: Sequence[str], chunk: int, members: int) -> list[Phase]:
    """A smaller group is one logical ring in the order of its list."""
    if members < 2:
        return []
    name = algorithms[0] if len(algorithms) == 1 else "ring"
    if name == "doubleBinaryTree":
        raise SimulationError(
            "expected another algorithm than doubleBinaryTree for a group that is smaller than the job, with which "
            "ASTRA-sim crashes; configure ring, direct or halvingDoubling"
        )
    local = kind == CommType.ALL_REDUCE and config.collective_optimization == "localBWAware"
    return [_phase(name, kind, members, 0, 0, int(local), chunk, _GROUP_BUS_NS, in_group=True)]


def _phase(
    name: str,
    kind: CommType,
    members: int,
    stride: int,
    level: int,
    rotation: int,
    size: int,
    bus_ns: int,
    *,
    in_group: bool,
) -> Phase:
    base = name.removeprefix("one")
    base = base[:1].lower() + base[1:]
    algorithm, window = RING, 1
    if base.startswith("direct"):
        given = re.sub(r"\D", "", base)
        algorithm, window = DIRECT, min(int(given) if given else members - 1, members - 1)
    elif base == "halvingDoubling":
        algorithm = HALVING_DOUBLING
    elif base == "doubleBinaryTree":
        algorithm = DOUBLE_BINARY_TREE
    return Phase(algorithm, name, kind, members, stride, level, rotation, size, window, bus_ns, in_group)


def _check(phase: Phase) -> None:
    if phase.algorithm in (HALVING_DOUBLING, DOUBLE_BINARY_TREE) and phase.members & (phase.members - 1):
        raise SimulationError(
            f"expected a power of two of ranks for {phase.name}, got {phase.members}: ASTRA-sim hangs or crashes; "
            "configure ring or direct"
        )
    if phase.algorithm == HALVING_DOUBLING and phase.type == CommType.ALL_TO_ALL:
        raise SimulationError(f"expected another algorithm for all-to-alls than {phase.name}, which has none")
