"""Changes to modules that a program may import later: they are slow to load for programs that never use them."""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["when_imported"]


def when_imported(stack: contextlib.ExitStack, name: str, patch: Callable[[Any], None]) -> None:
    """Change a module now, or as soon as it is imported.

    Args:
        stack: On its end, imports are left alone again; what `patch` does is its own to undo there.
        name: Name of the module.
        patch: Called with the module.
    """
    if name in sys.modules:
        patch(sys.modules[name])
        return
    finder = _Finder(name, patch)
    sys.meta_path.insert(0, finder)
    stack.callback(finder.leave)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, patch: Callable[[Any], None]) -> None:
        self._name, self._patch = name, patch

    def leave(self) -> None:
        """Find no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return the module as others find it, but let it be changed once it is loaded."""
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_patch(module: Any) -> None:
                load(module)
                self._patch(module)

            spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec
