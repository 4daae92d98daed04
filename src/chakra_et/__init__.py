"""Chakra execution traces from real profiles: convert, validate, reconstruct, repair, slice, export.

Everything that a user needs is here; each name is loaded when it is first used, so that importing the package is cheap.

Example:
    >>> import chakra_et as chakra
    >>> chakra.NodeType.COMM_COLL_NODE.value
    7
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chakra_et.errors import ChakraError as ChakraError
    from chakra_et.ir import NodeType as NodeType

__version__ = "0.1.0"

# Name here -> where it lives.
_EXPORTS: dict[str, str] = {
    "COLUMNS": "chakra_et.ir",
    "ChakraError": "chakra_et.errors",
    "NodeType": "chakra_et.ir",
}

__all__ = ["COLUMNS", "ChakraError", "NodeType", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'chakra_et' has no attribute '{name}'")
    value = getattr(import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
