"""`make_profile_file`: a Kineto profile of any size, for benchmarks."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from chakra_et.errors import OutputError
from chakra_et.testing.programs import training_step
from chakra_et.testing.run import run

__all__ = ["make_profile_file"]

Int = npt.NDArray[np.int64]
_ITERATIONS = 4  # of one block

_IDS = (
    "External id",
    "Record function id",
    "correlation",
    "Ev Idx",
    "Sequence number",
    "wait_on_cuda_event_record_corr_id",
    "wait_on_cuda_event_id",
)
_PLACE = re.compile(r'"@(\d+)@"|@<(\d+)>@')  # a number of its own, or one within a name
_STEP = re.compile(r"ProfilerStep#(\d+)")


def make_profile_file(path: str | Path, *, megabytes: float, seed: int = 0) -> Path:
    """Write a large profile: iterations of one training step, each a copy of the first with its times and ids moved on.

    Streams stay in order, launches come before their kernels, and every id is unique, as in one long run.

    Args:
        path: File to write; through gzip when the name ends in ``.gz``.
        megabytes: Size of the JSON text, about; at least one block of some 2 MB is written.
        seed: Of the program.

    Raises:
        OutputError: The path can't be written.
    """
    profile = run(training_step(layers=48, iterations=_ITERATIONS, seed=seed)).profile(0)
    events = profile.pop("traceEvents")
    repeated = [event for event in events if event["ph"] != "M" and event["pid"] not in ("Spans", "Traces", "")]
    once = [event for event in events if event["ph"] == "M"]
    block = _Block(repeated)
    copies = max(1, round(megabytes * 1e6 / len(block.render(0))))
    head = json.dumps(profile | {"traceEvents": once})[:-2]
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            if target.suffix == ".gz":
                with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=3, mtime=0) as packed:
                    _write(packed, head, block, copies)
            else:
                _write(file, head, block, copies)
    except OSError as err:
        raise OutputError(f"{target}: expected to write a file, got {err}; choose another path") from err
    return target


def _write(file: BinaryIO | gzip.GzipFile, head: str, block: _Block, copies: int) -> None:
    file.write(head.encode())
    for copy in range(copies):
        file.write(b",\n" + block.render(copy))
    file.write(b"\n]}")


class _Block:
    """The text of one block of events, with places (P of them) for the numbers that differ from copy to copy."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        times = [event["ts"] for event in events]
        ends = [event["ts"] + event.get("dur", 0) for event in events]
        # The period, in ns, leaves the device 100 us to run dry.
        period = (int(max(ends) - min(times)) + 100) * 1000
        # One step for all ids: those that belong together stay together, and none comes twice.
        step = 1 + max(event.get("args", {}).get(key, event.get("id", 0)) for event in events for key in _IDS)
        values: list[int] = []
        steps: list[int] = []

        def place(value: int, each: int = step) -> str:
            values.append(value)
            steps.append(each)
            return f"@{len(values) - 1}@"

        rendered = []
        for event in events:
            moved = event | {"ts": place(round(event["ts"] * 1000), period)}
            if "id" in event:
                moved["id"] = place(event["id"])
            if "args" in event:
                moved["args"] = {key: place(arg) if key in _IDS else arg for key, arg in event["args"].items()}
            number = _STEP.match(event["name"])
            if number:
                moved["name"] = f"ProfilerStep#@<{place(int(number[1]), _ITERATIONS)[1:-1]}>@"
            rendered.append(json.dumps(moved))
        text = ",\n".join(rendered)
        order = np.array([int(alone or within) for alone, within in _PLACE.findall(text)], np.int64)
        self._values: Int = np.array(values, np.int64)[order]
        self._steps: Int = np.array(steps, np.int64)[order]
        self._is_time = self._steps == period
        self._template = _PLACE.sub(
            lambda match: "%d.%03d" if steps[int(match[1] or match[2])] == period else "%d", text.replace("%", "%%")
        )

    def render(self, copy: int) -> bytes:
        """Return the text of one copy."""
        values = self._values + copy * self._steps
        # A time takes two numbers: whole us, and the ns behind the point.
        pairs = np.stack([np.where(self._is_time, values // 1000, values), values % 1000], axis=1)
        wanted = np.stack([np.ones(len(values), bool), self._is_time], axis=1)
        return (self._template % tuple(pairs[wanted].tolist())).encode()
