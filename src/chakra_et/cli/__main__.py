"""``python -m chakra_et.cli`` is ``chakra``."""

from __future__ import annotations

from chakra_et.cli import run

run()
