"""Rows of phases or layers by what the user tells apart: means of the steps in which each of them runs."""

from __future__ import annotations

import polars as pl

from chakra_et.analysis.options import Options, check_keys
from chakra_et.errors import InputError

__all__ = ["PHASE_KEYS", "keys_of", "layer_means", "phase_means", "tells_layers"]

PHASE_KEYS: tuple[str, ...] = ("rank", "iteration", "phase")
_STEP = ("rank", "iteration")
_LAYER_KEYS = ("layer", "module_type")
_KNOWN = (*PHASE_KEYS, *_LAYER_KEYS)
# Phases overlap: these times can't be added up over them.
_UNIONS = ("device_ns", "host_ns")
_RATES = ("tokens_per_s", "output_token_ns")


def keys_of(options: Options) -> tuple[str, ...]:
    """Return what rows are told apart by.

    Raises:
        InputError: Something else than ranks, iterations, phases, layers and their types; or phases and layers.
    """
    keys = check_keys(options, _KNOWN, PHASE_KEYS)
    if "phase" in keys and tells_layers(keys):
        layer = next(key for key in keys if key in _LAYER_KEYS)
        raise InputError(
            f"by: expected phase or {layer}, got both; leave out phase: a layer's rows tell forward and backward"
        )
    return keys


def tells_layers(keys: tuple[str, ...]) -> bool:
    """True if rows are layers, or their types."""
    return any(key in _LAYER_KEYS for key in keys)


def phase_means(table: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return phases by some of their keys.

    Args:
        table: A row a rank, iteration and phase.
        keys: Of `PHASE_KEYS`.

    Returns:
        The keys, ``steps`` (how many the row is the mean of), then the other columns, but without the phase those of
        times that overlap between phases.
    """
    lost = () if "phase" in keys else _UNIONS
    numbers = [name for name in table.columns if name not in (*PHASE_KEYS, *lost, *_RATES)]
    once = (pl.col("span_ns").first(), *(_sum(name) for name in numbers if name != "span_ns"))
    # Rates are those of the steps whose tokens are known.
    told = pl.col("span_ns").filter(pl.col("tokens").is_not_null()).sum()
    rate = pl.when(told > 0).then(pl.col("tokens").sum() * 1e9 / told).alias("tokens_per_s")
    each = (*once, pl.col("output_token_ns").mean())
    return _means(table, keys, each, (rate, pl.col("output_token_ns").mean().round().cast(pl.Int64)))


def layer_means(layers: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return layers by some of their keys, those that compute longest first.

    Args:
        layers: A row a rank, iteration and layer.
        keys: Of rank, iteration, layer and module type.

    Returns:
        The keys, ``steps`` (how many the row is the mean of), then the other columns.
    """
    each = tuple(_sum(name) for name in layers.columns if name not in (*_STEP, *_LAYER_KEYS))
    found = _means(layers, keys, each, ())
    stretch = [key for key in _STEP if key in keys]
    order = [False] * len(stretch) + [True]
    return found.sort(*stretch, "compute_ns", descending=order, maintain_order=True)


def _means(
    table: pl.DataFrame, keys: tuple[str, ...], each: tuple[pl.Expr, ...], rates: tuple[pl.Expr, ...]
) -> pl.DataFrame:
    """Put a step's rows of equal keys together, then the steps."""
    steps = table.group_by(*dict.fromkeys((*_STEP, *keys)), maintain_order=True).agg(each)
    known = {expression.meta.output_name() for expression in rates}
    numbers = [name for name in steps.columns if name not in (*_STEP, *keys, *known)]
    times = [name for name in numbers if name.endswith("_ns")]
    means = [
        pl.col(name).mean().round().cast(pl.Int64) if name in times else pl.col(name).cast(pl.Float64).mean()
        for name in numbers
    ]
    return steps.group_by(*keys, maintain_order=True).agg(pl.len().cast(pl.Int64).alias("steps"), *means, *rates)


def _sum(name: str) -> pl.Expr:
    """Return a sum of what is known; null where nothing is."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)
