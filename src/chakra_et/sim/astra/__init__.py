"""Simulation by ASTRA-sim's rules, tick for tick; and hand-off to ASTRA-sim itself."""

from __future__ import annotations

from chakra_et.sim.astra.handoff import HandoffResult, NodeDifference, RankHandoff, run_astra_sim
from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.simulate import simulate_astra

__all__ = [
    "AstraOptions",
    "HandoffResult",
    "NodeDifference",
    "RankHandoff",
    "run_astra_sim",
    "simulate_astra",
]
