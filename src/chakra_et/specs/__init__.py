"""Descriptions of systems: validated data files, not code; and ASTRA-sim's configuration files."""

from __future__ import annotations

from chakra_et.specs.astra import AstraConfig, read_astra_config, read_per_node_custom, write_astra_config
from chakra_et.specs.astra_systems import system_from_astra, system_to_astra
from chakra_et.specs.system import Device, Dimension, System
from chakra_et.specs.system_files import list_systems, load_system, with_overrides, write_system

__all__ = [
    "AstraConfig",
    "Device",
    "Dimension",
    "System",
    "list_systems",
    "load_system",
    "read_astra_config",
    "read_per_node_custom",
    "system_from_astra",
    "system_to_astra",
    "with_overrides",
    "write_astra_config",
    "write_system",
]
