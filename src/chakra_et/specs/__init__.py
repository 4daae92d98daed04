"""Descriptions of systems: validated data files, not code."""

from __future__ import annotations

from chakra_et.specs.astra import AstraConfig, read_astra_config, write_astra_config

__all__ = ["AstraConfig", "read_astra_config", "write_astra_config"]
