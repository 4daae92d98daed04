"""Capture one rank of a script before execution, in a process of its own.

    python -m chakra_et.capture.fake OPTIONS RANK MAILBOX SCRIPT [ARGUMENTS]     (or -m MODULE in place of SCRIPT)

`chakra capture --fake` starts it, with `FakeOptions` as JSON.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chakra_et.capture.fake.options import FakeOptions
from chakra_et.capture.fake.record import run_rank
from chakra_et.errors import ChakraError

__all__ = ["ERROR", "main"]

# File in the mailbox that says why a capture failed.
ERROR = "error"


def main(words: Sequence[str]) -> int:
    """Capture one rank and return the exit code.

    Args:
        words: Options, rank, mailbox, and the user's command.
    """
    options, rank, mailbox, *command = words
    try:
        run_rank(_program(command), int(rank), FakeOptions.from_text(options), mailbox=Path(mailbox))
    except ChakraError as err:
        # Whoever started us says it.
        (Path(mailbox) / ERROR).write_text(str(err), encoding="utf-8")
        return 1
    return 0


def _program(command: list[str]) -> Callable[[], Any]:
    """Return what runs the user's command as Python would."""

    def run() -> None:
        try:
            if command[0] == "-m":
                sys.path.insert(0, "")
                sys.argv = [command[1], *command[2:]]
                runpy.run_module(command[1], run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(command[0]).resolve().parent))
                sys.argv = list(command)
                runpy.run_path(command[0], run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                raise

    return run


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
