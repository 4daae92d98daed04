"""Layers of a step: what modules, annotations or repeated structure tell apart.

Shape letters: N positions, A activities.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.repeats import longest_run
from chakra_et.analysis.pattern import codes_of, likely_lags

__all__ = ["Layer", "find_layers", "layer_annotations", "layers_of_paths", "type_of"]

Int = npt.NDArray[np.int64]

_NUMBERED = re.compile(r"^(.*?)[._ ]?(\d+)$")
_REPEATS = 3
_SHORTEST = 4
_SLACK = 2
_MOST_STRETCHES = 8
# A stretch is at least this share of the step: less is a loop somewhere, and no layers.
_SMALLEST = 0.1
# A longer period must cover this much more to be preferred to a shorter one.
_ALIKE = 0.05


@dataclass(frozen=True, slots=True)
class Layer:
    """One repeat of a structure inside a step.

    Attributes:
        stretch: Which stretch of repeats it belongs to (forward and backward are two), from 0 in time order.
        index: Its place in the stretch, from 0.
        begin: First position.
        end: The position after its last.
    """

    stretch: int
    index: int
    begin: int
    end: int


def find_layers(names: pl.Series | Int) -> tuple[Layer, ...]:
    """Find what repeats inside one step: at least 3 times in a row, in one stretch or several.

    Args:
        names: Names in order, [N], or their int64 codes.

    Returns:
        The repeats in order; none where nothing repeats.

    Example:
        >>> layers = find_layers(pl.Series(["load", *["norm", "gemm", "act", "gemm", "add"] * 6, "loss", "adam"]))
        >>> len(layers), layers[0].begin, layers[-1].end
        (6, 1, 31)
    """
    codes = codes_of(names)
    least = max(_REPEATS * _SHORTEST, int(_SMALLEST * len(codes)))
    stretches: list[tuple[int, int, int]] = []
    todo = [(0, len(codes))]
    while todo and len(stretches) < _MOST_STRETCHES:
        low, high = todo.pop()
        found = _best_stretch(codes[low:high]) if high - low >= least else None
        if found is None or found[2] - found[1] < least:
            continue
        lag, begin, end = found[0], low + found[1], low + found[2]
        stretches.append((begin, end, lag))
        todo += [(end, high), (low, begin)]
    return tuple(
        Layer(number, index, begin + index * lag, begin + (index + 1) * lag)
        for number, (begin, end, lag) in enumerate(sorted(stretches))
        for index in range((end - begin) // lag)
    )


def _best_stretch(codes: Int) -> tuple[int, int, int] | None:
    """Return period, begin and end of the longest stretch of repeats; among equals the shortest."""
    best: tuple[int, int, int] | None = None
    for lag in likely_lags(codes, len(codes) // _REPEATS):
        begin, end = longest_run(codes, lag, _SLACK)
        end = begin + (end - begin) // lag * lag
        # One kernel again and again is no structure.
        several = end > begin and len(np.unique(codes[begin : begin + lag])) > 1
        if not several or end - begin < _REPEATS * lag:
            continue
        if best is None or end - begin > (best[2] - best[1]) * (1 + _ALIKE):
            best = (lag, begin, end)
    return best


def layers_of_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return the layer that each module path belongs to.

    A layer is the outermost module of which the model has several: `Qwen2DecoderLayer_5` in
    `Qwen2Model_0/Qwen2DecoderLayer_5/Qwen2Attention_5`. What is beside the layers is named by its own module.

    Args:
        paths: Module paths, outermost first.

    Example:
        >>> layers_of_paths(["M_0/Embed_0", "M_0/Block_0/Linear_0", "M_0/Block_1/Linear_1", "Linear_1"])["Linear_1"]
        'Block_1'
    """
    split = {path: path.split("/") for path in dict.fromkeys(paths)}
    depth, kinds = _layer_depth(split.values())
    inside: dict[str, str] = {}
    for parts in split.values():
        if len(parts) > depth and type_of(parts[depth]) in kinds:
            inside.update((part, parts[depth]) for part in parts[depth:])
    found = {}
    for path, parts in split.items():
        # Recomputed in the backward pass, a module's path begins further in.
        known = next((inside[part] for part in parts if part in inside), None)
        found[path] = known or parts[min(depth, len(parts) - 1)]
    return found


def _layer_depth(split: Iterable[list[str]]) -> tuple[int, frozenset[str]]:
    """Return how deep the layers are, and of what types."""
    paths = list(split)
    roots = Counter(type_of(parts[0]) for parts in paths)
    main = max(roots, key=lambda root: (roots[root], root), default="")
    paths = [parts for parts in paths if type_of(parts[0]) == main]
    deepest = max(map(len, paths), default=0)
    # A module with modules inside is a layer rather than one without.
    for least in (1, 0):
        for depth in range(deepest):
            members: dict[str, set[str]] = {}
            for parts in paths:
                if len(parts) > depth + least * (depth > 0):
                    members.setdefault(type_of(parts[depth]), set()).add(parts[depth])
            kinds = frozenset(kind for kind, names in members.items() if len(names) > 1)
            if kinds:
                return depth, kinds
    return 0, frozenset()


def type_of(layer: str) -> str:
    """Return a layer's name without its number.

    Example:
        >>> type_of("Qwen2DecoderLayer_5")
        'Qwen2DecoderLayer'
    """
    match = _NUMBERED.match(layer)
    return match.group(1) if match else layer


def layer_annotations(names: Iterable[str]) -> dict[str, str]:
    """Return the layer that each annotation stands for, if annotations number layers: `layer_3`, `blocks.3`, ...

    Args:
        names: Annotations.

    Example:
        >>> layer_annotations(["layer_0", "layer_1", "loss"])
        {'layer_0': 'layer_0', 'layer_1': 'layer_1'}
    """
    found = {}
    for name in names:
        match = re.search(r"(?i)\b((?:\w*layers?|\w*blocks?|stage|h)[._ \[]?\d+)\b", name)
        if match:
            found[name] = match.group(1)
    return found if len(set(found.values())) > 1 else {}
