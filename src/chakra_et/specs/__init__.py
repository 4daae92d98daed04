"""Descriptions of systems and kernels: validated data files, not code; and ASTRA-sim's configuration files.

Each name is loaded when it is first used: who needs kernel classes doesn't wait for a YAML parser.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakra_et.specs.astra import AstraConfig, read_astra_config, read_per_node_custom, write_astra_config
    from chakra_et.specs.astra_systems import system_from_astra, system_to_astra
    from chakra_et.specs.kernels import KernelClasses, KernelRule, load_kernel_classes
    from chakra_et.specs.system import Device, Dimension, System
    from chakra_et.specs.system_files import list_systems, load_system, with_overrides, write_system

_MODULES: dict[str, tuple[str, ...]] = {
    "astra": ("AstraConfig", "read_astra_config", "read_per_node_custom", "write_astra_config"),
    "astra_systems": ("system_from_astra", "system_to_astra"),
    "kernels": ("KernelClasses", "KernelRule", "load_kernel_classes"),
    "system": ("Device", "Dimension", "System"),
    "system_files": ("list_systems", "load_system", "with_overrides", "write_system"),
}

__all__ = [
    "AstraConfig",
    "Device",
    "Dimension",
    "KernelClasses",
    "KernelRule",
    "System",
    "list_systems",
    "load_kernel_classes",
    "load_system",
    "read_astra_config",
    "read_per_node_custom",
    "system_from_astra",
    "system_to_astra",
    "with_overrides",
    "write_astra_config",
    "write_system",
]


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(import_module(f"chakra_et.specs.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'chakra_et.specs' has no attribute '{name}'")
