"""Simulation: bridges to simulators."""
