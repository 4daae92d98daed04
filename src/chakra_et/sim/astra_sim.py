"""Bridge to ASTRA-sim 2.0: a folder that its analytical backends run as it is.

Host operators, gaps and annotations are folded into one chain of compute nodes a rank (see
`chakra_et.sim._astra_lane`); collectives, sends and receives that meet on all ranks stay communications, which
ASTRA-sim times itself; what it can't simulate becomes the nearest form that it can, or compute of the measured time.
Everything replaced is listed.

Communications of a rank that take turns there (collectives and sends) are chained in one order over all ranks, since
ASTRA-sim holds one at a time: in two orders, two ranks would wait for each other forever, without a word.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from chakra_et.errors import OutputError
from chakra_et.io.et import write_et
from chakra_et.ir import Trace, TraceSet
from chakra_et.sim._astra_match import Substitution
from chakra_et.sim._astra_plan import AstraSimPlan, plan_astra_sim
from chakra_et.units import format_number_of

__all__ = ["AstraSimPlan", "AstraSimSystem", "Substitution", "export_astra_sim", "plan_astra_sim"]

_README = """# Workload for ASTRA-sim 2.0

{ranks} ranks, {nodes} nodes. Run it from this folder with the analytical backend that you built:

    AstraSim_Analytical_Congestion_Unaware \\
      --workload-configuration=trace \\
      --comm-group-configuration={groups} \\
      --system-configuration=system.json \\
      --remote-memory-configuration=memory.json \\
      --network-configuration=network.yml

`network.yml` and `system.json` describe a default machine, not the one that the traces come from: edit them.
Compute nodes have no `num_ops` and `tensor_size`: leave `roofline-enabled` off.

Times are whole microseconds. Kernels are compute nodes; nodes named `host` stand for host operators and gaps that held
up the device. Compute nodes that were covered by others on the same rank, or shorter than half a microsecond, are left
out: {hidden} of them.
"""


@dataclass(frozen=True, slots=True)
class AstraSimSystem:
    """The machine that the configuration files describe; one switch joins all ranks.

    Attributes:
        bandwidth_gib_per_s: Bandwidth of a rank's link, GiB/s.
        latency_ns: Latency of a link, ns.
        splits: Chunks that a collective is cut into (`preferred-dataset-splits`).
        active_chunks: Chunks under way at once (`active-chunks-per-dimension`).
        endpoint_delay_ns: Delay before each message, ns; 0 makes ASTRA-sim abort.
        local_mem_bandwidth_gb_per_s: Memory bandwidth for reductions, GB/s.
    """

    bandwidth_gib_per_s: float = 50.0
    latency_ns: float = 500.0
    splits: int = 4
    active_chunks: int = 1
    endpoint_delay_ns: int = 10
    local_mem_bandwidth_gb_per_s: float = 1600.0

    def network_yaml(self, ranks: int) -> str:
        """Return the content of ``network.yml``."""
        return (
            f"topology: [ Switch ]\nnpus_count: [ {ranks} ]\n"
            f"bandwidth: [ {float(self.bandwidth_gib_per_s)} ]\nlatency: [ {float(self.latency_ns)} ]\n"
        )

    def system_json(self) -> str:
        """Return the content of ``system.json``."""
        ring = ["ring"]
        return _dump(
            {
                "scheduling-policy": "FIFO",
                "endpoint-delay": self.endpoint_delay_ns,
                "active-chunks-per-dimension": self.active_chunks,
                "preferred-dataset-splits": self.splits,
                "all-reduce-implementation": ring,
                "all-gather-implementation": ring,
                "reduce-scatter-implementation": ring,
                "all-to-all-implementation": ring,
                "collective-optimization": "localBWAware",
                "local-mem-bw": self.local_mem_bandwidth_gb_per_s,
                "roofline-enabled": 0,
                "boost-mode": 0,
            }
        )


def export_astra_sim(
    trace_set: TraceSet,
    folder: str | Path,
    *,
    force: bool = False,
    system: AstraSimSystem | None = None,
    write: Callable[[Trace, Path], object] = write_et,
) -> list[Path]:
    """Write a folder that ASTRA-sim runs.

    Args:
        trace_set: The ranks; their graphs are acyclic.
        folder: Where to write: traces, `comm_group.json`, `network.yml`, `system.json`, `memory.json`, `README.md`,
            and `substitutions.json` where something was replaced.
        force: True to overwrite an export that is there.
        system: The machine to describe.
        write: Writes one trace.

    Returns:
        The files, in order.

    Raises:
        TraceError: The set is empty, or the graph of a rank has a cycle.
        OutputError: The folder isn't empty and `force` is False, or it can't be written.
    """
    system = system or AstraSimSystem()
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise OutputError(f"{target}: expected a folder, got a file; choose another path")
    if not force and target.is_dir() and any(target.iterdir()):
        raise OutputError(
            f"{target}: expected a new or empty folder, got one with files; choose another or use --force"
        )
    plan = plan_astra_sim(trace_set, splits=system.splits)
    texts = _texts(plan, system)
    try:
        target.mkdir(parents=True, exist_ok=True)
        # Written aside and moved in the end: an error leaves no half workload.
        with tempfile.TemporaryDirectory(prefix=".part-", dir=target) as scratch:
            made = [Path(scratch) / f"trace.{rank}.et" for rank in range(len(plan.trace_set))]
            for trace, path in zip(plan.trace_set, made, strict=True):
                write(trace, path)
            for name, text in texts.items():
                made.append(Path(scratch) / name)
                made[-1].write_text(text, encoding="utf-8")
            # Traces of an earlier export with more ranks would be taken for part of this one.
            for old in (*target.glob("trace.*.et"), target / "comm_group.json", target / "substitutions.json"):
                old.unlink(missing_ok=True)
            return [Path(shutil.move(path, target / path.name)) for path in made]
    except OSError as err:
        raise OutputError(f"{target}: expected a folder to write to, got an error: {err.strerror}") from err


def _dump(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


def _texts(plan: AstraSimPlan, system: AstraSimSystem) -> dict[str, str]:
    groups = plan.trace_set.process_groups
    texts = {
        "network.yml": system.network_yaml(len(plan.trace_set)),
        "system.json": system.system_json(),
        "memory.json": _dump({"memory-type": "NO_MEMORY_EXPANSION"}),
        "README.md": _readme(plan),
    }
    if groups:
        texts["comm_group.json"] = _dump({group.name: list(group.ranks) for group in groups})
    if plan.substitutions:
        texts["substitutions.json"] = _dump([entry.as_dict() for entry in plan.substitutions])
    return texts


def _readme(plan: AstraSimPlan) -> str:
    counts: dict[tuple[str, str, str], int] = {}
    for entry in plan.substitutions:
        key = (entry.before, entry.after, entry.reason)
        counts[key] = counts.get(key, 0) + 1
    groups = plan.trace_set.process_groups
    parts = [
        _README.format(
            ranks=len(plan.trace_set),
            nodes=sum(map(len, plan.trace_set)),
            groups="comm_group.json" if groups else "empty",
            hidden=plan.hidden,
        ),
        _table(("rank here", "rank in the traces"), enumerate(plan.ranks)),
        _table(
            ("group here", "group in the traces", "ranks here"),
            ((group.name, group.description or "-", ", ".join(map(str, group.ranks))) for group in groups),
        ),
    ]
    if counts:
        replaced = format_number_of(len(plan.substitutions), "replacement")
        parts.append(
            f"ASTRA-sim can't simulate some communications as they are. {replaced}, listed in `substitutions.json`:\n"
        )
        parts.append(_table(("what", "by", "why", "count"), ((*key, count) for key, count in counts.items())))
    return "\n".join(part for part in parts if part)


def _table(header: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table in Markdown, or nothing where it has no rows."""
    lines = [f"| {' | '.join(map(str, row))} |\n" for row in rows]
    return "".join((f"| {' | '.join(header)} |\n", "|---" * len(header) + "|\n", *lines)) if lines else ""
