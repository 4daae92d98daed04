"""Simulation by ASTRA-sim's rules, tick for tick."""

from __future__ import annotations

from chakra_et.sim.astra.options import AstraOptions
from chakra_et.sim.astra.simulate import simulate_astra

__all__ = ["AstraOptions", "simulate_astra"]
