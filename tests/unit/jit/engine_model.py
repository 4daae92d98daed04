"""A slow simulator with the engine's rules, in plain Python; and small jobs for both."""

from dataclasses import dataclass, field

import numpy as np

from chakra_et._jit import engine_state as es
from chakra_et._jit.engine import FULL, PAUSED, advance
from chakra_et._jit.fair import fair_rates
from chakra_et._jit.schedule import invert


@dataclass
class Meeting:
    flow: int = -1
    channel: int = -1


@dataclass
class Node:
    duration: int
    preds: tuple = ()
    resource: int = -1
    meeting: int = -1
    waits: bool = True
    signals: tuple = ()
    rank: int = 0
    earliest: int = 0


@dataclass
class Flow:
    latency: float
    loads: dict


@dataclass
class Job:
    nodes: list
    meetings: list = field(default_factory=list)
    servers: list = field(default_factory=list)
    flows: list = field(default_factory=list)
    capacity: list = field(default_factory=list)
    slowdown: float = 1.0
    engines: dict = field(default_factory=dict)  # rank -> resource that is slowed down


def make_plan(job):
    """The engine's arrays for a job."""
    count = len(job.nodes)
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum([len(node.preds) for node in job.nodes], out=indptr[1:])
    preds = np.array([pred for node in job.nodes for pred in node.preds], np.int64)
    out, succs = invert(indptr, preds)
    facts = np.full((count, 4), -1, np.int64)
    signals, role = [], np.zeros(count, np.int32)
    for number, node in enumerate(job.nodes):
        facts[number] = node.resource, node.meeting, node.waits, -1
        bits = (node.meeting >= 0) * es.MEETS + bool(node.signals) * es.SIGNALS
        role[number] = -(bits + (node.resource >= 0) * es.OCCUPIES) if bits else node.resource + 1
        for meeting in node.signals:
            signals.append((meeting, facts[number, es.SIGNAL]))
            facts[number, es.SIGNAL] = len(signals) - 1
    seats = [(number, job.engines.get(node.rank, -1)) for room in range(len(job.meetings))
             for number, node in enumerate(job.nodes) if node.meeting == room]  # fmt: skip
    sizes = [sum(node.meeting == room for node in job.nodes) for room in range(len(job.meetings))]
    table = np.full((len(job.meetings), 10), -1, np.int64)
    for room, meeting in enumerate(job.meetings):
        absent = sum(node.signals.count(room) for node in job.nodes)
        table[room, :5] = meeting.channel, meeting.flow, absent, sum(sizes[:room]), sum(sizes[: room + 1])
    table[:, [es.CAME, es.VISITED]] = 0
    resources = np.zeros((len(job.servers), 9), np.int64)
    resources[:, es.SERVERS] = job.servers
    users = [node.resource for node in job.nodes] + [meeting.channel for meeting in job.meetings]
    sizes_of = [users.count(resource) for resource in range(len(job.servers))]
    resources[:, es.LINE] = resources[:, es.LINE_END] = np.cumsum([0, *sizes_of])[:-1]
    resources[:, [es.QUEUE, es.HELD]] = -1
    for resource in job.engines.values():
        resources[resource, es.PACED] = 1
    loads = np.zeros(len(job.flows) + 1, np.int64)
    np.cumsum([len(flow.loads) for flow in job.flows], out=loads[1:])
    return es.Plan(
        out, succs, np.diff(indptr), np.array([node.earliest for node in job.nodes], np.int64),
        np.array([node.duration for node in job.nodes], np.int64), role, facts,
        np.array(signals, np.int64).reshape(-1, 2), np.array(seats, np.int64).reshape(-1, 2), table, resources,
        float(job.slowdown), np.array([flow.latency for flow in job.flows], np.float64), loads,
        np.array([link for flow in job.flows for link in flow.loads], np.int64),
        np.array([size for flow in job.flows for size in flow.loads.values()], np.float64),
        np.array(job.capacity, np.float64),
    )  # fmt: skip


def run(job, budget=1 << 40):
    """Run a job on the engine; return starts and ends."""
    plan = make_plan(job)
    state = es.new_state(plan)
    while (status := advance(plan, state, budget)) in (PAUSED, FULL):
        if status == FULL:
            state = es.grow_cells(state, 4)
    return state.nodes[:, es.START].tolist(), np.maximum(state.nodes[:, es.END], -1).tolist()


class Model:
    """The same, moment by moment, everything looked at every time."""

    def __init__(self, job):
        self.job, self.time = job, 0
        count, rooms = len(job.nodes), len(job.meetings)
        self.start, self.end = [None] * count, [None] * count
        self.queue = {resource: [] for resource in range(len(job.servers))}
        self.busy = dict.fromkeys(self.queue, 0)
        self.ready = [False] * count
        self.due = {}  # (kind, number) -> time
        self.left = [sum(node.signals.count(room) for node in job.nodes) for room in range(rooms)]
        self.came, self.release = [0] * rooms, [None] * rooms
        self.share, self.rate, self.since = {}, {}, {}
        self.work = {}  # node on a slowed resource -> (left, since)
        self.pressing = set()

    def run(self):
        while True:
            while self.settle():
                pass
            self.flow()
            times = [time for time in self.due.values() if time < es.NEVER]
            times += [at for number, node in enumerate(self.job.nodes) if not self.ready[number]
                      and (at := self.ready_at(number)) is not None]  # fmt: skip
            later = [time for time in times if time > self.time]
            if any(time <= self.time for time in self.due.values()):
                continue
            if not later:
                return self.starts(), [-1 if end is None else end for end in self.end]
            self.time = min(later)

    def starts(self):
        """As the engine leaves them: of what never starts, the latest end of its predecessors so far."""
        return [
            start if start is not None
            else max([node.earliest, *(self.end[pred] for pred in node.preds if self.end[pred] is not None)])
            for node, start in zip(self.job.nodes, self.start, strict=True)
        ]  # fmt: skip

    def ready_at(self, number):
        node = self.job.nodes[number]
        ends = [self.end[pred] for pred in node.preds]
        return None if None in ends else max([node.earliest, *ends])

    def settle(self):
        """Take in one thing that happens now; return False when there is none."""
        for (kind, number), time in list(self.due.items()):
            if time <= self.time:
                del self.due[kind, number]
                getattr(self, kind)(number)
                return True
        for number, node in enumerate(self.job.nodes):
            if not self.ready[number] and (at := self.ready_at(number)) is not None and at <= self.time:
                self.ready[number] = True
                if node.resource >= 0:
                    self.queue[node.resource].append(number)
                else:
                    self.begin(number)
                return True
        return self.serve()

    def serve(self):
        """Give all resources to who waits for them; return False when there is nobody."""
        served = False
        for resource, waiting in self.queue.items():
            while waiting and self.busy[resource] < self.job.servers[resource]:
                first = min(waiting)
                waiting.remove(first)
                self.busy[resource] += 1
                served = True
                if first < len(self.job.nodes):
                    self.occupy(first)
                else:
                    self.open(first - len(self.job.nodes))
        return served

    def begin(self, number):
        node = self.job.nodes[number]
        self.start[number] = self.time
        self.tell(node)
        if node.meeting >= 0 and node.waits and self.release[node.meeting] is None:
            return
        self.due["finish", number] = self.time + node.duration

    def tell(self, node):
        for room in node.signals:
            self.left[room] -= 1
            if self.left[room] == 0:
                self.came[room] = self.time
                channel = self.job.meetings[room].channel
                if channel >= 0:
                    self.queue[channel].append(len(self.job.nodes) + room)
                else:
                    self.due["open", room] = self.time

    def finish(self, number):
        self.end[number] = self.time

    def occupy(self, number):
        node = self.job.nodes[number]
        self.start[number] = self.time
        self.tell(node)
        self.work[number] = (node.duration, self.time)
        self.pace(number)

    def pace(self, number):
        left, since = self.work[number]
        slow = self.slow(number)
        self.due["leave", number] = (
            es.NEVER if np.isinf(slow) and left else int(np.floor(since + left * (1 if np.isinf(slow) else slow) + 0.5))
        )

    def slow(self, number):
        resource = self.job.nodes[number].resource
        pressed = any(self.job.engines.get(node.rank, -1) == resource for room in self.pressing
                      for node in self.job.nodes if node.meeting == room)  # fmt: skip
        return self.job.slowdown if pressed else 1.0

    def leave(self, number):
        del self.work[number]
        self.end[number] = self.time
        self.busy[self.job.nodes[number].resource] -= 1

    def press(self, room, on):
        before = {number: self.slow(number) for number in self.work}
        (self.pressing.add if on else self.pressing.discard)(room)
        for number, slow in before.items():
            if self.slow(number) != slow:
                left, since = self.work[number]
                self.work[number] = (max(left - (self.time - since) / slow, 0.0), self.time)
                self.pace(number)

    def open(self, room):
        self.press(room, True)
        meeting = self.job.meetings[room]
        members = [n for n, node in enumerate(self.job.nodes) if node.meeting == room and node.waits]
        if meeting.flow < 0:
            self.let_go(room)
            longest = max([self.job.nodes[n].duration for n in members], default=0)
            self.due["close", room] = self.time + longest
            return
        flow = self.job.flows[meeting.flow]
        begin = self.time + flow.latency
        if flow.loads:
            self.since[room] = begin
            self.due["join", room] = int(np.ceil(begin))
        else:
            self.due["done", room] = int(np.floor(begin + 0.5))

    def join(self, room):
        self.share[room], self.rate[room] = 1.0, 0.0

    def let_go(self, room):
        self.release[room] = self.time
        for number, node in enumerate(self.job.nodes):
            if node.meeting == room and node.waits and self.start[number] is not None and self.end[number] is None:
                self.due["finish", number] = self.time + node.duration

    def done(self, room):
        self.share.pop(room, None)
        self.rate.pop(room, None)
        self.let_go(room)
        self.close(room)

    def close(self, room):
        self.press(room, False)
        channel = self.job.meetings[room].channel
        if channel >= 0:
            self.busy[channel] -= 1

    def flow(self):
        """Share links anew among all flows."""
        rooms = sorted(self.share)
        if not rooms:
            return
        flows = [self.job.flows[self.job.meetings[room].flow] for room in rooms]
        indptr = np.concatenate(([0], np.cumsum([len(flow.loads) for flow in flows]))).astype(np.int64)
        links = np.array([link for flow in flows for link in flow.loads], np.int64)
        loads = np.array([size for flow in flows for size in flow.loads.values()], np.float64)
        rates = np.zeros(len(rooms))
        fair_rates(np.arange(len(rooms)), indptr, links, loads, np.array(self.job.capacity, np.float64), rates)
        for room, rate in zip(rooms, rates.tolist(), strict=True):
            if abs(rate - self.rate[room]) <= 1e-12 * rate:
                continue
            if self.rate[room] > 0:
                gone = self.rate[room] * (self.time - self.since[room])
                self.share[room], self.since[room] = max(self.share[room] - gone, 0.0), self.time
            self.rate[room] = rate
            end = self.since[room] + self.share[room] / rate
            self.due["done", room] = max(self.time, int(np.floor(end + 0.5 + 1e-6)))
