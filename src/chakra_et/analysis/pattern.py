"""Iterations of a trace without markers, from what repeats.

Names become codes. Candidates for the period come from the autocorrelation of random signs of the codes (by FFT, so in
N log N), and from names that are rare and evenly spaced. Each candidate is then verified exactly: the sequence is
followed one period back, past things that were added or are missing; the share of positions that have a counterpart is
the match. The best match counts, of equal ones the shortest period: a step, and neither a layer nor two steps.

Shape letters: N positions, A activities, C codes, R repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et._jit.chains import chain_heads
from chakra_et._jit.repeats import follow

__all__ = ["Period", "codes_of", "find_period", "likely_lags", "repeated_steps"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

# The smallest share of positions that have a counterpart one period earlier.
_MATCH = 0.95
_COMPLETE = 0.9
_LONGEST = 1.5
_ALIKE = 0.0015
_NOISE = 0.2
_SAME = 1.05
_EDGE = 4
_FOREIGN = 200
_ODD = 10
_MAIN_SHARE = 0.3
_REACH = 48
_PROJECTIONS = 3
_CANDIDATES = 8
_FIRST = (0.98, 0.92, 0.8)
_SHORTEST = 4
_FEWEST = 20


@dataclass(frozen=True, slots=True, eq=False)
class Period:
    """A sequence that repeats.

    Attributes:
        length: Median number of positions of a repeat.
        starts: int64 [R]: where each complete repeat begins.
        end: The position after the last complete repeat.
        match: Share of the positions, from the second repeat on, that have a counterpart one period earlier, 0 to 1.
        coverage: Share of the sequence that lies in complete repeats, 0 to 1; the rest is partial repeats at the ends.
    """

    length: int
    starts: Int
    end: int
    match: float
    coverage: float

    @property
    def count(self) -> int:
        """Number of complete repeats."""
        return len(self.starts)


def find_period(names: pl.Series | Int, *, idle_ns: Int | None = None) -> Period | None:
    """Find the repeats that a whole sequence consists of, but for partial ones at its ends.

    Args:
        names: Names in order, [N], or their int64 codes.
        idle_ns: Idle time before each, [N]: a repeat begins where it is longest on average; without it, where the
            sequence begins.

    Returns:
        The repeats, at least 2; None if the sequence doesn't consist of any. Layers inside a single step are not taken
        for steps: what stands before and after them belongs to no repeat.

    Example:
        >>> period = find_period(pl.Series(["load", "gemm", "gemm", "norm", "adam"] * 4))
        >>> period.length, period.count
        (5, 4)
    """
    codes = codes_of(names)
    if len(codes) < _FEWEST:
        return None
    todo = likely_lags(codes, int(len(codes) / 2 * 1.02) + 1)
    tried: dict[int, _Alignment | None] = {}
    while todo:
        lag = todo.pop()
        if lag not in tried:
            tried[lag] = aligned = _align(codes, lag)
            todo += [aligned.lag] if aligned is not None else []
    good = [aligned for aligned in tried.values() if aligned is not None and aligned.share >= _MATCH]
    if not good:
        return None
    best = max(aligned.settled for aligned in good)
    equal = [aligned for aligned in good if aligned.settled >= best - _ALIKE - _NOISE * (1 - best)]
    shortest = min(aligned.lag for aligned in equal)
    # Where things are missing or added, several distances stand for one period: the one that fits best counts.
    chosen = max((a for a in equal if a.lag <= _SAME * shortest), key=lambda a: (a.matched, -a.shifted, -a.lag))
    return _repeats(chosen, idle_ns) if _steps_only(chosen) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Alignment:
    """A sequence laid on itself.

    Attributes:
        before: int64 [N]: the position one period earlier; -1 for none.
        used: bool [N]: a counterpart one period earlier or later is there.
        lag: Median distance.
        share: Share of the positions with a counterpart.
        settled: The same without the first tenth, where a run may do things once.
        matched: Share of those from the second repeat on that have one a period earlier.
        shifted: At how many positions the distance is another one.
    """

    before: Int
    used: npt.NDArray[np.bool_]
    lag: int
    share: float
    settled: float
    matched: float
    shifted: int


def _align(codes: Int, lag: int) -> _Alignment | None:
    """Follow the sequence one period back; None if so little of it has a counterpart that it was given up."""
    count = len(codes)
    before = _followed(codes, lag, int(2 * (1 - _MATCH) * count) + 2 * _SHORTEST)
    used = before >= 0
    places = np.flatnonzero(used)
    if len(places) < count // 4:
        return None
    used[before[places]] = True
    # Where things are missing or added the distance shifts: the median is the period, whatever it began with.
    distance = places - before[places]
    middle = int(np.median(distance))
    matched = min(len(places) / max(count - middle, 1), 1.0)
    settled = float(used[count // 10 :].mean())
    return _Alignment(before, used, middle, float(used.mean()), settled, matched, int((distance != middle).sum()))


def _followed(codes: Int, lag: int, patience: int) -> Int:
    """Return each position's counterpart one period earlier, int64 [N], from where the period holds longest both ways.

    The first repeat may differ from all others; what is odd in one is missed twice: back from it, and back at it.
    """
    count = len(codes)
    unequal = np.flatnonzero(codes[lag:] != codes[:-lag])
    edges = np.concatenate(([-1], unequal, [count - lag]))
    longest = int(np.diff(edges).argmax())
    begin = int(edges[longest]) + 1 + lag
    before: Int = follow(codes, begin, lag, _REACH, patience)
    if begin > lag:
        back = follow(codes[::-1].copy(), count - begin + lag, lag, _REACH, patience)
        places = np.flatnonzero(back >= 0)
        before[count - 1 - back[places]] = count - 1 - places
    # At the ends, some name may recur at once.
    before[np.arange(count) - before < lag // 2] = -1
    return before


def _steps_only(aligned: _Alignment) -> bool:
    """True if what belongs to no repeat is rare: so a step that is mostly equal layers is told from a run of steps.

    A step begins and ends with something that its layers don't do. A run of steps may have something of its own before
    it (building an optimizer's state), odd things inside, and partial steps at its ends.
    """
    used, lag = aligned.used, aligned.lag
    steady = np.flatnonzero(np.convolve(used, np.ones(_EDGE), mode="valid") == _EDGE)
    if not len(steady):
        return False
    head = int((~used[: steady[0]]).sum())
    tail = int((~used[steady[-1] + _EDGE :]).sum())
    if head > lag // _FOREIGN and tail > lag // _FOREIGN:
        return False
    settled = used[min(2 * lag, len(used) // 2) :]
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (~settled).astype(np.int8), [0]))))
    odd = edges[1::2] - edges[::2]
    return not len(odd) or int(odd.max()) <= max(2, lag // _ODD)


def codes_of(names: pl.Series | Int) -> Int:
    """Return a code for each name, int64 [N], from 0."""
    if isinstance(names, pl.Series) and not names.dtype.is_integer():
        codes: Int = names.fill_null("").cast(pl.Categorical).to_physical().cast(pl.Int64).to_numpy()
        return codes
    values = names.to_numpy() if isinstance(names, pl.Series) else names
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def likely_lags(codes: Int, longest: int) -> list[int]:
    """Return distances at which much of a sequence may equal itself, ascending.

    Args:
        codes: int64 [N], from 0.
        longest: The longest distance.
    """
    longest = min(longest, len(codes) - 1)
    correlation = _autocorrelation(codes)[: longest + 1]
    correlation[:_SHORTEST] = -np.inf
    # Things added or missing spread a peak over its neighbors.
    width = 9
    spread = np.convolve(np.maximum(correlation, 0), np.ones(width), mode="same")
    spread[:_SHORTEST] = -np.inf
    lags = {*_peaks(correlation), *_peaks(spread), *_spacings(codes, longest)}
    return sorted(lag for lag in lags if _SHORTEST <= lag <= longest)


def _autocorrelation(codes: Int) -> Float:
    """Estimate for each lag how much of the sequence equals itself, float64 [N]; rare names weigh more each."""
    count = len(codes)
    size = 1 << (2 * count - 1).bit_length()
    often = np.bincount(codes).astype(np.float64)
    weight = np.where(often > 1, np.maximum(often, 1) ** -0.25, 0.0)
    random = np.random.default_rng(0)
    power = np.zeros(size // 2 + 1)
    for _ in range(_PROJECTIONS):
        signs = random.integers(0, 2, len(often)) * 2 - 1
        spectrum = np.fft.rfft((weight * signs)[codes], size)
        power += spectrum.real**2 + spectrum.imag**2
    found: Float = np.fft.irfft(power, size)[:count]
    return found / np.maximum(count - np.arange(count), 1)


def _peaks(values: Float) -> list[int]:
    """Return the highest lags, each with its neighbors left out, and the first ones of about their height."""
    left = values.copy()
    top = float(left.max())
    # The period's multiples are about as high as itself: the first of the highest ones is it.
    found = [int((left >= share * top).argmax()) for share in _FIRST if top > 0]
    for _ in range(_CANDIDATES):
        lag = int(left.argmax())
        if not left[lag] > 0:
            break
        found.append(lag)
        near = max(2, lag // 200)
        left[max(0, lag - near) : lag + near + 1] = -np.inf
    return found


def _spacings(codes: Int, longest: int) -> list[int]:
    """Return the distances at which most evenly spaced names recur."""
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    gap, code = np.diff(order)[same], codes[order][1:][same]
    if not len(gap):
        return []
    first = np.flatnonzero(np.diff(code, prepend=-1))
    low, high = np.minimum.reduceat(gap, first), np.maximum.reduceat(gap, first)
    middle = np.add.reduceat(gap, first) // np.diff(np.append(first, len(gap)))
    even = (high - low <= middle // 10 + 2) & (middle >= _SHORTEST) & (middle <= longest)
    spacing, votes = np.unique(middle[even], return_counts=True)
    most: list[int] = spacing[np.argsort(-votes, kind="stable")][:_CANDIDATES].tolist()
    return most


def _repeats(aligned: _Alignment, idle_ns: Int | None) -> Period | None:
    """Cut the sequence where the idle time before a position and its counterparts is longest on average."""
    count, lag = len(aligned.before), aligned.lag
    first = chain_heads(aligned.before)
    members = np.bincount(first, minlength=count)
    full = members >= max(2, min(count // lag, int(members.max())))
    if not full.any():
        return None
    phase = int(np.flatnonzero(full)[0])
    # A profile of whole steps begins with one, though a step may wait longer inside than at its start.
    if idle_ns is not None and (phase > lag // _FOREIGN or not _multiple(count, lag)):
        known = np.ones(count)
        known[0] = 0
        total = np.bincount(first, np.asarray(idle_ns, np.float64) * known, count)
        mean = np.where(full, total / np.maximum(np.bincount(first, known, count), 1), -1.0)
        phase = int(mean.argmax())
    return _cut(np.flatnonzero(first == phase), count, aligned.share)


def _cut(starts: Int, count: int, share: float) -> Period | None:
    """Return the repeats that begin at `starts` [R] of one chain; None if they don't go through the whole sequence."""
    length = int(np.median(np.diff(starts)))
    end = count if count - starts[-1] >= _COMPLETE * length else int(starts[-1])
    starts = starts if end == count else starts[:-1]
    if starts[0] >= _COMPLETE * length:
        starts = np.concatenate(([0], starts))
    sizes = np.diff(np.append(starts, end))
    # The first may build an optimizer's state; else a chain that breaks off, or jumps, is none of steps.
    if len(starts) < 2 or (sizes[1:] > _LONGEST * length).any() or sizes[0] > 2 * length:
        return None
    return Period(length, starts.astype(np.int64), end, share, (end - int(starts[0])) / count)


def _multiple(count: int, lag: int) -> bool:
    left = count % lag
    return min(left, lag - left) <= max(2, lag // _FOREIGN)


def repeated_steps(activities: pl.DataFrame, *, issued_ns: Int | None = None) -> tuple[pl.DataFrame, Period] | None:
    """Find the iterations of a rank from what its busiest stream, else all of them together, do again and again.

    Args:
        activities: Activities by start, [A]: columns `name`, `start_ns`, `end_ns`, `device`, `stream` (thread, where
            there is no device).
        issued_ns: When the host launched each, [A]; without it the table's times are the device's.

    Returns:
        A table of complete repeats (`iteration` from 0, `label`, `begin_ns`, `end_ns`: from the launch of a repeat's
        first activity to that of the next one's first), and the period; None if nothing repeats.
    """
    if activities.height < _FEWEST:
        return None
    busy = activities.group_by("device", "stream").agg(
        busy=(pl.col("end_ns") - pl.col("start_ns")).sum(), rows=pl.len()
    )
    main = busy.sort("rows", "busy", descending=True).row(0, named=True)
    on_main = (pl.col("device") == main["device"]) & (pl.col("stream") == main["stream"])
    chosen = activities.with_row_index("place").filter(on_main)["place"].to_numpy()
    found = None
    for places in (chosen, np.arange(activities.height))[len(chosen) < _MAIN_SHARE * activities.height :]:
        part = activities[places]
        begin, end = part["start_ns"].to_numpy(), np.maximum.accumulate(part["end_ns"].to_numpy())
        idle = np.maximum(begin - np.concatenate((begin[:1], end[:-1])), 0)
        found = find_period(part["name"], idle_ns=idle)
        if found is not None:
            return _ranges(found, places, activities, issued_ns), found
    return None


def _ranges(period: Period, places: Int, activities: pl.DataFrame, issued_ns: Int | None) -> pl.DataFrame:
    begin = activities["start_ns"].to_numpy()[places]
    last = int(activities["end_ns"].to_numpy()[places[: period.end]].max())
    when = begin if issued_ns is None else issued_ns[places]
    if (np.diff(when[period.starts]) <= 0).any():
        when = begin
    after = int(when[period.end]) if period.end < len(when) else max(last, int(when[-1]) + 1)
    edges = np.append(when[period.starts], max(after, int(when[period.starts[-1]]) + 1))
    return pl.DataFrame(
        {
            "iteration": np.arange(period.count),
            "label": [f"repeat {number}" for number in range(period.count)],
            "begin_ns": edges[:-1],
            "end_ns": edges[1:],
        }
    )
