"""Say why the first run takes longer: loops are compiled for the machine, once, and cached."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["announce_compilation", "is_compiled"]


def announce_compilation() -> None:
    """Print a line to a terminal if nothing is compiled yet."""
    if sys.stderr.isatty() and not is_compiled():
        sys.stderr.write("chakra: compiling loops for this machine, once; that takes about 20 seconds\n")


def is_compiled() -> bool:
    """True if the cache of compiled loops holds anything, or if we can't tell where it is."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder:
        return any(Path(folder).rglob("*.nbi"))
    own = Path(__file__).parents[1] / "_jit"
    return not os.access(own, os.W_OK) or any((own / "__pycache__").glob("*.nbi"))
