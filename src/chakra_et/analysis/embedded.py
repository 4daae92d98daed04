"""Tokens of an inference step that no marker counts: what its token embedding looks up.

Shape letters: W windows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import polars as pl

from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import locate

__all__ = ["Embedded", "embedded_tokens"]


@dataclass(frozen=True, slots=True)
class Embedded:
    """What the token embedding of one step looks up.

    Attributes:
        tokens: Number of tokens.
        requests: Number of sequences; None where tokens come without batch dimension.
    """

    tokens: int
    requests: int | None

    @property
    def kind(self) -> str | None:
        """`decode` for one token a sequence, `prefill` for more, None where the shape doesn't tell."""
        if self.requests is None:
            return None
        return "decode" if self.tokens == self.requests else "prefill"


def embedded_tokens(view: RankView) -> dict[int, Embedded]:
    """Return what each window's token embedding looks up, by index of the window; nothing where shapes lack.

    Of several embeddings the one with the largest table counts, with all its calls.
    """
    if "inputs" not in view.nodes.columns:
        return {}
    named = (view.nodes["name"] == "aten::embedding").fill_null(False) & view.nodes["inputs"].is_not_null()
    rows = np.flatnonzero(named.to_numpy())
    calls: dict[int, dict[int, list[list[int]]]] = {}
    texts = view.nodes["inputs"].gather(pl.Series(rows)).struct.field("shapes")
    begins, ends = np.array([window.host_range_ns for window in view.windows], np.int64).reshape(-1, 2).T
    places = locate(view.start_ns[rows], begins, ends)
    for place, text in zip(places.tolist(), texts, strict=True):
        shapes = _shapes(text)
        if place >= 0 and shapes is not None:
            calls.setdefault(place, {}).setdefault(shapes[0][0], []).append(shapes[1])
    return {place: _total(tables[max(tables)]) for place, tables in calls.items()}


def _shapes(text: str | None) -> tuple[list[int], list[int]] | None:
    """Return the shapes of the table and of the indices, or None for anything else."""
    try:
        found = json.loads(text or "[]")
    except ValueError:
        return None
    shapes = found[:2] if isinstance(found, list) else []
    known = [one for one in shapes if isinstance(one, list) and one and all(type(size) is int for size in one)]
    return (known[0], known[1]) if len(known) == 2 else None


def _total(shapes: list[list[int]]) -> Embedded:
    tokens = sum(int(np.prod(shape)) for shape in shapes)
    batched = all(len(shape) == 2 for shape in shapes)
    return Embedded(tokens, sum(shape[0] for shape in shapes) if batched else None)
