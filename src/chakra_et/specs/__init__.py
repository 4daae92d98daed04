"""Descriptions of systems and kernels: validated data files, not code; and ASTRA-sim's configuration files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chakra_et.specs.astra import AstraConfig, read_astra_config, read_per_node_custom, write_astra_config
from chakra_et.specs.astra_systems import system_from_astra, system_to_astra
from chakra_et.specs.system import Device, Dimension, System
from chakra_et.specs.system_files import list_systems, load_system, with_overrides, write_system

if TYPE_CHECKING:
    from chakra_et.specs.kernels import KernelClasses, KernelRule, load_kernel_classes

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
    # Kernel classes work on columns; descriptions of systems do without polars.
    if name not in ("KernelClasses", "KernelRule", "load_kernel_classes"):
        raise AttributeError(f"module 'chakra_et.specs' has no attribute '{name}'")
    from chakra_et.specs import kernels

    return getattr(kernels, name)
