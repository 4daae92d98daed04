"""`run`: a program, perhaps an edit, and what comes out of it as profiles."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chakra_et.errors import OutputError
from chakra_et.testing.host_trace import make_host_trace
from chakra_et.testing.instructions import Program
from chakra_et.testing.machine import simulate
from chakra_et.testing.profile import ProfileConfig, make_profile
from chakra_et.testing.records import Edit, MachineConfig, RankRun

__all__ = ["Run", "run", "write_json"]


@dataclass(frozen=True)
class Run:
    """What happened when a program ran.

    Attributes:
        program: What ran.
        ranks: One `RankRun` for each rank, in order.
        config: The machine that it ran on.
        show: What profiles show of it.
    """

    program: Program
    ranks: tuple[RankRun, ...]
    config: MachineConfig
    show: ProfileConfig

    @property
    def makespan_ns(self) -> int:
        """From machine time 0, when ranks start that nothing delays, to the end of the last event on any rank."""
        return max(rank.end_ns for rank in self.ranks)

    @property
    def spans_ns(self) -> tuple[tuple[int, int], ...]:
        """First start and last end on each rank, ns of machine time."""
        return tuple((rank.start_ns, rank.end_ns) for rank in self.ranks)

    def profile(self, rank: int) -> dict[str, Any]:
        """Return a rank's profile as Kineto writes it."""
        return make_profile(self.program, self.ranks[rank], config=self.show)

    def host_trace(self, rank: int) -> dict[str, Any]:
        """Return a rank's PyTorch execution trace, which matches its profile by record function id."""
        return make_host_trace(self.program, self.ranks[rank])

    def write(self, folder: str | Path, *, host: bool = False, compress: bool = True) -> list[Path]:
        """Write one profile for each rank, and return the paths.

        Args:
            folder: Made if it doesn't exist.
            host: Write the execution traces too.
            compress: Use gzip.

        Returns:
            ``rank-<rank>.json[.gz]`` of each rank, then ``host.<rank>.json[.gz]``; the bytes depend on the run alone.

        Raises:
            OutputError: The folder can't be written.
        """
        ending = ".json.gz" if compress else ".json"
        paths = []
        for rank in range(self.program.ranks):
            paths.append(write_json(Path(folder) / f"rank-{rank}{ending}", self.profile(rank)))
        for rank in range(self.program.ranks) if host else ():
            paths.append(write_json(Path(folder) / f"host.{rank}{ending}", self.host_trace(rank)))
        return paths


def run(
    program: Program,
    *,
    edit: Edit | None = None,
    config: MachineConfig | None = None,
    show: ProfileConfig | None = None,
) -> Run:
    """Run a program on the model machine.

    Args:
        program: What the hosts do; see `chakra_et.testing.programs`.
        edit: What is different this time.
        config: Constants of the machine.
        show: What profiles show of the run.

    Raises:
        InputError: The program can't end.

    Example:
        >>> from chakra_et.testing import Edit, programs, run
        >>> program = programs.training_step(ranks=2)
        >>> slow = run(program, edit=Edit(kernel_scale=2.0))
        >>> slow.makespan_ns > run(program).makespan_ns
        True
    """
    edit, config = edit or Edit(), config or MachineConfig()
    return Run(program, simulate(program, edit=edit, config=config), config, show or ProfileConfig())


def write_json(path: Path, value: object) -> Path:
    """Write a value as JSON, through gzip when the name ends so, and return the path.

    Raises:
        OutputError: The path can't be written.
    """
    data = json.dumps(value).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, compresslevel=6, mtime=0)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as err:
        raise OutputError(f"{path}: expected to write a file, got {err}; choose another folder") from err
    return path
