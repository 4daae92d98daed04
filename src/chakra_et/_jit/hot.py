"""Decorators of small functions that are called for every node.

A compiled function counts a reference to each array it is handed, and gives it back: two atomic operations an argument,
which is more than half of the time of the engine's functions. They neither allocate nor return arrays, so that numba
needs no memory management for them. Its option for that is not a documented one (numba 0.68 has it): where it is gone,
they are just slower.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.options import DefaultOptions

__all__ = ["hot", "inlined"]

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True}
if hasattr(DefaultOptions, "_nrt"):
    _OPTIONS["_nrt"] = False

hot = njit(**_OPTIONS)
inlined = njit(**_OPTIONS, forceinline=True)
