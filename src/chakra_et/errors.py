"""The exception tree.

ChakraError                 anything this package refuses; catch this one
├── InputError              a file or directory can't be read as what it should be
│   ├── FormatError         bytes don't follow the format (corrupt, truncated, hostile)
│   └── MismatchError       two inputs don't belong together (other run, other rank)
├── TraceError              a trace breaks a rule of the data model (dangling edge, cycle, column type)
├── OutputError             an output can't be written (exists, no permission)
└── MissingExtraError       an optional dependency isn't installed
"""

from __future__ import annotations

__all__ = [
    "ChakraError",
    "FormatError",
    "InputError",
    "MismatchError",
    "MissingExtraError",
    "OutputError",
    "TraceError",
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


class OutputError(ChakraError):
    """An output can't be written."""


class MissingExtraError(ChakraError):
    """An optional dependency is missing; the text holds the pip command."""
