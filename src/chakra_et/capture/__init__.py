"""What runs inside the user's job: the standard library and the framework, and nothing else.

Captures meet everything after them in files alone: ``host.<rank>.json.gz`` (execution trace), ``device.<rank>.json.gz``
(Kineto profile) and ``manifest.<rank>.json``.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["startup_folder"]


def startup_folder() -> Path:
    """Return the folder that goes first on the module path of a job that is captured without a change of its code.

    Example:
        >>> [path.name for path in startup_folder().glob("*.py")]
        ['sitecustomize.py']
    """
    return Path(__file__).parent / "startup"
