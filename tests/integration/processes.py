"""Ranks of a job as processes of this machine, with a time-out that leaves nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_S = 120


def free_port() -> int:
    """A port that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(size: int, arguments: list[str], *, timeout_s: float = TIMEOUT_S, **variables: str) -> list[str]:
    """Run `python ARGUMENTS` once a rank and return what each wrote; fail if one fails or hangs."""
    port = str(free_port())
    ranks = [_start(rank, size, port, arguments, variables) for rank in range(size)]
    deadline = time.monotonic() + timeout_s
    try:
        texts = [process.communicate(timeout=max(deadline - time.monotonic(), 1))[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    codes = [process.returncode for process in ranks]
    assert codes == [0] * size, "\n".join(texts)[-4000:]
    return texts


def _start(rank: int, size: int, port: str, arguments: list[str], variables: dict[str, str]) -> subprocess.Popen[str]:
    environment = {
        **os.environ, "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port, "OMP_NUM_THREADS": "1", **variables,
    }  # fmt: skip
    return subprocess.Popen(
        [sys.executable, *arguments], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def capture_job(name: str, size: int, out: Path, steps: int = 2) -> Path:
    """Capture one of the jobs of `jobs.py` and return the folder."""
    run_ranks(size, [str(Path(__file__).with_name("jobs.py")), name, str(out), str(steps)])
    return out
