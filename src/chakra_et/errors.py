"""The exception tree.

ChakraError                 anything this package refuses; catch this one
├── InputError              a file or directory can't be read as what it should be
│   ├── FormatError         bytes don't follow the format (corrupt, truncated, hostile)
│   └── MismatchError       two inputs don't belong together (other run, other rank)
├── TraceError              a trace breaks a rule of the data model (dangling edge, cycle, column type)
├── SimulationError         a simulation can't end (deadlock, missing rank, mismatched collective, unmatched send)
├── ReplayError             a replay can't be planned, or didn't end as the trace says (deadlock, time-out)
├── OutputError             an output can't be written (exists, no permission)
└── MissingExtraError       an optional dependency isn't installed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ChakraError",
    "FormatError",
    "InputError",
    "MismatchError",
    "MissingExtraError",
    "OutputError",
    "ReplayError",
    "SimulationError",
    "TraceError",
    "Waiting",
]


class ChakraError(Exception):
    """Base of every error that this package raises on purpose.

    The text is one line: ``PATH: rank R: node ID ('NAME'): expected X, got Y; what to do``.
    """


class InputError(ChakraError):
    """An input file or directory can't be used."""


class FormatError(InputError):
    """The bytes of an input don't follow its format."""


class MismatchError(InputError):
    """Two inputs don't belong together."""


class TraceError(ChakraError):
    """A trace breaks a rule of the data model."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a rank waits for when a simulation stands still.

    Attributes:
        rank: The waiting rank.
        node: Id of the waiting node in that rank's trace.
        name: Its name.
        group: Process group of a collective, ``SRC->DST`` of a send or receive, else empty.
        waits_for: What must come first, in words: which rank, which node.
    """

    rank: int
    node: int
    name: str
    group: str
    waits_for: str


class SimulationError(ChakraError):
    """A simulation can't end; no part of its result counts.

    Args:
        text: The cause, one line.
        waiting: Who waits for what; may be cut off after the first rows.
    """

    def __init__(self, text: str, waiting: Sequence[Waiting] = ()) -> None:
        super().__init__(text)
        self.waiting = tuple(waiting)


class ReplayError(ChakraError):
    """A replay can't be planned, or didn't end as the trace says."""


class OutputError(ChakraError):
    """An output can't be written."""


class MissingExtraError(ChakraError):
    """An optional dependency is missing; the text holds the pip command."""
