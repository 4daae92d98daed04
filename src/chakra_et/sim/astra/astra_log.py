"""What ASTRA-sim prints: when ranks finish, when nodes are issued and end, and why it fails.

It ends with exit code 0 also where ranks never finish; what it says then is spread over its output.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

__all__ = ["AstraLog", "find_cause", "read_node_ticks"]

_FINISHED = re.compile(r"sys\[(\d+)\] finished, (\d+) cycles, exposed communication (\d+) cycles")
_HOLDER = re.compile(r"Hardware Resource sys\.id=(\d+) has unreleased nodes")
_HELD = re.compile(r"node id: (\d+)")
_TICK = re.compile(r"(issue|callback),sys->id=(\d+), tick=(\d+), node->id=(\d+)")
_SIGNS = re.compile(
    r"\[(workload|system|statistics|network|HardwareResource)\b|\bAstraSim(Analytical)?(::|/)|NetworkAnalytical|\(network/"
)
_KEPT_LINES = 400
_WRAPPED = 1 << 63  # a difference below 0, printed as an unsigned number

# What ASTRA-sim says -> what that means, and what to do. The first that is found counts.
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"communicator group (\d+) not found", "a collective of group {0}, which comm_group.json doesn't list"),
    (r"workload file: (.+) does not exist", "{0} isn't there; every rank needs its trace"),
    (r"Comm node should not be on CPU", "a communication with is_cpu_op true; chakra export --to astra-sim repairs it"),
    (
        r"Unsupported collective comm type",
        "a collective other than all-reduce, all-gather, reduce-scatter, all-to-all and broadcast; "
        "chakra export --to astra-sim replaces it",
    ),
    (r"No dependancy free nodes found", "a trace without nodes, or in which all of them wait for others"),
    (r"Node (\d+) in (?:data|ctrl)_dep graph, but not found", "a dependency on node {0}, which isn't in the trace"),
    (r"Attribute (\w+) not found in node (\d+)", "node {1} without {0}"),
    (r"std::bad_cast", "an attribute of another type than ASTRA-sim's: an integer that is a float or text"),
    (r"\bstoi\b", "a pg_name that is no number; ASTRA-sim knows groups by numbers"),
    (
        r"Only GPU and COMM types are supported for overlap extraction",
        "nodes of the CPU, of memory or without type, on a rank whose last node is a communication; end the rank "
        "with compute",
    ),
    (r"get_operator_type.*Assertion", "METADATA nodes, which ASTRA-sim doesn't survive; leave them out"),
    (
        r"chunk_size > 0' failed",
        "a message of no bytes: a send of size 0, or a collective too small for halvingDoubling; use fewer splits",
    ),
    (
        r"get_event_time\(\) > current_time' failed",
        "something that takes no time at the very beginning: an endpoint-delay of 0, a roofline time of 0, a tiny send",
    ),
    (r"!connected\(id\)' failed", "a ring of two ranks, which the congestion-aware network can't make; use a switch"),
    (r"only support 1-dim topology", "a network of several dimensions; the congestion-aware backend knows one"),
    (r"Remote memory access is not supported", "memory nodes with NO_MEMORY_EXPANSION in the memory file"),
    (r"unknown communication type for HalvingDoubling", "an all-to-all by halvingDoubling, which has none"),
    (
        r"malloc|free\(\)|corrupted|double free|tcache|send_event\.has_value|id_to_index\.find",
        "a fault of its own that comes and goes (direct all-reduces); run it again",
    ),
    (r"Error parsing options: (.+)", "its options: {0}"),
    (r"(?:what\(\):|warning! a callable is removed before call)\s+(.+)", "{0}"),
    (r"\[Error\] (.+)", "{0}"),
    (r"(Assertion `.+' failed)", "{0}"),
)
_SIGNAL_CAUSES = {
    signal.SIGFPE: "a division by zero: preferred-dataset-splits is missing",
    signal.SIGSEGV: "doubleBinaryTree in a group, or on other than a power of two of ranks; or a fault that comes and "
    "goes",
}


@dataclass(slots=True)
class AstraLog:
    """What the console has told so far.

    Attributes:
        ranks: Rank -> tick at which it finished, and its exposed communication.
        held: Rank -> nodes that it never ended, as far as ASTRA-sim says.
        lines: Lines that tell of trouble.
        is_astra_sim: True once a line looks like one of ASTRA-sim's.
    """

    ranks: dict[int, tuple[int, int]] = field(default_factory=dict)
    held: dict[int, list[int]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    is_astra_sim: bool = False
    _holder: int = -1

    def take(self, line: str) -> bool:
        """Read a line; return True if a rank has finished."""
        found = _FINISHED.search(line)
        if found:
            rank, tick, exposed = map(int, found.groups())
            self.ranks[rank] = (tick, exposed - (1 << 64) if exposed >= _WRAPPED else exposed)
            self.is_astra_sim = True
            return True
        self.is_astra_sim = self.is_astra_sim or _SIGNS.search(line) is not None
        holder = _HOLDER.search(line)
        if holder:
            self._holder = int(holder[1])
            self.held.setdefault(self._holder, [])
        elif "HardwareResource" in line and (held := _HELD.search(line)) and self._holder >= 0:
            self.held[self._holder].append(int(held[1]))
        elif "[critical]" in line or "rror" in line:
            self.lines = [*self.lines, line.rstrip()][-_KEPT_LINES:]
        return False


def find_cause(texts: Sequence[str], exit_code: int) -> str:
    """Return why ASTRA-sim failed, in words, or nothing if it doesn't say.

    Args:
        texts: What it printed.
        exit_code: Of the program; below 0: the signal that ended it.

    Example:
        >>> find_cause(["  what():  Attribute num_ops not found in node 3 feeder->id=0"], -6)
        'node 3 without num_ops'
    """
    text = "\n".join(texts)
    for pattern, meaning in _CAUSES:
        found = re.search(pattern, text)
        if found:
            return meaning.format(*found.groups())
    for number, meaning in _SIGNAL_CAUSES.items():
        if exit_code == -number:
            return meaning
    return ""


def read_node_ticks(paths: Iterable[Path]) -> pl.DataFrame:
    """Read at which tick each node was issued and ended.

    Args:
        paths: Logs of ASTRA-sim's workload layer, made with ``trace-enabled``; oldest first.

    Returns:
        Columns rank, node, start_ns, end_ns; null where the log lacks it. Of a node that was issued twice, the last.
    """
    ticks: dict[str, dict[tuple[int, int], int]] = {"issue": {}, "callback": {}}
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                found = _TICK.search(line)
                if found:
                    ticks[found[1]][int(found[2]), int(found[4])] = int(found[3])
    keys = list(ticks["issue"] | ticks["callback"])
    columns = {
        "rank": [rank for rank, _ in keys],
        "node": [node for _, node in keys],
        "start_ns": [ticks["issue"].get(key) for key in keys],
        "end_ns": [ticks["callback"].get(key) for key in keys],
    }
    schema = {"rank": pl.Int64, "node": pl.UInt64, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame(columns, schema=schema)
