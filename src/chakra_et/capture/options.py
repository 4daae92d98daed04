"""What to capture, as a value that travels through the environment into a user's processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from chakra_et.errors import InputError

__all__ = ["VARIABLE", "CaptureOptions"]

# Set by `chakra capture` for the processes of the job.
VARIABLE = "CHAKRA_CAPTURE"


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """What to capture, and where to.

    Attributes:
        out: Folder for the files; made if missing.
        wait: Steps before the window.
        warmup: Steps in which the profiler runs and its records are thrown away.
        active: Steps that are recorded.
        ranks: Global ranks to capture; empty: all.
        stacks: Record Python stacks and modules (module paths of operators need it; slower).
        memory: Record allocations and frees.
        index_ranges: Record the range of integer tensors, so that a replay draws indices that are valid (reads every
            such tensor, so it slows the window).
        anonymous: Write host names as hashes, and no paths.
        after_seconds: In place of `wait`: seconds after torch was loaded; negative: count steps.
        seconds: In place of `active`: length of the window in seconds; 0: count steps.

    Raises:
        InputError: A number is out of its range.

    Example:
        >>> CaptureOptions("out", wait=10).wait
        10
    """

    out: str
    wait: int = 0
    warmup: int = 0
    active: int = 1
    ranks: tuple[int, ...] = ()
    stacks: bool = False
    memory: bool = False
    index_ranges: bool = False
    anonymous: bool = False
    after_seconds: float = -1.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, least in (("wait", 0), ("warmup", 0), ("active", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"{name}: expected a whole number of steps, {least} or more, got {value!r}")
        if not all(isinstance(rank, int) and rank >= 0 for rank in self.ranks):
            raise InputError(f"ranks: expected global ranks, 0 or more, got {self.ranks!r}")
        if not str(self.out):
            raise InputError("out: expected a folder, got an empty name")

    def wants(self, rank: int) -> bool:
        """Tell whether a rank is to be captured."""
        return not self.ranks or rank in self.ranks

    def to_environment(self) -> dict[str, str]:
        """Return the variable that tells a process what to capture."""
        return {VARIABLE: json.dumps(asdict(self))}

    @staticmethod
    def from_environment(environment: Mapping[str, str]) -> CaptureOptions | None:
        """Read the options of `to_environment`; None if there are none.

        Raises:
            InputError: The variable doesn't hold options.
        """
        text = environment.get(VARIABLE)
        if not text:
            return None
        try:
            record = json.loads(text)
            known = {field.name for field in fields(CaptureOptions)}
            values = {name: value for name, value in record.items() if name in known}
            return CaptureOptions(**{**values, "ranks": tuple(values.get("ranks", ()))})
        except (ValueError, TypeError, AttributeError) as err:
            raise InputError(f"{VARIABLE}: expected the options that `chakra capture` writes, got {text!r}") from err
