"""Convert profiles: one rank after the other or in parallel, then across ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from chakra_et.conversion.discover import HEAD_BYTES, Discovery, Source, discover, kind_of, rank_of
from chakra_et.conversion.manifest import add_manifest
from chakra_et.conversion.op_counts import with_op_counts
from chakra_et.conversion.quality import Failure, Quality, RankQuality, measure_rank
from chakra_et.errors import ChakraError, InputError
from chakra_et.frontends.pytorch.convert import convert_rank
from chakra_et.frontends.pytorch.convert_host import convert_host
from chakra_et.frontends.pytorch.parse_et import parse_et
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto
from chakra_et.io import read_bytes, read_head, refuse_existing, refuse_no_folder, write, write_atomic
from chakra_et.ir.trace import Trace
from chakra_et.ir.trace_set import TraceSet
from chakra_et.passes.fuse import fuse
from chakra_et.passes.match_comms import Matching, match_comms, merge_groups

__all__ = ["ConversionResult", "ConvertOptions", "convert", "convert_to"]

Progress = Callable[[str, int, int], None]
Detail = Literal["op", "launch", "device"]
_KINDS = {"host": "PyTorch execution trace", "device": "Kineto profile"}
# Below this (compressed), starting processes takes longer than converting.
_WORTH_PROCESSES_BYTES = 5 << 20


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """How to convert.

    Attributes:
        detail: ``op``: every operator; ``launch``: host time fused between launches, waits and communications;
            ``device``: device nodes and gaps only.
        jobs: Processes; 0: as many as there are cores, if the input is big enough to gain from them.
        match: Match communications across ranks.
    """

    detail: Detail = "op"
    jobs: int = 0
    match: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class ConversionResult:
    """What a conversion made.

    Attributes:
        traces: The traces.
        quality: The quality report.
        failed: What could not be converted.
        left_out: Files in the directories that are no profiles.
        removed: Traces of an earlier run that were removed from the folder.
    """

    traces: TraceSet
    quality: Quality
    failed: tuple[Failure, ...] = ()
    left_out: tuple[str, ...] = ()
    removed: tuple[Path, ...] = ()


def convert(
    inputs: Sequence[str | Path] | str | Path = (),
    *,
    host: str | Path | None = None,
    device: str | Path | None = None,
    options: ConvertOptions | None = None,
    progress: Progress | None = None,
) -> ConversionResult:
    """Convert profiles to traces.

    Args:
        inputs: Files, directories, globs or URLs of profiles; host and device files are told apart and paired by rank.
        host: Execution trace of one rank, instead of `inputs`.
        device: Kineto profile of the same rank.
        options: How to convert.
        progress: Called with a step's name, how much of it is done, and how much there is.

    Raises:
        InputError: There is nothing to convert, or nothing of it could be converted (then with the first reason).

    Example:
        >>> from chakra_et.sample import sample_folder
        >>> result = convert(sample_folder())
        >>> len(result.traces), result.failed
        (2, ())
    """
    options = options or ConvertOptions()
    named = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    found = discover(named) if named else Discovery([], [], [])
    sources = found.sources
    if host is not None or device is not None:
        sources.append(_explicit(host, device))
    if not sources and not found.damaged:
        raise InputError(
            "expected profiles to convert, got none; name a file, a directory, or a host and a device file"
        )
    done, failures = _convert_all(sources, options, progress)
    failures += [Failure(path, why) for path, why in found.damaged]
    if not done:
        raise InputError(failures[0].error)
    done.sort(key=lambda part: part.trace.rank or 0)
    traces = TraceSet(tuple(part.trace for part in done))
    matching = Matching()
    if options.match:
        traces, matching = match_comms(traces)
    quality = Quality(
        ranks=tuple(_with_clock(part.quality, matching) for part in done),
        groups=traces.process_groups or merge_groups(traces),
        matching=matching,
        failed=tuple(failures),
    )
    return ConversionResult(traces, quality, tuple(failures), tuple(found.left_out))


def convert_to(
    inputs: Sequence[str | Path] | str | Path,
    out: str | Path,
    *,
    host: str | Path | None = None,
    device: str | Path | None = None,
    options: ConvertOptions | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ConversionResult:
    """Convert profiles and write ``trace.<rank>.et`` files and ``quality.json`` to a folder.

    Args:
        inputs: As in `convert`.
        out: Folder to write to; it is made if missing.
        host: As in `convert`.
        device: As in `convert`.
        options: How to convert.
        force: Overwrite what is in the way, and remove the folder's traces of ranks that this run doesn't write.
        progress: As in `convert`.

    Raises:
        InputError: As in `convert`.
        OutputError: Traces or a report are in the folder already, or it can't be written to. Nothing is converted then.
    """
    folder = Path(out)
    refuse_no_folder(folder)
    before = sorted(folder.glob("trace.*.et"))
    for path in (folder / "quality.json", *before):
        refuse_existing(path, force=force)
    result = convert(inputs, host=host, device=device, options=options, progress=progress)
    targets = [folder / f"trace.{rank}.et" for rank in result.traces.ranks]
    for done, (target, trace) in enumerate(zip(targets, result.traces, strict=True)):
        if progress is not None:
            progress("writing", done, len(targets))
        write(trace, target, force=force)
    text = json.dumps(result.quality.as_dict(), indent=1)
    write_atomic(folder / "quality.json", [text.encode(), b"\n"], force=force)
    stale = tuple(path for path in before if path not in targets)
    for path in stale:
        path.unlink(missing_ok=True)
    return replace(result, removed=stale)


def _with_clock(quality: RankQuality, matching: Matching) -> RankQuality:
    """Say by how much a rank's clock was moved to agree with the others'."""
    offset = (matching.clock_offsets_ns or {}).get(quality.rank, 0)
    if not offset:
        return quality
    note = f"the clock differs from the lowest rank's: waits were split with {offset} ns added to it"
    return replace(quality, warnings=(*quality.warnings, note))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    trace: Trace
    quality: RankQuality


def _explicit(host: str | Path | None, device: str | Path | None) -> Source:
    ranks: dict[str, int | None] = {}
    for path, wanted, other in ((host, "host", "--device"), (device, "device", "--host")):
        if path is not None:
            head = read_head(path, HEAD_BYTES)
            found = kind_of(head)
            if found is not None and found != wanted:
                raise InputError(f"{path}: expected a {_KINDS[wanted]}, got a {_KINDS[found]}; name it with {other}")
            ranks[wanted] = rank_of(str(path), head)
    rank = ranks.get("device") if ranks.get("device") is not None else ranks.get("host")
    return Source(
        host=str(host) if host is not None else None,
        device=str(device) if device is not None else None,
        rank=rank,
        host_rank=ranks.get("host"),
    )


def _convert_all(
    sources: Sequence[Source], options: ConvertOptions, progress: Progress | None
) -> tuple[list[_Part], list[Failure]]:
    parts: list[_Part] = []
    failures: list[Failure] = []
    taken: dict[int, str] = {}
    for done, (source, found) in enumerate(zip(sources, _run(sources, options), strict=True)):
        if progress is not None:
            progress("converting", done + 1, len(sources))
        if isinstance(found, str):
            failures.append(Failure(source.name, found))
            continue
        part = _ranked(found, source, taken)
        rank = part.trace.rank
        if rank in taken:
            failures.append(
                Failure(
                    source.name,
                    f"{source.name}: expected one profile a rank, got a second one of rank {rank} "
                    f"(beside {taken[rank]}); convert it into a folder of its own",
                )
            )
            continue
        taken[int(rank or 0)] = source.name
        parts.append(part)
    return parts, failures


def _ranked(part: _Part, source: Source, taken: dict[int, str]) -> _Part:
    """Give a trace whose files don't tell their rank the one of the file's name, if its groups can hold it.

    Else it gets the next free one.
    """
    if part.trace.rank is not None:
        return part
    rank = source.rank
    where = "the file's name"
    members = {member for group in part.trace.process_groups for member in group.ranks}
    if rank is None or rank in taken or (members and rank not in members):
        rank = next(number for number in range(len(taken) + 1) if number not in taken)
        where = "the next free one"
    trace = replace(part.trace, metadata=replace(part.trace.metadata, rank=rank))
    note = f"the profile doesn't tell its rank; took {rank} ({where})"
    return _Part(trace, replace(part.quality, rank=rank, warnings=(*part.quality.warnings, note)))


def _run(sources: Sequence[Source], options: ConvertOptions) -> Iterator[_Part | str]:
    """Convert each source; the result is a part, or why there is none."""
    jobs = options.jobs or (os.cpu_count() or 1)
    total = sum(os.path.getsize(path) for s in sources for path in (s.host, s.device) if path and os.path.exists(path))
    if len(sources) < 2 or jobs < 2 or (options.jobs == 0 and total < _WORTH_PROCESSES_BYTES):
        return map(_attempt, sources, [options.detail] * len(sources))
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=min(jobs, len(sources)), return_as="generator")
    return iter(pool(delayed(_attempt)(source, options.detail) for source in sources))


def _attempt(source: Source, detail: Detail) -> _Part | str:
    try:
        return _convert_source(source, detail)
    except ChakraError as err:
        return str(err)
    except OSError as err:
        return f"{source.name}: expected readable files, got an error: {err.strerror or err}"
    except MemoryError:
        return f"{source.name}: expected to fit in memory, did not; convert it alone, or on a bigger machine"


def _convert_source(source: Source, detail: Detail) -> _Part:
    facts = tuple(
        {"file": Path(path).name, "kind": kind}
        for path, kind in ((source.host, "execution trace"), (source.device, "kineto"))
        if path is not None
    )
    host = parse_et(source.host, read_bytes(source.host)) if source.host is not None else None
    if source.device is not None:
        # Nobody else holds the profile, so that its parts are freed as they are used up.
        named = (source.host_rank, source.rank)
        trace, found = convert_rank(
            parse_kineto(source.device, read_bytes(source.device)), host, sources=facts, named_ranks=named
        )
    elif host is not None:
        trace, found = convert_host(host, sources=facts)
        # Captured before execution: times can come from nothing else.
        trace = with_op_counts(trace) if trace.metadata.family == "compiled" else trace
    else:
        raise InputError("expected a host or a device file, got neither")
    trace = add_manifest(trace, source.manifest)
    if detail != "op":
        trace = fuse(trace, detail=detail)
    names = tuple(path for path in (source.host, source.device) if path)
    quality = measure_rank(trace, found, rank=trace.rank or 0, sources=names)
    return _Part(trace, quality)
