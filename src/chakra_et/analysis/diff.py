"""What changed from one trace set to another: steps, operators, kernels, communications, shapes, launches, nodes.

Shape letters: I items, R rows, W windows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import polars as pl

from chakra_et.analysis import diff_plot, diff_words
from chakra_et.analysis.diff_build import Built, build
from chakra_et.analysis.diff_nodes import Kinship, Timing, kinship
from chakra_et.analysis.diff_pairs import Cut, Kept, Pairs, keep, measured_pairs
from chakra_et.analysis.options import Options, check_keys
from chakra_et.analysis.result import Finding, Plot, Result
from chakra_et.analysis.run import Progress, Source, measure_all
from chakra_et.errors import InputError

__all__ = ["Diff", "Match", "diff"]

Match = Literal["auto", "ids", "names"]
_MATCHES = ("auto", "ids", "names")
_SHOWN_NODES = 100


@dataclass(frozen=True, slots=True, eq=False)
class Diff(Result):
    """What changed. All times and counts are those of a step: means over the chosen iterations and the ranks.

    Columns of `table`, a row for each thing that both sets have, or one of them; the step, then the largest slowdown
    first:

    * ``rank``, if asked for: as it is called before.
    * ``what``: ``step``; ``op``: an operator with its shapes, by the time of the device activities that it launched
      (on ranks without a device, its own); ``kernel``: one kernel of an operator; ``communication``; ``launch``: a
      runtime call that launches, by its own time; ``host``: the host's other work, by name. Rows of one ``what`` count
      each ns once; a kernel's time is in its operator's row again.
    * ``match``: ``same``; ``shapes`` (the same operator or communication, of other shapes, types or bytes); ``renamed``
      (at its place in the program is one of another name); ``added``, ``removed``.
    * ``name``, ``op`` (of a kernel), ``pg_name``, ``shapes``, ``types`` (of inputs; of a communication, its bytes and
      element type), as before, or as after where it was added; ``after_name``, ``after_shapes``, ``after_types`` where
      they changed.
    * ``before_ns``, ``after_ns``, ``change_ns``: durations added up; what runs at once counts each. ``ratio``: after by
      before, null where there was nothing. ``before_count``, ``after_count``.
    * ``significant``: the change is larger than what steps vary by among themselves (see
      `chakra_et.analysis.diff_noise`); null where that can't be told: one iteration each, or matched by ids: copies
      hold the same steps, and what changed was changed.

    Attributes:
        steps: The step and its parts: ``part``, ``before_ns``, ``after_ns``, ``change_ns``, ``ratio``, ``significant``.
            step = compute + exposed_communication + memory + idle, and idle is the sum of its causes ``idle_...``, to
            the ns, before, after and in the change.
        iterations: The breakdown of each iteration: ``side``, then the columns of `chakra_et.analysis.breakdown`.
        shapes: Of `table`, operators whose shapes or types changed.
        added: Of `table`, operators, kernels and communications that are only in the second set.
        removed: Of `table`, those that are only in the first.
        communications: ``match``, ``comm_type``, ``pg_name``, ``size_bytes``, ``after_size_bytes``, ``comm_dtype``,
            ``kernel``, ``after_kernel``, and times and counts as in `table`.
        launches: Of `table`, the rows of runtime calls.
        nodes: Matched by ids, a row a node: ``rank``, ``id``, ``name``, ``before_start_ns``, ``after_start_ns``,
            ``start_change_ns``, ``before_duration_ns``, ``after_duration_ns``, ``duration_change_ns``, the largest
            change of duration first; starts count from the first node. Else empty.
        timing: Matched by ids, how far nodes lie apart; else None.
        matched_by: ``ids`` or ``names``.
        warning: That the sets look like different jobs, if they do: the first of the notes and findings, too; else
            empty.
    """

    steps: pl.DataFrame
    iterations: pl.DataFrame
    shapes: pl.DataFrame
    added: pl.DataFrame
    removed: pl.DataFrame
    communications: pl.DataFrame
    launches: pl.DataFrame
    nodes: pl.DataFrame
    timing: Timing | None
    matched_by: str
    warning: str

    @property
    def headline(self) -> str:
        """What changed in one sentence."""
        return diff_words.headline(self.steps)

    @property
    def slowdown(self) -> float | None:
        """How much longer a step takes, as a share of the step before; None without a step before."""
        step = self.steps.filter(pl.col("part") == "step")
        before = int(step["before_ns"].sum())
        return int(step["change_ns"].sum()) / before if before else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data: what ``chakra diff --json`` prints; of `nodes`, the 100 that changed most."""
        tables = {name: getattr(self, name).to_dicts() for name in ("steps", "communications", "launches")}
        return {
            **Result.as_dict(self),
            **tables,
            "matched_by": self.matched_by,
            "timing": None if self.timing is None else self.timing.as_dict(),
            "nodes": self.nodes.head(_SHOWN_NODES).to_dicts(),
        }

    def plot(self) -> Plot:
        """Return the way from the step before to the step after, part by part, and the largest changes below."""
        return diff_plot.plot(self.steps, self.table)


def diff(
    before: Source,
    after: Source,
    *,
    options: Options | None = None,
    match: Match = "auto",
    jobs: int = 0,
    progress: Progress | None = None,
) -> Diff:
    """Say what changed from one trace set to another.

    Args:
        before: Traces, or where they are.
        after: Traces, or where they are.
        options: Which iterations (of both); ``by`` takes ``rank``.
        match: ``ids``: nodes of equal ids are the same node (a simulated, replayed or edited copy); ``names``: what
            belongs together is found by operator, shapes, kernel and position; ``auto``: by ids in copies: nearly all
            nodes of both sets, or all of one, have the same id, name, thread, stream and correlation in both, and the
            sets weren't made from other files.
        jobs: Processes for files; 0: one a core if they are large, else 1.
        progress: Called with the stage, ranks done, ranks in all.

    Raises:
        InputError: Nothing there, an iteration that isn't there, or ids are wanted and few are in both.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> def trace(duration_ns):
        ...     builder = TraceBuilder(rank=0)
        ...     where = {"is_cpu_op": False, "stream": 7}
        ...     _ = builder.add("gemm", NodeType.COMP_NODE, start_ns=0, duration_ns=duration_ns, **where)
        ...     return builder.build()
        >>> diff(trace(5), trace(8)).table.select("what", "name", "change_ns").rows()
        [('step', 'step', 3), ('kernel', 'gemm', 3)]
    """
    options = options or Options()
    if match not in _MATCHES:
        raise InputError(f"match: expected one of {', '.join(_MATCHES)}, got '{match}'; leave it out")
    keys = check_keys(options, ("rank",), ()) if options.by else ()
    sources = before, after
    kept = tuple(_kept(source, keep, options, jobs, progress) for source in sources)
    pairs = measured_pairs(kept[0], kept[1])
    kin = kinship([(one.part, two.part) for one, two in pairs.ranks.values()], strict=match == "auto")
    if match == "ids" and not kin.related:
        got = f"{kin.shared:,} of {kin.before:,} before and {kin.after:,} after" if kin.shared else "none"
        raise InputError(
            f"match: expected nodes of equal ids and names in both sets, got {got}; leave it out, or match by names"
        )
    by_ids = match == "ids" or (match == "auto" and kin.copies)
    if by_ids and kin.part is not None:
        pairs = _cut_to_part(sources, kept, pairs, kin.part, options, jobs)
    built = build(pairs, by_ids=by_ids, keys=keys)
    return _result(pairs, built, options, keys, kin=kin if by_ids else None)


def _kept(source: Source, measure: Any, options: Options, jobs: int, progress: Progress | None) -> dict[int, Kept]:
    measured = measure_all([measure], source, options, jobs=jobs, progress=progress)
    return {rank: one.parts[0] for rank, one in measured.items()}


def _cut_to_part(
    sources: tuple[Source, Source],
    kept: tuple[dict[int, Kept], ...],
    pairs: Pairs,
    part: int,
    options: Options,
    jobs: int,
) -> Pairs:
    """Measure the larger set again, without what the smaller one lacks: one of its iterations, as a rule.

    Both are then looked at whole: what the smaller one holds was chosen when it was made.
    """
    whole = 1 - part
    ids = {pair[whole].facts.rank: pair[part].part.ids for pair in pairs.ranks.values()}
    if options.iteration is None:
        options = replace(options, iteration="all")
    again = [dict(kept[0]), dict(kept[1])]
    again[part] = _kept(sources[part], keep, options, jobs, None)
    again[whole] = _kept(sources[whole], Cut(ids), options, jobs, None)
    note = f"the set {('before', 'after')[part]} is a part of the other one, which is cut to it"
    found = measured_pairs(again[0], again[1])
    return replace(found, notes=(*found.notes, note))


def _result(pairs: Pairs, built: Built, options: Options, keys: tuple[str, ...], *, kin: Kinship | None) -> Diff:
    """Put a comparison together; `kin` tells how nodes relate, where they were matched by ids."""
    by_ids = kin is not None
    parameters = options.as_dict() | {
        "by": list(keys),
        "match": "ids" if by_ids else "names",
        "ranks": [[one, two] for one, two in pairs.names],
    }
    table = built.table
    things = pl.col("what").is_in(["op", "kernel", "communication"])
    warning = () if by_ids else diff_words.unlike(built)
    return Diff(
        name="diff",
        parameters=parameters,
        table=table,
        coverage=pairs.coverage(options),
        notes=(*warning, *pairs.notes, *diff_words.notes(pairs, built, kin=kin)),
        findings=(*map(Finding, warning), *diff_words.findings(built)),
        steps=built.steps,
        iterations=built.iterations,
        shapes=table.filter((pl.col("what") == "op") & (pl.col("match") == "shapes")),
        added=table.filter(things & (pl.col("match") == "added")),
        removed=table.filter(things & (pl.col("match") == "removed")),
        communications=built.communications,
        launches=table.filter(pl.col("what") == "launch"),
        nodes=built.nodes,
        timing=built.timing,
        matched_by="ids" if by_ids else "names",
        warning="".join(warning),
    )
