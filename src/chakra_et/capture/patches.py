"""Changing what others own, for a while: attributes of modules and classes, and modules that aren't loaded yet."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

__all__ = ["after_import", "replaced"]


@contextlib.contextmanager
def replaced(owner: Any, changes: Mapping[str, Any]) -> Iterator[None]:
    """Give attributes of a module or class other values for a while; those that it lacks are left out."""
    known = {name: value for name, value in changes.items() if hasattr(owner, name)}
    # What the owner holds, not what a look at it gives: methods of C++ classes aren't bound again otherwise.
    before = {name: vars(owner)[name] for name in known if name in vars(owner)}
    for name, value in known.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name in known:
            if name in before:
                setattr(owner, name, before[name])
            else:
                delattr(owner, name)


def after_import(name: str, then: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Have something done with a module, now or as soon as it is imported: programs that don't, don't load it.

    Args:
        name: Name of the module.
        then: Called with it.

    Returns:
        What takes it back, if the module wasn't imported yet.
    """
    if name in sys.modules:
        then(sys.modules[name])
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, cast(Any, finder))
    return finder.leave


class _Finder:
    """Finds one module as the others do."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def leave(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(cast(Any, self))

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def run(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            loader.exec_module = run
        return spec
