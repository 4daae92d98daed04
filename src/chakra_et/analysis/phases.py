"""What a step does: forward, backward, optimizer and communication; prefill and decode of inference; layers.

Shape letters: A activities, N nodes, W windows, P phases.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.analysis.activities import real_nodes
from chakra_et.analysis.charts import COLORS, stacked_bars
from chakra_et.analysis.cover import cover_of
from chakra_et.analysis.embedded import embedded_tokens
from chakra_et.analysis.layer_rows import layer_rows, layers_of
from chakra_et.analysis.options import Options
from chakra_et.analysis.phase_of import of_activities, phases_of, trains
from chakra_et.analysis.phase_rows import PHASE_KEYS, keys_of, layer_means, phase_means, tells_layers
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Job, Source, run_one
from chakra_et.analysis.view import RankView
from chakra_et.ir import NodeType
from chakra_et.units import format_ns, format_number_of, format_share

__all__ = ["PHASES", "Phases", "combine", "measure", "phases"]

Int = npt.NDArray[np.int64]

PHASES: tuple[str, ...] = ("forward", "backward", "optimizer", "prefill", "decode", "mixed", "communication", "other")
_INFERENCE = ("prefill", "decode", "mixed")
_PLACE = {name: place for place, name in enumerate(PHASES)}
_COLORS = {
    "forward": "#0072B2",
    "backward": "#56B4E9",
    "optimizer": "#009E73",
    "prefill": "#0072B2",
    "decode": "#56B4E9",
    "mixed": "#CC79A7",
    "communication": COLORS["communication"],
    "other": COLORS["other"],
}
_SCHEMA: dict[str, type[pl.DataType]] = {
    "rank": pl.Int64, "iteration": pl.Int64, "phase": pl.String, "span_ns": pl.Int64, "device_ns": pl.Int64,
    "exclusive_ns": pl.Int64, "activities": pl.Int64, "launches": pl.Int64, "host_ns": pl.Int64, "tokens": pl.Int64,
    "requests": pl.Int64, "kv_tokens": pl.Int64, "tokens_per_s": pl.Float64, "output_token_ns": pl.Int64,
}  # fmt: skip
_SLOW_LAYER = 1.5
_NOTABLE = 0.01
_ODD_RATIO = (1.2, 3.5)
_LARGE_OPTIMIZER = 0.15
_FEWEST_LAYERS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Phases(Result):
    """Time of each phase.

    Columns of `table`, a row a rank, iteration and phase that has activities:
    ``rank``, ``iteration`` (null: the whole profile), ``phase`` (one of `PHASES`; communication whoever launched it),
    ``span_ns`` (wall time of the iteration's stretch), ``device_ns`` (some activity of the phase runs: a union),
    ``exclusive_ns`` (and no activity of another phase), ``activities``, ``launches`` (runtime calls that launched
    them, as far as they are known), ``host_ns`` (the host works on the phase, on any thread: a union; null for
    communication on the device); for inference
    where a marker tells: ``tokens`` and ``requests`` that the step computes, ``kv_tokens`` that attention reads,
    ``tokens_per_s`` (tokens over the stretch; ranks that share them each have all of them), ``output_token_ns`` (time
    of one output token of one request).

    If `by` says less than rank, iteration and phase, rows are means of the steps in which something of the row runs,
    and ``steps`` tells how many those are; without the phase, ``device_ns`` and ``host_ns`` are left out, since phases
    overlap. If it says ``layer`` or ``module_type``, rows are those of `layers` in the same way, the longest
    ``compute_ns`` first; times of a type's layers are added up.

    Attributes:
        each: The row of each rank, iteration and phase, whatever `by` says.
        layers: A row a rank, iteration and layer: ``rank``, ``iteration``, ``layer``, ``module_type``, ``device_ns``,
            and of that (each a union) ``compute_ns``, ``communication_ns``, ``memory_ns``, ``forward_ns``,
            ``backward_ns``; ``activities``. Empty where nothing tells layers.
        layer_source: ``modules``, ``annotations``, ``repeats`` or empty.
    """

    each: pl.DataFrame
    layers: pl.DataFrame
    layer_source: str

    def plot(self) -> Plot:
        """Return a stacked bar a rank: exclusive time of the mean iteration's phases, what overlaps, and idle time."""
        keys = ("rank", "iteration")
        each = self.each.group_by(keys, maintain_order=True).agg(
            pl.col("span_ns").first(),
            *(pl.col("exclusive_ns").filter(pl.col("phase") == name).sum().alias(name) for name in PHASES),
        )
        mean = each.group_by("rank", maintain_order=True).agg(pl.col("span_ns", *PHASES).mean())
        rest = pl.col("span_ns") - pl.sum_horizontal(PHASES)
        mean = mean.with_columns(rest.clip(0).alias("overlapped or idle"))
        colors = _COLORS | {"overlapped or idle": COLORS["idle"]}
        return stacked_bars(mean, "rank", [*PHASES, "overlapped or idle"], colors=colors, title="time of an iteration")


def phases(source: Source, *, options: Options | None = None) -> Phases:
    """Tell what each rank and iteration does when: the phases of a step, and its layers.

    Args:
        source: Traces, or where they are.
        options: Which iterations; ``by`` takes ``rank``, ``iteration`` and ``phase``, or instead of the phase ``layer``
            and ``module_type``.

    Raises:
        InputError: Nothing there, or an iteration that isn't there.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> op = builder.add("MulBackward0", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=True)
        >>> _ = builder.add("mul_kernel", NodeType.COMP_NODE, start_ns=9, duration_ns=5, stream=7, parent=op)
        >>> phases(builder.build()).table.select("phase", "device_ns").row(0)
        ('backward', 5)
    """
    return run_one(measure, combine, source, options)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One rank: its rows, its layers' rows, what tells the layers, host nodes with a guessed phase, and what to say."""

    table: pl.DataFrame
    layers: pl.DataFrame
    layer_source: str
    guessed: int
    notes: tuple[str, ...]


def measure(view: RankView) -> Part:
    """Tell one rank's activities apart by phase and layer."""
    node_phase, guessed = phases_of(view)
    steps, notes = _inference_steps(view, node_phase)
    code = _activity_phases(view, node_phase, steps)
    table = _phase_rows(view, code, node_phase, steps)
    names = pl.Series(PHASES).gather(code)
    layer, source = layers_of(view, names)
    return Part(table, layer_rows(view, layer, names), source, guessed, notes)


@dataclass(frozen=True, slots=True)
class _Step:
    """What is known of a window as a whole: the phase of everything in it (None: each node's own), and counts."""

    phase: str | None = None
    counts: Mapping[str, int | None] = field(default_factory=dict)


def _inference_steps(view: RankView, node_phase: Int) -> tuple[list[_Step], tuple[str, ...]]:
    """Return what is known of each window, [W], and what is to be said of that."""
    marked = {row["iteration"]: row for row in view.steps.table.to_dicts()}
    rows = [marked.get(window.iteration, {}) for window in view.windows]
    steps = [_Step(row["kind"], row) if row.get("kind") in _INFERENCE else _Step() for row in rows]
    if trains(node_phase) or all(step.phase for step in steps) or not _calls_operators(view):
        return steps, ()
    embedded = embedded_tokens(view)
    # What autograd records is the forward pass of a training step, cut off.
    records = view.trace.column("seq_id").is_not_null().any()
    notes = ["nothing computes or applies gradients: all work counts as forward, unless something tells more"]
    for place, step in enumerate(steps):
        found = embedded.get(place)
        if step.phase is None and found is not None:
            counts = {"context_tokens": found.tokens, "context_requests": found.requests}
            if found.kind == "decode":
                counts = {"generation_tokens": found.tokens, "generation_requests": found.requests}
            steps[place] = _Step("forward" if records else found.kind or "forward", counts)
            notes.append("tokens are those that the token embedding looks up: no marker counts them")
        elif step.phase is None:
            steps[place] = _Step("forward")
    return steps, tuple(dict.fromkeys(notes))


def _calls_operators(view: RankView) -> bool:
    """True if the trace has operators, and not runtime calls alone."""
    host = view.nodes["is_cpu_op"].fill_null(False)
    return bool((host & view.nodes["name"].str.contains("::", literal=True).fill_null(False)).any())


def _activity_phases(view: RankView, node_phase: Int, steps: list[_Step]) -> Int:
    """Return the place in `PHASES` of each activity, int64 [A]."""
    activities = view.activities
    own = of_activities(view, node_phase)
    code = np.where(own >= 0, own, _PLACE["other"])
    window = activities["window"].fill_null(-1).to_numpy()
    whole = np.array([*(_PLACE[step.phase] if step.phase else -1 for step in steps), -1], np.int64)[window]
    code = np.where(whole >= 0, whole, code)
    communicates = (activities["category"] == "communication").to_numpy()
    return np.where(communicates, _PLACE["communication"], code)


def _phase_rows(view: RankView, code: Int, node_phase: Int, steps: list[_Step]) -> pl.DataFrame:
    activities = view.activities
    begin, end = view.window_bounds
    chosen = activities["window"].is_not_null().to_numpy()
    start, until = activities["start_ns"].to_numpy(), activities["end_ns"].to_numpy()
    busy = cover_of(start, until).between(begin, end)
    count = _counts(view, code)
    rows: list[dict[str, object]] = []
    for place in np.unique(code[chosen]):
        mine = code == place
        device = cover_of(start[mine], until[mine]).between(begin, end)
        rest = cover_of(start[~mine], until[~mine]).between(begin, end)
        host = _host_time(view, node_phase, int(place), steps)
        for number, window in enumerate(view.windows):
            amount = count.get((number, int(place)), (0, 0))
            if not amount[0]:
                continue
            span = int(end[number] - begin[number])
            row = {
                "rank": view.rank,
                "iteration": window.iteration,
                "phase": PHASES[place],
                "span_ns": span,
                "device_ns": int(device[number]),
                "exclusive_ns": int(busy[number] - rest[number]),
                "activities": amount[0],
                "launches": amount[1],
                "host_ns": None if host is None else int(host[number]),
            }
            if PHASES[place] == steps[number].phase:
                row |= _rates(steps[number].counts, span)
            rows.append(row)
    table = pl.DataFrame(rows, schema=_SCHEMA)
    return table.sort("iteration", pl.col("phase").replace_strict(_PLACE, return_dtype=pl.Int64), maintain_order=True)


def _counts(view: RankView, code: Int) -> dict[tuple[int, int], tuple[int, int]]:
    table = pl.DataFrame({"window": view.activities["window"], "code": code, "call": view.launches["call_row"]}).filter(
        pl.col("window").is_not_null()
    )
    found = table.group_by("window", "code").agg(rows=pl.len(), calls=pl.col("call").drop_nulls().n_unique())
    return {(window, place): (rows, calls) for window, place, rows, calls in found.iter_rows()}


def _host_time(view: RankView, node_phase: Int, place: int, steps: list[_Step]) -> Int | None:
    """Return how long the host works on a phase in each window, int64 [W], ns; None for the device's communication."""
    nodes = view.nodes
    kinds = nodes["type"].fill_null(0).to_numpy()
    real = real_nodes(view.trace) & nodes["is_cpu_op"].fill_null(False).to_numpy()
    if not view.has_device:
        communicates = kinds >= NodeType.COMM_SEND_NODE
        real &= communicates if PHASES[place] == "communication" else ~communicates
    elif PHASES[place] == "communication":
        return None
    known = np.where(node_phase >= 0, node_phase, _PLACE["other"])
    covers = {}
    found = np.zeros(len(view.windows), np.int64)
    for number, window in enumerate(view.windows):
        every = PHASES[place] in (steps[number].phase, "communication")
        if every not in covers:
            rows = np.flatnonzero(real if every else real & (known == place))
            rows = rows[np.argsort(view.start_ns[rows], kind="stable")]
            covers[every] = cover_of(view.start_ns[rows], (view.start_ns + view.duration_ns)[rows])
        begin, end = np.array(window.host_range_ns, np.int64).reshape(2, 1)
        found[number] = covers[every].between(begin, end)[0]
    return found


def _rates(step: Mapping[str, int | None], span_ns: int) -> dict[str, object]:
    """Return tokens and rates of one step, as far as its marker tells."""

    def total(what: str) -> int | None:
        known = [value for side in ("context", "generation") if (value := step.get(f"{side}_{what}")) is not None]
        return sum(known) if known else None

    tokens, requests = total("tokens"), total("requests")
    generated, asking = step.get("generation_tokens"), step.get("generation_requests")
    found: dict[str, object] = {"tokens": tokens, "requests": requests, "kv_tokens": step.get("kv_tokens")}
    if tokens and span_ns:
        found["tokens_per_s"] = tokens * 1e9 / span_ns
    if generated and asking:
        found["output_token_ns"] = span_ns * asking // generated
    return found


def combine(parts: Mapping[int, Part], job: Job) -> Phases:
    """Put the ranks together."""
    keys = keys_of(job.options)
    table = pl.concat([parts[rank].table for rank in job.ranks])
    layers = pl.concat([parts[rank].layers for rank in job.ranks])
    sources = [parts[rank].layer_source for rank in job.ranks if parts[rank].layer_source]
    notes = [note for rank in job.ranks for note in parts[rank].notes]
    guessed = sum(parts[rank].guessed for rank in job.ranks)
    if guessed:
        notes.append(
            f"{guessed:,} host nodes between a step's first forward and first backward operator have no sign of their "
            "own, and count as forward"
        )
    if not sources:
        notes.append("neither modules nor annotations nor repeats tell layers")
    elif "repeats" in sources:
        notes.append("layers are what repeats inside a step: no module or annotation names them")
    other = table.filter(pl.col("phase") == "other")["device_ns"].sum()
    if 2 * other > table["device_ns"].sum():
        notes.append("most of the device's time belongs to no phase that annotations, autograd or modules tell")
    said = tuple(dict.fromkeys((*job.notes, *notes)))
    source = sources[0] if sources else ""
    per = job.per_stretch
    findings = (*_ratio_findings(table, per), *_token_findings(table, job), *_layer_findings(table, layers, per))
    findings = tuple(sorted(findings, key=lambda finding: -finding.cost_ns))
    parameters = job.options.as_dict() | {"by": list(keys)}
    rows = _rows_by(table, layers, keys)
    return Phases("phases", parameters, rows, job.coverage, said, findings, table, layers, source)


def _rows_by(table: pl.DataFrame, layers: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame:
    """Return the rows that were asked for."""
    if tells_layers(keys):
        return layer_means(layers, keys)
    if set(keys) == set(PHASE_KEYS):
        return table
    found = phase_means(table, keys)
    order = [pl.col(key) for key in ("rank", "iteration") if key in keys]
    if "phase" in keys:
        order.append(pl.col("phase").replace_strict(_PLACE, return_dtype=pl.Int64))
    return found.sort(order, maintain_order=True)


def _ratio_findings(table: pl.DataFrame, per: str) -> list[Finding]:
    """Say where a training step's phases are out of proportion."""
    steps = table.select("rank", "iteration").n_unique()
    time = {name: int(table.filter(pl.col("phase") == name)["device_ns"].sum()) for name in PHASES}
    if not steps or not (time["backward"] or time["optimizer"]):
        return []
    found = []
    forward, backward, optimizer = (time[name] // steps for name in ("forward", "backward", "optimizer"))
    if forward and backward and not _ODD_RATIO[0] <= backward / forward <= _ODD_RATIO[1]:
        why = "2 is usual, 3 where activations are recomputed"
        found.append(
            Finding(
                f"the backward pass takes {backward / forward:.1f} times the forward pass ({format_ns(backward)} and "
                f"{format_ns(forward)} of device time {per}); {why}",
                max(backward - 2 * forward, 0),
            )
        )
    total = forward + backward + optimizer
    if optimizer > _LARGE_OPTIMIZER * total:
        share = format_share(optimizer, total)
        text = f"the optimizer takes {share} of the computing phases' device time, {format_ns(optimizer)} {per}"
        found.append(Finding(text, optimizer))
    return found


def _token_findings(table: pl.DataFrame, job: Job) -> list[Finding]:
    """Say how fast tokens are computed, where markers tell."""
    found = []
    # With tensor parallelism, ranks compute parts of the same tokens: rates of ranks don't add up.
    shared = "; ranks that share tokens aren't told apart" if job.world_size > 1 else ""
    for name in (*_INFERENCE, "forward"):
        rows = table.filter((pl.col("phase") == name) & pl.col("tokens_per_s").is_not_null())
        tokens, span = int(rows["tokens"].sum()), int(rows["span_ns"].sum())
        if not span:
            continue
        count = format_number_of(tokens // rows.height, "token")
        text = f"{name}: a {job.stretch} of {count} takes {format_ns(span / rows.height)}"
        text += f", {tokens * 1e9 / span:,.0f} tokens/s{shared}"
        each = rows["output_token_ns"].median()
        if isinstance(each, float):
            text += f"; {format_ns(each)} an output token"
        found.append(Finding(text))
    return found


def _layer_findings(table: pl.DataFrame, layers: pl.DataFrame, per: str) -> list[Finding]:
    """Say which layer computes much longer than others of its type, if that shows in a step.

    Waiting isn't counted: how long a communication runs in a layer depends on other ranks, not on the layer.
    """
    spans = table.group_by("rank", "iteration").agg(pl.col("span_ns").first())["span_ns"]
    found = []
    each = layers.group_by("module_type", "layer", maintain_order=True).agg(pl.col("compute_ns").mean())
    for (kind,), rows in each.group_by("module_type", maintain_order=True):
        if rows.height < _FEWEST_LAYERS:
            continue
        middle = float(rows["compute_ns"].median())  # type: ignore[arg-type]
        slowest = rows.sort("compute_ns", descending=True, maintain_order=True).row(0, named=True)
        more = slowest["compute_ns"] - middle
        if slowest["compute_ns"] > _SLOW_LAYER * middle > 0 and more > _NOTABLE * float(spans.mean()):  # type: ignore[arg-type]
            text = (
                f"layer {slowest['layer']} computes for {format_ns(slowest['compute_ns'])} {per}, "
                f"{slowest['compute_ns'] / middle:.1f} times the median {kind} ({format_ns(middle)})"
            )
            found.append(Finding(text, int(more)))
    return found
