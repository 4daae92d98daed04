"""Decorators of the engines' functions: those that run for every node, or every message.

A compiled function counts a reference to each array it is handed, and gives it back: two atomic operations an argument,
which is more than half of the time of the engine's functions. They neither allocate nor return arrays, so that numba
needs no memory management for them. Its option for that is not a documented one (numba 0.68 has it): where it is gone,
they are just slower, and take longer to compile.

`hot` and `inlined` take arrays. The others take a tuple of many tables, which costs to be handed on: what only compiled
functions call is `inner` and has no wrappers for Python, what runs all the time is a `leaf` (inlined by LLVM) or
`pasted` (into its only caller), and what Python calls is `outer`.
"""

from __future__ import annotations

from typing import Any

from numba import njit
from numba.core.options import DefaultOptions

__all__ = ["hot", "inlined", "inner", "leaf", "outer", "pasted"]

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True}
if hasattr(DefaultOptions, "_nrt"):
    _OPTIONS["_nrt"] = False

hot = njit(**_OPTIONS)
inlined = njit(**_OPTIONS, forceinline=True)

_TABLES = {**_OPTIONS, "no_cfunc_wrapper": True, "error_model": "numpy"}
inner = njit(**_TABLES, no_cpython_wrapper=True)
leaf = njit(**_TABLES, no_cpython_wrapper=True, forceinline=True)
outer = njit(**_TABLES)
pasted = njit(inline="always")
