"""Which layer each activity of a rank belongs to, and the time of each layer.

Shape letters: A activities, N nodes, W windows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.expressions import union_ns
from chakra_et.analysis.layers import Layer, find_layers, layer_annotations, layers_of_paths, type_of
from chakra_et.analysis.pattern import codes_of
from chakra_et.analysis.phase_of import inherited, modules_of, of_activities
from chakra_et.analysis.view import RankView
from chakra_et.analysis.windows import locate
from chakra_et.ir import NodeType

__all__ = ["layer_rows", "layers_of"]

Int = npt.NDArray[np.int64]

_SCHEMA: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "iteration": pl.Int64, "layer": pl.String, "module_type": pl.String, "device_ns": pl.Int64,
    "compute_ns": pl.Int64, "communication_ns": pl.Int64, "memory_ns": pl.Int64, "forward_ns": pl.Int64,
    "backward_ns": pl.Int64, "activities": pl.Int64,
}  # fmt: skip
_MOSTLY = 0.5
# Phases in which a model's layers run.
_MODEL = ("forward", "backward", "prefill", "decode", "mixed")


def layers_of(view: RankView, phase: pl.Series) -> tuple[pl.Series, str]:
    """Return the layer of each activity, [A], null for none, and what tells it.

    The first of modules, annotations and repeats counts that covers at least half of the time that isn't communication.

    Args:
        view: The rank.
        phase: Phase of each activity, [A], by name.
    """
    activities = view.activities
    counted = activities["window"].is_not_null() & (activities["category"] != "communication")
    time = (activities["end_ns"] - activities["start_ns"]).to_numpy() * counted.to_numpy()
    module, paths = modules_of(view)
    by_path = layers_of_paths(paths)
    candidates = [("modules", module, [by_path[path] for path in paths]), ("annotations", *_annotated(view))]
    for source, node_code, names in candidates:
        if len(set(names)) < 2:
            continue
        mine = of_activities(view, node_code)
        if time[mine >= 0].sum() >= _MOSTLY * time.sum() > 0:
            return pl.Series([*names, None], dtype=pl.String).gather(np.where(mine < 0, len(names), mine)), source
    found = _repeated(view, phase)
    if time[found.is_not_null().to_numpy()].sum() >= _MOSTLY * time.sum() > 0:
        return found, "repeats"
    return found.clear(len(found)), ""


def _annotated(view: RankView) -> tuple[Int, list[str]]:
    """Return the layer that an annotation around each node names, as a code, int64 [N], and the names."""
    nodes = view.nodes
    marks = nodes["type"].fill_null(0) == int(NodeType.METADATA_NODE)
    layers = layer_annotations(nodes.filter(marks)["name"].drop_nulls().unique(maintain_order=True))
    if not layers:
        return np.full(nodes.height, -1, np.int64), []
    names = list(dict.fromkeys(layers.values()))
    codes = {name: names.index(layer) for name, layer in layers.items()}
    own = nodes["name"].replace_strict(codes, default=-1, return_dtype=pl.Int64).fill_null(-1)
    return inherited(np.where(marks.to_numpy(), own.to_numpy(), -1), view.parent_rows), names


def _repeated(view: RankView, phase: pl.Series) -> pl.Series:
    """Return the layer of each activity, [A], by what repeats on the busiest stream of its window.

    What the host launched meanwhile onto other streams belongs to the same layer.
    """
    table = view.activities.select("window", "device", "stream", "start_ns").with_columns(
        place=pl.int_range(pl.len()), code=pl.Series(codes_of(view.activities["name"])), phase=phase
    )
    issued = view.issued_ns
    names = np.full(table.height, None, object)
    known: dict[bytes, tuple[Layer, ...]] = {}
    for _, part in table.filter(pl.col("window").is_not_null()).group_by("window", maintain_order=True):
        counts = (
            part.group_by("device", "stream").len().sort("len", "device", "stream", descending=[True, False, False])
        )
        main = part.join(counts.head(1), on=("device", "stream"), how="semi", maintain_order="left")
        codes = main["code"].to_numpy()
        same = codes.tobytes()
        if same not in known:
            known[same] = find_layers(codes)
        labels, layers = _labelled(known[same], main["phase"])
        if not layers:
            continue
        place, places = main["place"].to_numpy(), part["place"].to_numpy()
        begins = np.array([layer.begin for layer in layers])
        when = issued if (np.diff(issued[place][begins]) > 0).all() else view.activities["start_ns"].to_numpy()
        owner = _owners(layers, when[place], when[places])
        names[places] = np.array([*labels, None], object)[owner]
        for number, layer in enumerate(layers):
            names[place[layer.begin : layer.end]] = labels[number]
    return pl.Series(names.tolist(), dtype=pl.String)


def _owners(layers: tuple[Layer, ...], main: Int, when: Int) -> Int:
    """Return the layer during which each activity was launched, -1 for none, from the main stream's launches."""
    begin = main[[layer.begin for layer in layers]]
    end = np.array([main[layer.end] if layer.end < len(main) else main[-1] + 1 for layer in layers])
    return locate(when, np.asarray(begin), end)


def _labelled(layers: tuple[Layer, ...], phase: pl.Series) -> tuple[list[str], tuple[Layer, ...]]:
    """Name layers by what most of their stretch does, and their place in it; an optimizer's loops are no layers."""
    kinds: dict[int, str] = {}
    for layer in layers:
        if layer.stretch not in kinds:
            kinds[layer.stretch] = str(phase[layer.begin : layer.end].mode().sort()[0])
    layers = tuple(layer for layer in layers if kinds[layer.stretch] in _MODEL)
    kinds = {stretch: kind for stretch, kind in kinds.items() if kind in _MODEL}
    alike = {kind: [stretch for stretch, one in kinds.items() if one == kind] for kind in kinds.values()}
    found = []
    for layer in layers:
        kind = kinds[layer.stretch]
        which = f" {alike[kind].index(layer.stretch)}" if len(alike[kind]) > 1 else ""
        found.append(f"{kind}{which} repeat {layer.index}")
    return found, layers


def layer_rows(view: RankView, layer: pl.Series, phase: pl.Series) -> pl.DataFrame:
    """Return a row a window and layer, as `_SCHEMA`: unions of what runs of each, inside its window.

    Args:
        view: The rank.
        layer: Layer of each activity, [A], null for none.
        phase: Phase of each activity, [A], by name.
    """
    ends = pl.Series(view.window_bounds[1])
    table = view.activities.with_columns(layer=layer, phase=phase)
    table = table.filter(pl.col("window").is_not_null() & pl.col("layer").is_not_null())
    if table.is_empty():
        return pl.DataFrame(schema=_SCHEMA)
    table = table.with_columns(end_ns=pl.min_horizontal("end_ns", ends.gather(table["window"])))
    keys = ["window", "layer"]
    found = table.group_by(keys, maintain_order=True).agg(activities=pl.len().cast(pl.Int64))
    parts = {
        "device_ns": pl.lit(True),
        **{f"{name}_ns": pl.col("category") == name for name in ("compute", "communication", "memory")},
        **{f"{name}_ns": pl.col("phase") == name for name in ("forward", "backward")},
    }
    for name, chosen in parts.items():
        union = table.filter(chosen).group_by(keys).agg(union_ns().alias(name))
        found = found.join(union, on=keys, how="left", maintain_order="left")
    found = found.sort("window", maintain_order=True)
    kinds = {name: type_of(name) for name in found["layer"].unique()}
    return found.select(
        rank=pl.lit(view.rank, pl.Int64),
        iteration=view.iterations.gather(found["window"]),
        layer="layer",
        module_type=pl.col("layer").replace_strict(kinds, return_dtype=pl.String),
        **{name: pl.col(name).fill_null(0) for name in parts},
        activities="activities",
    )
