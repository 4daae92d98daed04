"""A comparison in words: the headline, what got slower, what appeared, and what can't be told."""

from __future__ import annotations

import polars as pl

from chakra_et.analysis.diff_build import Built
from chakra_et.analysis.diff_nodes import Kinship
from chakra_et.analysis.diff_noise import ENOUGH
from chakra_et.analysis.diff_pairs import Pairs
from chakra_et.analysis.result import Finding
from chakra_et.units import format_bytes, format_ns, format_number_of, format_share

__all__ = ["findings", "headline", "label", "notes", "signed", "unlike"]

_PARTS = {"compute": "compute", "exposed_communication": "exposed communication", "memory": "memory", "idle": "idle"}
_TOP = 3
_NAME = 60
# Below this share of the step, a change isn't worth a sentence.
_LEAST = 0.001
# Of one job, more of the time has a counterpart, even if it was compiled or runs on another device.
_ALIKE = 0.5


def signed(value_ns: int) -> str:
    """Return a change of time with its sign."""
    return f"{'-' if value_ns < 0 else '+'}{format_ns(abs(value_ns))}"


def percent(before_ns: int, after_ns: int) -> str:
    """Return a change in percent, with its sign; "new" where there was nothing."""
    if not before_ns:
        return "new" if after_ns else "+0.0 %"
    return f"{100 * (after_ns - before_ns) / before_ns:+.1f} %"


def headline(steps: pl.DataFrame) -> str:
    """Return what happened to the step in one sentence, the parts by how much they changed."""
    sums = {
        part: (before, after)
        for part, before, after in steps.group_by("part", maintain_order=True)
        .agg(pl.col("before_ns", "after_ns").mean().round().cast(pl.Int64)).iter_rows()
    }  # fmt: skip
    before, after = sums["step"]
    parts = sorted(
        ((after - before, part) for part, (before, after) in sums.items() if part in _PARTS),
        key=lambda one: -abs(one[0]),
    )
    told = ", ".join(f"{_PARTS[part]} {signed(change)}" for change, part in parts if change)
    return f"step {format_ns(before)} -> {format_ns(after)}, {percent(before, after)}" + (f": {told}" if told else "")


def label(row: dict[str, str | None], *, after: bool = False) -> str:
    """Return what a row of the table is called.

    Args:
        row: ``what``, ``name``, ``after_name``, ``shapes``, ``after_shapes``, ``pg_name``.
        after: True for its name after.
    """
    name = str((row["after_name"] if after else None) or row["name"])
    shapes = (row["after_shapes"] if after else None) or row["shapes"]
    if row["what"] == "communication":
        size = f" {format_bytes(int(shapes))}" if shapes else ""
        return name + size + (f", group {row['pg_name']}" if row["pg_name"] is not None else "")
    return f"{name} {shapes}" if shapes and row["what"] == "op" else name


def short(text: str, length: int = _NAME) -> str:
    """Return a text, cut in its middle where it is long."""
    return text if len(text) <= length else f"{text[: length - 20]}...{text[-17:]}"


def findings(built: Built) -> tuple[Finding, ...]:
    """Say what is worth knowing."""
    step = built.steps.filter(pl.col("part") == "step")
    before, change = int(step["before_ns"].mean() or 0), int(step["change_ns"].mean() or 0)  # type: ignore[arg-type]
    noise = "; steps vary as much by themselves" if step["significant"].eq(False).any() else ""
    said = [Finding(headline(built.steps) + noise, max(change, 0), about="step")]
    table = built.table.filter(
        pl.col("what").is_in(["op", "communication", "host", "launch"])
        | (pl.col("what") == "kernel") & pl.col("op").is_null()
    )
    least = max(before, 1) * _LEAST
    slower = table.filter(
        (pl.col("change_ns") > least) & (pl.col("match") != "added") & pl.col("significant").fill_null(True)
    )
    for row in slower.head(_TOP).iter_rows(named=True):
        times = f"{format_ns(row['before_ns'])} to {format_ns(row['after_ns'])} a step"
        calls = [f"{row[name]:,.4g}" for name in ("before_count", "after_count")]
        told = "" if calls[0] == calls[1] else f", in {calls[1]} calls instead of {calls[0]}"
        said.append(Finding(f"{row['what']} {short(label(row))} went from {times}{told}", row["change_ns"]))
    said += [
        *_gone(table, "added", "after_ns", least),
        *_gone(table, "removed", "before_ns", least),
        *_counts(built.table, "launch", "launches"),
        *_counts(built.table, "communication", "communications"),
        *_others(built.table),
    ]
    return tuple(said)


def _gone(table: pl.DataFrame, match: str, column: str, least: float) -> list[Finding]:
    """Say what is in one set only."""
    own = table.filter((pl.col("match") == match) & (pl.col("what") != "host")).sort(column, descending=True)
    if not own.height:
        return []
    total = int(own[column].sum())
    fate = "appeared" if match == "added" else "disappeared"
    what = " and ".join(f"{word}s" for word in ("op", "kernel", "communication", "launch") if word in own["what"])
    what = what.replace("ops", "operators").replace("launchs", "launching calls")
    row = own.row(0, named=True)
    text = f"{own.height:,} kinds of {what} {fate}, {format_ns(total)} a step"
    text += f"; the largest is {row['what']} {short(label(row))} with {format_ns(row[column])}"
    return [Finding(text, total if match == "added" and total > least else 0)]


def _counts(table: pl.DataFrame, what: str, words: str) -> list[Finding]:
    """Say by how much a number changed."""
    own = table.filter(pl.col("what") == what)
    before, after = float(own["before_count"].sum()), float(own["after_count"].sum())
    if not own.height or abs(after - before) < 0.5:
        return []
    share = f" ({100 * (after - before) / before:+.1f} %)" if before else ""
    ranks = own["rank"].n_unique() if "rank" in own.columns else 1
    return [Finding(f"{words} a step: {before / ranks:,.4g} before, {after / ranks:,.4g} after{share}")]


def _others(table: pl.DataFrame) -> list[Finding]:
    """Say how many operators changed shapes, and how much time runs in other kernels."""
    said = []
    reshaped = table.filter((pl.col("what") == "op") & (pl.col("match") == "shapes"))
    if reshaped.height:
        row = reshaped.row(0, named=True)
        now = [row[f"after_{name}"] for name in ("shapes", "types") if row[f"after_{name}"] != row[name]]
        change = f"such as {short(label(row))}, now {short(str(now[0]), 40) if now and now[0] else 'unknown'}"
        said.append(Finding(f"{format_number_of(reshaped.height, 'operator')} changed shapes or types, {change}"))
    kernels = table.filter(pl.col("what") == "kernel")
    renamed = kernels.filter(pl.col("match") == "renamed")
    if renamed.height:
        share = format_share(int(renamed["before_ns"].sum()), int(kernels["before_ns"].sum()))
        said.append(
            Finding(
                f"kernels of other names do the same work in {share} of the kernels' time: another library, device "
                "or choice of algorithm"
            )
        )
    return said


def unlike(built: Built) -> tuple[str, ...]:
    """Say that the sets look like different jobs, if they do."""
    before, after = built.matched
    if before is None or after is None or min(before, after) >= _ALIKE:
        return ()
    shares = [format_share(share, 1) for share in (before, after)]
    return (
        f"these look like different jobs: work of {shares[0]} of the time before and {shares[1]} after has a "
        "counterpart, and the rest is no change of anything",
    )


def notes(pairs: Pairs, built: Built, *, kin: Kinship | None) -> list[str]:
    """Say how the sets were matched, and what can't be told.

    Args:
        pairs: The ranks.
        built: The tables.
        kin: How nodes relate, if they were matched by ids.
    """
    said = []
    devices = {tuple(kept.facts.has_device for kept in pair) for pair in pairs.ranks.values()}
    if any(one != two for one, two in devices):
        said.append(
            "only one of the sets has device activities: host work is compared with them, and times mean other things"
        )
    if kin is not None:
        shares = [format_share(kin.shared, count) for count in (kin.before, kin.after)]
        same = f"{shares[0]} of the nodes before and {shares[1]} after are in both sets"
        if kin.copies:
            same = "the sets hold the same graph"
        said.append(f"matched by node ids: {same}, and no change is taken for noise")
    elif None not in built.matched:
        shares = [format_share(share or 0.0, 1) for share in built.matched]
        said.append(
            f"matched by operator, shapes, kernel and position: {shares[0]} of the time before and {shares[1]} after "
            "have a counterpart"
        )
    before, after = built.samples
    if not min(before, after):
        said.append("a set has no activity in the chosen iterations: there is nothing to compare with")
    elif kin is not None:
        return said
    elif max(before, after) == 1:
        said.append("one iteration each: whether a change is more than noise can't be told")
    elif min(before, after) < ENOUGH:
        said.append(
            f"few iterations ({before} before, {after} after): Welch's t-test tells whether a change is beyond noise"
        )
    return said
