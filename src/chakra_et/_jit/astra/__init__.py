"""Compiled loops of ASTRA-sim's rules: issue, collectives, and both analytical networks, tick for tick."""
