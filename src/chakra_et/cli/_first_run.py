"""Say why the first run takes longer: loops are compiled for the machine, once, and cached."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["ANY", "ASTRA", "NATIVE", "announce_compilation", "is_compiled"]


ANY = "*.nbi"
# The last function that is compiled of each simulator's engine.
NATIVE, ASTRA = "engine.advance-*.nbi", "engine.run-*.nbi"


def announce_compilation(loops: str = ANY) -> None:
    """Print a line to a terminal if the loops that are about to run aren't compiled yet.

    Args:
        loops: Pattern of their names in the cache.
    """
    if sys.stderr.isatty() and not is_compiled(loops):
        sys.stderr.write("chakra: compiling loops for this machine, once; that takes about 20 seconds\n")


def is_compiled(loops: str = ANY) -> bool:
    """True if the cache of compiled loops holds such, or if we can't tell where it is."""
    folder = os.environ.get("NUMBA_CACHE_DIR")
    if folder:
        return any(Path(folder).rglob(loops))
    own = Path(__file__).parents[1] / "_jit"
    return not os.access(own, os.W_OK) or any(own.rglob(loops))
