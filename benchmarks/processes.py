"""Run commands in processes of their own and say what they cost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence


def measured(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return CPU seconds (user and system) and peak memory in GB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: failed with status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e6
