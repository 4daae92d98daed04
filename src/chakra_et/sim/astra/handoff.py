"""Hand-off to the real ASTRA-sim: write what it reads, run it, and compare its answer with ours.

ASTRA-sim's exit code says nothing: it is 0 also where ranks never finish. What counts is that every rank reports.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl

from chakra_et.errors import InputError, OutputError, SimulationError, Waiting
from chakra_et.ir import TraceSet
from chakra_et.sim.astra.astra_log import AstraLog, find_cause, read_node_ticks
from chakra_et.sim.astra.handoff_folder import PREFIX, name_whole_job, refuse_folder, write_folder
from chakra_et.sim.astra.launch import Ended, launch
from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.simulate import check_ranks, simulate_astra
from chakra_et.sim.result import SimResult
from chakra_et.specs import AstraConfig

__all__ = ["HandoffResult", "NodeDifference", "RankHandoff", "run_astra_sim"]

_CONSOLE = "astra-sim.log"
_MOST_WAITING = 64
# ASTRA-sim's own log goes round after 110 MB; this one doesn't.
_LOGGING = """[[sink]]
name = "nodes"
type = "basic_file_sink_mt"
filename = "{path}"
truncate = true
level = "debug"

[[logger]]
name = "workload"
sinks = ["nodes"]
level = "debug"
"""


@dataclass(frozen=True, slots=True)
class NodeDifference:
    """A node for which ASTRA-sim and we say different times.

    Attributes:
        rank: Its rank.
        node: Its id.
        name: Its name.
        start_ns: ASTRA-sim's start; None if it said none.
        end_ns: ASTRA-sim's end; None if it said none.
        own_start_ns: Ours.
        own_end_ns: Ours.
    """

    rank: int
    node: int
    name: str
    start_ns: int | None
    end_ns: int | None
    own_start_ns: int
    own_end_ns: int


@dataclass(frozen=True, slots=True)
class RankHandoff:
    """What ASTRA-sim says of a rank, beside what we say.

    Attributes:
        rank: Global rank.
        finish_ns: Tick at which ASTRA-sim finished it.
        exposed_communication_ns: Its exposed communication: all time without compute.
        own_finish_ns: Our finish; None where we have no answer.
        own_exposed_communication_ns: Our exposed communication.
        nodes_compared: Nodes whose times were compared.
        nodes_different: How many of them differ.
        first_difference: The earliest of those.
    """

    rank: int
    finish_ns: int
    exposed_communication_ns: int
    own_finish_ns: int | None = None
    own_exposed_communication_ns: int | None = None
    nodes_compared: int = 0
    nodes_different: int = 0
    first_difference: NodeDifference | None = None

    @property
    def is_equal(self) -> bool:
        """True if we say the same, in every number that was compared."""
        own = (self.own_finish_ns, self.own_exposed_communication_ns)
        return own == (self.finish_ns, self.exposed_communication_ns) and self.nodes_different == 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        found: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        first = self.first_difference
        found["first_difference"] = first and {name: getattr(first, name) for name in first.__slots__}
        return found


@dataclass(frozen=True, eq=False)
class HandoffResult:
    """What the real ASTRA-sim said; all ranks have reported, or there is no result.

    Attributes:
        folder: Where its input is, and `astra-sim.log`, what it printed.
        command: How it was called.
        ranks: What it says of each rank beside what we say, in rank order.
        nodes: Columns rank, node, start_ns, end_ns, by ASTRA-sim; None if not asked for.
        own: Our own result; None where we refuse the input.
        refusal: Why we do.
        wall_s: Time that ASTRA-sim took.
        user_s: CPU time that it took.
        notes: What was changed for it, and what is odd.
    """

    folder: Path
    command: tuple[str, ...]
    ranks: tuple[RankHandoff, ...]
    nodes: pl.DataFrame | None
    own: SimResult | None
    refusal: str
    wall_s: float
    user_s: float
    notes: tuple[str, ...] = ()

    @property
    def finish_ns(self) -> int:
        """End of the last rank, by ASTRA-sim."""
        return max(rank.finish_ns for rank in self.ranks)

    @property
    def is_equal(self) -> bool:
        """True if we say the same of every rank."""
        return all(rank.is_equal for rank in self.ranks)

    @property
    def first_difference(self) -> NodeDifference | None:
        """The earliest node of all ranks for which we say something else."""
        found = [rank.first_difference for rank in self.ranks if rank.first_difference is not None]
        return min(found, key=lambda one: (one.own_start_ns, one.own_end_ns, one.rank), default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "finish_ns": self.finish_ns,
            "own_finish_ns": None if self.own is None else self.own.finish_ns,
            "equal": self.is_equal,
            "ranks": [rank.as_dict() for rank in self.ranks],
            "folder": str(self.folder),
            "command": list(self.command),
            "wall_s": self.wall_s,
            "user_s": self.user_s,
            "refusal": self.refusal,
            "notes": list(self.notes),
        }


def run_astra_sim(
    traces: TraceSet,
    config: AstraConfig,
    binary: str | Path,
    folder: str | Path,
    *,
    options: AstraOptions | None = None,
    nodes: bool = False,
    force: bool = False,
    timeout_s: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> HandoffResult:
    """Run the real ASTRA-sim, with one of its analytical networks, and compare its answer with `simulate_astra`'s.

    Args:
        traces: One trace a rank of the network, 0 .. R-1.
        config: Machine and algorithms.
        binary: ``AstraSim_Analytical_Congestion_Unaware`` or ``..._Aware``: a path, or a name to be found on PATH.
        folder: Where its input is written; new or empty.
        options: Backend, and the counterparts of its command line; None: the backend that the binary's name says.
        nodes: True to compare the times of all nodes, too; takes it longer.
        force: True to write into a folder that isn't empty; traces and configuration files in it are replaced.
        timeout_s: When to stop it; None for never.
        progress: Called with the number of ranks that have finished, and of all.

    Raises:
        InputError: The binary isn't there, can't be run, isn't ASTRA-sim, or has another backend.
        OutputError: The folder can't be written.
        SimulationError: A rank didn't report; the text says which, and why as far as that is known.

    Example:
        >>> from chakra_et.ir import NodeType, TraceBuilder
        >>> builder = TraceBuilder(rank=0)
        >>> _ = builder.add("gemm", NodeType.COMP_NODE, duration_ns=1000)
        >>> job, ring = TraceSet((builder.build(),)), AstraConfig(("Ring",), (2,), (50.0,), (500.0,))
        >>> try:
        ...     run_astra_sim(job, ring, "/nowhere/AstraSim", "astra")
        ... except InputError as err:
        ...     print(str(err)[:70])
        /nowhere/AstraSim: expected ASTRA-sim's program, got nothing of that n
    """
    program, target = _find(binary), Path(folder)
    options = _options(program, options)
    check_ranks(traces, config, options)
    sent, machine, note = name_whole_job(traces, config)
    refuse_folder(target, force=force, groups=bool(machine.groups))
    own, refusal = _own(traces, config, options)
    write_folder(sent, machine, target, ticks=nodes)
    command = _command(program, target, options, groups=bool(machine.groups))
    told = None if progress is None else lambda done: progress(done, config.npus)
    with tempfile.TemporaryDirectory(prefix="chakra-astra-sim-") as scratch:
        ended, log = _run(command, target, Path(scratch), machine, nodes, timeout_s, told)
        _check_ended(program, target, ended, log, timeout_s, traces, refusal)
        table = read_node_ticks(_logs(Path(scratch))) if nodes else None
    late = f"ASTRA-sim failed after all ranks had reported: exit code {ended.exit_code}" if ended.exit_code else ""
    notes = tuple(filter(None, (note, refusal and f"not compared: {refusal}", late)))
    beside = _compare(log, own, table)
    return HandoffResult(target, command, beside, table, own, refusal, ended.wall_s, ended.user_s, notes)


def _find(binary: str | Path) -> Path:
    """Return the program's absolute path."""
    path = Path(binary)
    if not path.exists() and path.name == str(binary):
        path = Path(shutil.which(path.name) or path)
    build = "build ASTRA-sim's analytical backend and name AstraSim_Analytical_Congestion_Unaware or ..._Aware"
    if not path.exists():
        raise InputError(f"{binary}: expected ASTRA-sim's program, got nothing of that name; {build}")
    if not path.is_file():
        raise InputError(f"{binary}: expected ASTRA-sim's program, got a folder; {build}")
    if not os.access(path, os.X_OK):
        raise InputError(f"{binary}: expected a program, got a file that may not be run; chmod +x it, or {build}")
    return path.absolute()


def _options(program: Path, options: AstraOptions | None) -> AstraOptions:
    """Return the options; the program's name says which backend it has."""
    names = f"{program.name} {program.resolve().name}".lower()
    known: Literal["unaware", "aware"] | None = None
    if "congestion_unaware" in names or "analyticalastra" in names:
        known = "unaware"
    elif "congestion_aware" in names or "astracongestion" in names:
        known = "aware"
    if options is None:
        return AstraOptions(backend=known or "unaware")
    if known is not None and known != options.backend:
        raise InputError(
            f"{program}: expected the congestion-{options.backend} program, got the congestion-{known} one; "
            f"name the other one, or use --backend {known}"
        )
    return options


def _own(traces: TraceSet, config: AstraConfig, options: AstraOptions) -> tuple[SimResult | None, str]:
    """Return our own result, or why there is none: then ASTRA-sim most likely has none either."""
    try:
        return simulate_astra(traces, config, options=options), ""
    except SimulationError as err:
        return None, str(err)


def _command(program: Path, folder: Path, options: AstraOptions, *, groups: bool) -> tuple[str, ...]:
    place = folder.absolute()
    return (
        str(program),
        f"--workload-configuration={place / PREFIX}",
        f"--comm-group-configuration={place / 'comm_group.json' if groups else 'empty'}",
        f"--system-configuration={place / 'system.json'}",
        f"--remote-memory-configuration={place / 'memory.json'}",
        f"--network-configuration={place / 'network.yml'}",
        f"--num-queues-per-dim={options.queues_per_dim}",
        f"--injection-scale={options.injection_scale!r}",
        f"--rendezvous-protocol={'true' if options.rendezvous else 'false'}",
    )


def _run(
    command: tuple[str, ...],
    folder: Path,
    scratch: Path,
    config: AstraConfig,
    nodes: bool,
    timeout_s: float | None,
    progress: Callable[[int], None] | None,
) -> tuple[Ended, AstraLog]:
    """Run it; what it prints is kept in the folder, also where it fails."""
    log, seen = AstraLog(), 0
    logging = [f"--logging-folder={scratch / 'log'}"]
    if nodes:
        (scratch / "logging.toml").write_text(_LOGGING.format(path=scratch / "nodes.log"), encoding="utf-8")
        logging.append(f"--logging-configuration={scratch / 'logging.toml'}")
    console = scratch / _CONSOLE

    def take(line: str) -> None:
        nonlocal seen
        kept.write(line)
        if log.take(line) and len(log.ranks) > seen:
            seen = len(log.ranks)
            if progress is not None:
                progress(seen)

    with console.open("w", encoding="utf-8") as kept:
        # Paths of custom collectives are relative to the working directory.
        ended = launch((*command, *logging), folder=config.folder, timeout_s=timeout_s, on_line=take)
        kept.write(ended.stderr)
    try:
        part = folder / f".{_CONSOLE}.part"
        shutil.move(console, part)
        part.replace(folder / _CONSOLE)
    except OSError as err:
        raise OutputError(f"{folder}: expected a folder to write to, got an error: {err.strerror}") from err
    return ended, log


def _logs(scratch: Path) -> list[Path]:
    """Return the logs of nodes, oldest first: ours, or ASTRA-sim's own where it doesn't know how to write ours."""
    whole = scratch / "nodes.log"
    if whole.exists():
        return [whole]
    parts = [(int("0" + path.stem.rpartition(".")[2].strip("log")), path) for path in scratch.glob("log/log*.log")]
    return [path for _, path in sorted(parts, reverse=True)]


def _check_ended(
    program: Path,
    folder: Path,
    ended: Ended,
    log: AstraLog,
    timeout_s: float | None,
    traces: TraceSet,
    refusal: str,
) -> None:
    """Every rank must have reported."""
    absent = sorted(set(traces.ranks) - set(log.ranks))
    if not absent:
        return
    texts = [*log.lines, *ended.stderr.splitlines()]
    signed = AstraLog()
    for line in texts:
        signed.take(line)
    said = next((line.strip() for line in reversed(ended.stderr.splitlines()) if line.strip()), "nothing on stderr")
    if not (log.is_astra_sim or signed.is_astra_sim or ended.timed_out or ended.exit_code < 0):
        raise InputError(
            f"{program}: expected ASTRA-sim, got another program: exit code {ended.exit_code}, {said[:200]}; "
            "name AstraSim_Analytical_Congestion_Unaware or ..._Aware"
        )
    how = f"exit code {ended.exit_code}" if ended.exit_code >= 0 else f"ended by signal {-ended.exit_code}"
    if ended.timed_out:
        how = f"stopped after {timeout_s:g} s"
    causes = (find_cause(texts, ended.exit_code), refusal and f"our own answer: {refusal}")
    cause = "; ".join(filter(None, causes)) or f"it does not say why ({said[:200]})"
    who = f"rank{'s' * (len(absent) > 1)} {', '.join(map(str, absent[:8]))}{', ...' if len(absent) > 8 else ''}"
    raise SimulationError(
        f"{who}: expected ASTRA-sim to report {len(traces)} ranks, got {len(log.ranks)} ({how}): "
        f"{cause}; see {folder / _CONSOLE}",
        _waiting(log, traces),
    )


def _waiting(log: AstraLog, traces: TraceSet) -> list[Waiting]:
    """Return the nodes that ASTRA-sim says it never ended."""
    rows = []
    for rank, nodes in sorted(log.held.items())[:_MOST_WAITING]:
        if rank in traces.ranks:
            table = traces.trace(rank).nodes
            for node in nodes:
                named = table.filter(pl.col("id") == node)
                name = named["name"][0] if named.height else ""
                group = named["pg_name"][0] if named.height and "pg_name" in named.columns else None
                rows.append(Waiting(rank, node, str(name), str(group or ""), "its end, which never came in ASTRA-sim"))
    return rows[:_MOST_WAITING]


def _compare(log: AstraLog, own: SimResult | None, table: pl.DataFrame | None) -> tuple[RankHandoff, ...]:
    """Put ASTRA-sim's answer beside ours."""
    ranks = [RankHandoff(rank, *ticks) for rank, ticks in sorted(log.ranks.items())]
    if own is None:
        return tuple(ranks)
    ours = {rank.rank: rank for rank in own.ranks}
    beside = [
        replace(
            rank,
            own_finish_ns=ours[rank.rank].finish_ns,
            own_exposed_communication_ns=ours[rank.rank].exposed_communication_ns,
        )
        for rank in ranks
    ]
    if table is None:
        return tuple(beside)
    theirs = table.partition_by("rank", as_dict=True)
    return tuple(_compare_nodes(rank, own.traces, theirs.get((rank.rank,), table.clear())) for rank in beside)


def _compare_nodes(rank: RankHandoff, traces: TraceSet, theirs: pl.DataFrame) -> RankHandoff:
    mine = traces.trace(rank.rank).nodes.select(
        "id", "name", own_start="start_ns", own_end=pl.col("start_ns") + pl.col("duration_ns")
    )
    both = mine.join(theirs, left_on="id", right_on="node", how="left")
    same = pl.col("own_start").eq_missing(pl.col("start_ns")) & pl.col("own_end").eq_missing(pl.col("end_ns"))
    wrong = both.filter(~same).sort("own_start", "own_end", "id")
    first = None
    if wrong.height:
        row = wrong.row(0, named=True)
        first = NodeDifference(
            rank.rank, row["id"], row["name"], row["start_ns"], row["end_ns"], row["own_start"], row["own_end"]
        )
    return replace(rank, nodes_compared=both.height, nodes_different=wrong.height, first_difference=first)
