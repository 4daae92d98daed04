"""Passes: a trace or trace set in, another one (or a finding about it) out."""

from __future__ import annotations

from chakra_et.passes.reconstruct import Reconstruction, StartError, apply_schedule, reconstruct, reconstruct_set
from chakra_et.passes.repair import Change, repair
from chakra_et.passes.select import iterations, select_ids, select_iteration, select_time

__all__ = [
    "Change",
    "Reconstruction",
    "StartError",
    "apply_schedule",
    "iterations",
    "reconstruct",
    "reconstruct_set",
    "repair",
    "select_ids",
    "select_iteration",
    "select_time",
]
