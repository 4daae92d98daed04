"""An independent reading of an ASTRA-sim workload folder: rules, and a small model of how nodes are issued."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

TYPES = {2: "MEM_LOAD", 3: "MEM_STORE", 4: "COMP", 5: "SEND", 6: "RECV", 7: "COLL"}
SUPPORTED = {0, 2, 5, 6, 7}
ALL_GATHER = 2


@dataclass
class Node:
    """One node, as read from the file."""

    id: int = 0
    name: str = ""
    type: int = 0
    duration_us: int = 0
    deps: set[int] = field(default_factory=set)
    attr: dict[str, object] = field(default_factory=dict)


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> list[tuple[int, int, object]]:
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value: object
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if key & 7 == 2 else ({1: 8, 5: 4}[key & 7], at)
            value = data[at : at + size]
            at += size
        found.append((key >> 3, key & 7, value))
    return found


def packed(value: object) -> list[int]:
    if isinstance(value, int):
        return [value]
    assert isinstance(value, bytes)
    at, found = 0, []
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


def read(path: Path) -> list[Node]:
    data = path.read_bytes()
    at, messages = 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at : at + size])
        at += size
    assert len(messages) >= 1, "a file starts with its metadata"
    return [read_node(message) for message in messages[1:]]


def read_node(message: bytes) -> Node:
    node = Node()
    for number, _, value in fields(message):
        if number == 1:
            node.id = int(value)  # type: ignore[call-overload]
        elif number == 2:
            node.name = value.decode()  # type: ignore[union-attr, attr-defined]
        elif number == 3:
            node.type = int(value)  # type: ignore[call-overload]
        elif number == 7:
            node.duration_us = int(value)  # type: ignore[call-overload]
        elif number in (4, 5):
            node.deps |= set(packed(value))
        elif number == 10:
            parts = {part: (wire, content) for part, wire, content in fields(value)}  # type: ignore[arg-type]
            name = parts.pop(1)[1].decode()  # type: ignore[union-attr, attr-defined]
            kinds = [part for part in parts if part > 2]
            kind = kinds[0] if kinds else 9
            content = parts[kind][1] if kinds else 0
            # Integers: int32, int64, uint32, uint64 and bool are plain varints.
            if kind in (7, 9, 11, 13, 27):
                node.attr.setdefault(name, content)
            elif kind == 29:
                node.attr.setdefault(name, content.decode())  # type: ignore[union-attr, attr-defined]
            else:
                node.attr.setdefault(name, content)
    return node


class Workload:
    """A folder, checked against every rule of what an exporter must ensure."""

    def __init__(self, folder: Path) -> None:
        text = (folder / "network.yml").read_text()
        network = dict(line.split(": ", 1) for line in text.splitlines())
        assert set(network) == {"topology", "npus_count", "bandwidth", "latency"}
        lists = {key: value.strip("[] ").split(", ") for key, value in network.items()}
        assert {len(value) for value in lists.values()} == {1}
        self.ranks = int(lists["npus_count"][0])
        assert self.ranks >= 2
        system = json.loads((folder / "system.json").read_text())
        for name in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all"):
            assert system[f"{name}-implementation"] == ["ring"]
        self.splits = system["preferred-dataset-splits"]
        assert self.splits >= 1
        assert system["endpoint-delay"] >= 1
        assert not system["roofline-enabled"]
        assert json.loads((folder / "memory.json").read_text())["memory-type"] == "NO_MEMORY_EXPANSION"
        groups = folder / "comm_group.json"
        self.groups = {
            key: list(value) for key, value in (json.loads(groups.read_text()) if groups.exists() else {}).items()
        }
        assert sorted(path.name for path in folder.glob("trace.*.et")) == sorted(
            f"trace.{r}.et" for r in range(self.ranks)
        )
        self.nodes = [read(folder / f"trace.{rank}.et") for rank in range(self.ranks)]
        for name, members in self.groups.items():
            assert name.isdigit()
            assert int(name) > 0
            assert len(members) >= 2
            assert len(set(members)) == len(members)
            assert set(members) <= set(range(self.ranks))
        for rank, nodes in enumerate(self.nodes):
            self.check_rank(rank, nodes)
        self.check_orders()
        self.check_messages()

    def check_rank(self, rank: int, nodes: list[Node]) -> None:
        ids = [node.id for node in nodes]
        assert ids == list(range(len(nodes))), "ids count up in the order of the file"
        assert any(not node.deps for node in nodes)
        for node in nodes:
            assert node.type in (4, 5, 6, 7), "no METADATA, INVALID or memory nodes"
            # Ids ascend along edges: no cycles, no self edges; and they exist.
            assert all(0 <= dep < node.id for dep in node.deps)
            assert not node.attr.get("is_cpu_op", 0)
            if node.type == 4:
                assert node.duration_us >= 1
            elif node.type == 7:
                assert node.attr["comm_type"] in SUPPORTED
                least = self.splits if node.attr["comm_type"] == ALL_GATHER else 1
                assert int(node.attr["comm_size"]) >= least  # type: ignore[call-overload]
                assert rank in self.groups[str(node.attr["pg_name"])]
            else:
                peer, own = ("comm_dst", "comm_src") if node.type == 5 else ("comm_src", "comm_dst")
                assert node.attr[peer] in range(self.ranks)
                assert node.attr[peer] != rank
                assert node.attr.get(own, rank) == rank
                assert 0 <= int(node.attr["comm_tag"]) < 5 * 10**8  # type: ignore[call-overload]
                assert int(node.attr["comm_size"]) >= 1  # type: ignore[call-overload]
                # Not at tick 0, where the congestion-aware backend aborts on small messages.
                assert node.deps

    def check_orders(self) -> None:
        orders: dict[str, dict[int, list[tuple[object, object]]]] = defaultdict(dict)
        for rank, nodes in enumerate(self.nodes):
            for node in nodes:
                if node.type == 7:
                    shape = (node.attr["comm_type"], node.attr["comm_size"])
                    orders[str(node.attr["pg_name"])].setdefault(rank, []).append(shape)
        for name, by_rank in orders.items():
            assert set(by_rank) == set(self.groups[name])
            assert len({tuple(order) for order in by_rank.values()}) == 1

    def check_messages(self) -> None:
        ends: dict[int, Counter[tuple[object, ...]]] = {5: Counter(), 6: Counter()}
        for rank, nodes in enumerate(self.nodes):
            for node in nodes:
                if node.type in ends:
                    peer = node.attr["comm_dst" if node.type == 5 else "comm_src"]
                    pair = (rank, peer) if node.type == 5 else (peer, rank)
                    key = (node.attr["comm_tag"], *pair, node.attr["comm_size"])
                    ends[node.type][key] += 1
        assert ends[5] == ends[6]

    def count(self, *types: int) -> int:
        return sum(node.type in types for nodes in self.nodes for node in nodes)

    def run(self) -> list[int]:
        """Issue nodes as ASTRA-sim does: one compute and one communication at a time; return when the ranks end, us.

        Collectives end together, the shortest written duration after the last rank issued its own; messages arrive
        after the send's duration, and receives end then.
        """
        ranks = [_Rank(nodes) for nodes in self.nodes]
        arrived: dict[tuple[object, ...], list[tuple[int, Node, int]]] = defaultdict(list)
        turn: Counter[tuple[int, str]] = Counter()
        sent: dict[tuple[object, ...], int] = {}
        posted: dict[tuple[object, ...], tuple[int, Node]] = {}
        now = 0
        events: list[tuple[int, int, Node]] = []
        while True:
            progress = True
            while progress:
                progress = False
                for number, rank in enumerate(ranks):
                    for node in rank.issue():
                        progress = True
                        if node.type == 4:
                            events.append((now + node.duration_us, number, node))
                        elif node.type == 7:
                            name = str(node.attr["pg_name"])
                            key = (name, turn[number, name])
                            turn[number, name] += 1
                            arrived[key].append((number, node, now))
                            if len(arrived[key]) == len(self.groups[name]):
                                shortest = min(member.duration_us for _, member, _ in arrived[key])
                                events += [(now + shortest, r, member) for r, member, _ in arrived[key]]
                        elif node.type == 5:
                            key = (node.attr["comm_tag"], number, node.attr["comm_dst"])
                            sent[key] = now + node.duration_us
                            events.append((sent[key], number, node))
                            if key in posted:
                                events.append((sent[key], *posted.pop(key)))
                        else:
                            key = (node.attr["comm_tag"], node.attr["comm_src"], number)
                            if key in sent:
                                events.append((max(now, sent[key]), number, node))
                            else:
                                posted[key] = (number, node)
            if not events:
                break
            events.sort(key=lambda event: event[0])
            now, number, node = events.pop(0)
            ranks[number].complete(node, now)
        assert all(len(rank.done) == len(rank.nodes) for rank in ranks), "a rank never finishes"
        return [rank.end for rank in ranks]


class _Rank:
    """Slots and free nodes of one rank."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.missing = {node.id: len(node.deps) for node in nodes}
        self.children: dict[int, list[int]] = defaultdict(list)
        for node in nodes:
            for dep in node.deps:
                self.children[dep].append(node.id)
        self.free = {node.id for node in nodes if not node.deps}
        self.busy: dict[str, int] = {}
        self.done: set[int] = set()
        self.end = 0

    def issue(self) -> list[Node]:
        issued = []
        for number in sorted(self.free):
            node = self.nodes[number]
            slot = {4: "compute", 6: ""}.get(node.type, "comm")
            if slot and slot in self.busy:
                continue
            if slot:
                self.busy[slot] = number
            self.free.remove(number)
            issued.append(node)
        return issued

    def complete(self, node: Node, now: int) -> None:
        self.busy = {slot: number for slot, number in self.busy.items() if number != node.id}
        self.done.add(node.id)
        self.end = max(self.end, now)
        for child in self.children[node.id]:
            self.missing[child] -= 1
            if self.missing[child] == 0:
                self.free.add(child)
