"""Building a plan step by step: calls bound to tensor slots, waits where the trace has them, time between them.

Time is told by a cursor: a step's gap is the time between the end of what came before it and its own start.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import Any

import polars as pl

from chakra_et.ir import Trace
from chakra_et.replay.communications.call import CommCall
from chakra_et.replay.communications.find import Communications
from chakra_et.replay.communications.waits import RECORD, WAIT
from chakra_et.replay.plan.arguments import Opaque, Recorded, parse_values, tensors_in
from chakra_et.replay.plan.calls import Calls
from chakra_et.replay.plan.ranges import Ranges
from chakra_et.replay.plan.rows import HostRows, Window
from chakra_et.replay.plan.schema import Schema, parse_schema
from chakra_et.replay.plan.steps import Communicate, Delay, Iteration, OpCall, Plan, Slot, Step, View, Wait
from chakra_et.replay.plan.tables import slots_in, tensor_slots
from chakra_et.replay.plan.tensors import TensorTable

__all__ = ["Builder"]

_COLUMNS = ("id", "name", "op_schema", "inputs", "outputs", "input_strides", "output_strides")
_KERNEL = "it has no schema: a kernel of a compiler, or of a library that is no operator"
_UNRECORDED = "its arguments were not recorded: the execution trace lacks it"
_NEVER = 2**62
# What is awaited through them is awaited where the communication's own wait is.
_WAITS = ("_c10d_functional::wait_tensor", "c10d_functional::wait_tensor")


class Builder:
    """Makes the steps of one rank.

    Args:
        trace: The trace.
        rows: Its calls.
        communications: Its communications.
        recorded_ranges: Attribute ``tensor_range`` by row.
    """

    def __init__(
        self, trace: Trace, rows: HostRows, communications: Communications, recorded_ranges: Mapping[int, Any]
    ) -> None:
        self.trace, self.rows, self.recorded_ranges = trace, rows, recorded_ranges
        self.columns = {name: trace.column(name) for name in _COLUMNS}
        self.spans = trace.integers("span_ns", fill=0)
        self.calls = {call.row: call for call in communications.calls}
        self.skipped = {one.row: one for one in communications.skipped}
        self.table = TensorTable()
        self.ranges = Ranges(self.table)
        self.steps: list[Step] = []
        self.iterations: list[Iteration] = []
        # Calls that aren't waited for yet, by the row that stands behind the wait, their own number, and the call.
        self.open: list[tuple[int, int, CommCall]] = []
        self.cursor = 0

    def add(self, window: Window, calls: Calls) -> None:
        """Add one iteration."""
        begin = len(self.steps)
        self.cursor = window.begin_ns
        rows = pl.Series([*calls.operators, *calls.kernels, *calls.communications], dtype=pl.Int64).sort()
        low, high = window.rows
        for row in rows.filter((rows >= low) & (rows < high)).to_list():
            self._waits_before(row)
            self._step(row)
        left = [call for _, _, call in self.open]
        self.open.clear()
        self._wait_for(sorted(left, key=lambda one: (one.wait_row or 0, one.number)), window.end_ns)
        if len(self.steps) > begin:
            tail = max(window.end_ns - self.cursor, 0)
            length = window.end_ns - window.begin_ns
            self.iterations.append(
                Iteration(window.number, begin, len(self.steps), window.begin_ns, length, tail),
            )

    def finish(self, rank: int, world_size: int) -> Plan:
        """Return the plan."""
        tensors, storages = tensor_slots(self.table, self.steps, self.ranges.found())
        return Plan(
            rank=rank,
            world_size=world_size,
            steps=tuple(self.steps),
            iterations=tuple(self.iterations),
            tensors=tensors,
            storages=storages,
            groups=self.trace.process_groups,
            has_times=self.rows.has_times,
        )

    def _step(self, row: int) -> None:
        name = self.columns["name"][row]
        if row in self.calls:
            self._communicate(self.calls[row])
        elif row in self.skipped:
            self._delay(row, self.skipped[row].reason)
        elif name not in _WAITS:
            reason = self._call(row, name)
            if reason:
                self._delay(row, reason)

    def _call(self, row: int, name: str) -> str:
        """Add a call; return why it can't be, if so."""
        text = self.columns["op_schema"][row]
        if text is None:
            return _UNRECORDED if "::" in name else _KERNEL
        schema = parse_schema(text)
        arguments = self._values(row, "inputs")
        results = self._values(row, "outputs")
        if schema is None or arguments is None or results is None:
            return "its schema or its arguments can't be read"
        reason = _unusable(schema, arguments)
        if reason:
            return reason
        values = dict(zip((one.name for one in schema.parameters), arguments, strict=False))
        bound = self._bind(arguments)
        inputs = tuple(slots_in(bound))
        self.ranges.at(name, values, self.recorded_ranges.get(row), arguments, bound)
        gap, duration = self._time(row)
        made = self._results(results, inputs)
        self.ranges.link(name, inputs, tuple(slots_in(made)))
        self.steps.append(
            OpCall(
                node=int(self.columns["id"][row]),
                name=name,
                schema=text,
                arguments=bound,
                results=made,
                gap_ns=gap,
                duration_ns=duration,
                device_ns=int(self.rows.device_ns[row]),
                tid=int(self.rows.tid[row]),
            )
        )
        return ""

    def _delay(self, row: int, reason: str) -> None:
        gap, duration = self._time(row)
        node, device = int(self.columns["id"][row]), int(self.rows.device_ns[row])
        self.steps.append(Delay(node, self.columns["name"][row], reason, gap, duration, device))

    def _communicate(self, call: CommCall) -> None:
        given, taken = self._comm_tensors(call)
        gap, duration = self._time(call.row)
        self.steps.append(Communicate(call, given, taken, gap, duration))
        due = -1 if not call.asynchronous else _NEVER if call.wait_row is None else call.wait_row
        heappush(self.open, (due, call.number, call))

    def _comm_tensors(self, call: CommCall) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the slots of a call's tensors; none where the trace doesn't tell them, or not those of the call."""
        arguments = self._values(call.row, "inputs") or ()
        schema = parse_schema(self.columns["op_schema"][call.row] or "")
        places = schema and [schema.place(one) for one in ("tensors", "tensor")]
        sides: list[tuple[int, ...]] = []
        for names, shapes in ((_GIVEN, call.inputs), (_TAKEN, call.outputs)):
            place = next((one for name in names if schema and (one := schema.place(name)) is not None), None)
            place = next((one for one in places or () if one is not None), place)
            found = list(tensors_in(arguments[place])) if place is not None and place < len(arguments) else []
            if not shapes:
                # A send gets nothing, a receive gives nothing, nor do members that aren't the root.
                sides.append(())
                continue
            if [one.shape for one in found] != list(shapes):
                return (), ()
            sides.append(tuple(slots_in(self._bind(tuple(found)))))
        return sides[0], sides[1]

    def _waits_before(self, row: int) -> None:
        """Add the waits that a call stands behind, in recorded order."""
        due = []
        while self.open and self.open[0][0] <= row:
            due.append(heappop(self.open)[2])
        self._wait_for(due, int(self.rows.start[row]))

    def _wait_for(self, due: list[CommCall], before_ns: int) -> None:
        """Add waits that are over before some time: each ended with its communication, if the trace doesn't say."""
        for call in due:
            # Another node is only the first one behind the wait.
            is_wait = call.wait_row is not None and self.columns["name"][call.wait_row] in (WAIT, RECORD)
            told = self.spans[call.wait_row] if is_wait else 0
            start = self.cursor
            if told and call.wait_row is not None:
                start = max(int(self.rows.start[call.wait_row]), self.cursor)
                end = start + int(told)
            else:
                end = max(min(call.comm_start_ns + call.duration_ns, before_ns), self.cursor)
            self.steps.append(Wait(call.number, start - self.cursor, end - start))
            self.cursor = end

    def _time(self, row: int) -> tuple[int, int]:
        """Return a call's gap and length, and move the cursor behind it.

        The gap is negative where other threads were at work as well: no time is told twice.
        """
        start, end = int(self.rows.start[row]), int(self.rows.end[row])
        if not self.rows.has_times:
            return 0, 0
        gap = max(start - self.cursor, start - end)
        self.cursor = max(self.cursor, end)
        return gap, end - start

    def _values(self, row: int, side: str) -> tuple[Any, ...] | None:
        return parse_values(self.columns[side][row], self.columns[f"{side[:-1]}_strides"][row])

    def _bind(self, value: Any) -> Any:
        """Put slots in the place of tensors; views that no call made are made first."""
        if isinstance(value, Recorded):
            slot, base = self.table.read(value)
            if base is not None:
                self.steps.append(View(slot, base))
            return Slot(slot)
        if isinstance(value, Opaque):
            return None
        return tuple(self._bind(part) for part in value) if isinstance(value, tuple) else value

    def _results(self, value: Any, inputs: tuple[int, ...]) -> Any:
        if isinstance(value, Recorded):
            slot = self.table.write(value, inputs)
            return None if slot is None else Slot(slot)
        return tuple(self._results(part, inputs) for part in value) if isinstance(value, tuple) else None


_GIVEN = ("input_tensors", "input_tensor", "input_list", "inputs", "input")
_TAKEN = ("output_tensors", "output_tensor", "output_lists", "outputs", "output")


def _unusable(schema: Schema, arguments: tuple[Any, ...]) -> str:
    """Say which argument the trace doesn't hold; the default random generator stands in for any other."""
    if len(arguments) > len(schema.parameters):
        return f"expected {len(schema.parameters)} arguments, got {len(arguments)}"
    for parameter, value in zip(schema.parameters, arguments, strict=False):
        parts = value if isinstance(value, tuple) else (value,)
        opaque = next((part for part in parts if isinstance(part, Opaque)), None)
        if opaque is not None and not parameter.type.startswith("Generator"):
            return f"its argument '{parameter.name}' is an object that only the recorded process had"
    return ""
