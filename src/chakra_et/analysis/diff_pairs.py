"""Which rank of one trace set is compared with which of another, and what is kept of each.

Shape letters: N nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis import breakdown
from chakra_et.analysis.diff_measure import Part, measure
from chakra_et.analysis.options import Options
from chakra_et.analysis.result import Coverage
from chakra_et.analysis.run import Job
from chakra_et.analysis.view import RankFacts, RankView

__all__ = ["Cut", "Kept", "Pairs", "keep", "measured_pairs"]

_MOST = 8


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What is kept of a rank.

    Attributes:
        facts: What its view tells.
        breakdown: Its breakdown, a row an iteration.
        part: Its sequences.
    """

    facts: RankFacts
    breakdown: pl.DataFrame
    part: Part


def keep(view: RankView) -> Kept:
    """Measure one rank."""
    return Kept(view.facts, breakdown.measure(view).table, measure(view))


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """Measures a rank without the nodes that another trace of it lacks.

    Attributes:
        ids: By rank, uint64 [N]: nodes to leave in. Other ranks are left as they are.
    """

    ids: Mapping[int, npt.NDArray[np.uint64]]

    def __call__(self, view: RankView) -> Kept:
        """Measure one rank."""
        ids = self.ids.get(view.rank)
        if ids is None:
            return keep(view)
        nodes = view.nodes.filter(np.isin(view.nodes["id"].to_numpy(), ids))
        return keep(RankView(view.trace.with_nodes(nodes), view.rank, view.options))


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The ranks that are compared.

    Attributes:
        ranks: What was kept of each, before and after, by its rank before.
        names: Its rank before and after.
        notes: Who is missing, and what was guessed.
    """

    ranks: Mapping[int, tuple[Kept, Kept]]
    names: tuple[tuple[int, int], ...]
    notes: tuple[str, ...]

    def coverage(self, options: Options) -> Coverage:
        """Return how much of the device's time of both sets is classified, linked and modelled."""
        facts = [kept.facts for pair in self.ranks.values() for kept in pair]
        return Job((), 0, (), dict(enumerate(facts)), options).coverage


def measured_pairs(before: Mapping[int, Kept], after: Mapping[int, Kept]) -> Pairs:
    """Pair the ranks of two sets: those of equal rank; without any, in their order."""
    names = [(rank, rank) for rank in sorted(before) if rank in after]
    notes = []
    if not names:
        names = list(zip(sorted(before), sorted(after), strict=False))
        told = ", ".join(f"{one} with {two}" for one, two in names[:_MOST])
        notes.append(
            f"no rank is in both sets; they are compared in order: rank {told}{', ...' if len(names) > _MOST else ''}"
        )
    for own, place, word in ((before, 0, "before"), (after, 1, "after")):
        lost = sorted(set(own) - {pair[place] for pair in names})
        if lost:
            notes.append(f"compared on {len(names)} of {len(own)} ranks {word}; left out: {_shown(lost)}")
    ranks = {one: (before[one], after[two]) for one, two in names}
    return Pairs(ranks, tuple(names), (*notes, *_facts_notes(ranks)))


def _shown(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:_MOST])) + (", ..." if len(ranks) > _MOST else "")


def _facts_notes(ranks: Mapping[int, tuple[Kept, Kept]]) -> list[str]:
    """Return what the views guessed, once; with the side if only one says it."""
    sides = []
    for place in (0, 1):
        facts = {rank: pair[place].facts for rank, pair in ranks.items()}
        sides.append(Job((), 0, (), facts, Options()).notes)
    notes = [note for note in sides[0] if note in sides[1]]
    for word, own, other in (("before", *sides), ("after", *reversed(sides))):
        notes += [f"{word}: {note}" for note in own if note not in other]
    return notes
