"""Passes: a trace or trace set in, another one (or a finding about it) out."""

from __future__ import annotations

from chakra_et.passes.fuse import fuse
from chakra_et.passes.match_comms import Matching, match_comms
from chakra_et.passes.reconstruct import Reconstruction, StartError, apply_schedule, reconstruct
from chakra_et.passes.repair import Change, repair
from chakra_et.passes.select import iterations, select_ids, select_iteration, select_time

__all__ = [
    "Change",
    "Matching",
    "Reconstruction",
    "StartError",
    "apply_schedule",
    "fuse",
    "iterations",
    "match_comms",
    "reconstruct",
    "repair",
    "select_ids",
    "select_iteration",
    "select_time",
]
