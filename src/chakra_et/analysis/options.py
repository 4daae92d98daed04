"""What all analyses can be asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from chakra_et.errors import InputError
from chakra_et.specs import KernelClasses, System, load_kernel_classes

__all__ = ["Choice", "Options", "check_fixed", "check_keys"]

Choice = Literal["all", "whole"] | int | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Options:
    """What to analyze, and how.

    Attributes:
        iteration: Numbers of iterations; ``all`` of them; ``whole``: the whole profile as one stretch, marked or not;
            None: all but the first and the last, where there are more than two.
        by: What rows are told apart by; None for the analysis's own choice.
        system: The machine, for peaks of arithmetic, memory and network; None where it isn't known.
        ranks_per_server: How many ranks share a server; None where it isn't known, then the system's innermost
            dimension tells if there is one.
        kernel_classes: What kernels are called.
        linked_only: Leave out activities whose launch isn't in the profile.
    """

    iteration: Choice = None
    by: tuple[str, ...] | None = None
    system: System | None = None
    ranks_per_server: int | None = None
    kernel_classes: KernelClasses = field(default_factory=load_kernel_classes)
    linked_only: bool = False

    def __post_init__(self) -> None:
        if self.system is not None and not isinstance(self.system, System):
            raise InputError(f"system: expected a System, got {self.system!r}; load_system reads presets and files")
        if isinstance(self.iteration, str) and self.iteration not in ("all", "whole"):
            raise InputError(f"iteration: expected a number, 'all' or 'whole', got '{self.iteration}'; list them first")
        if self.ranks_per_server is not None and self.ranks_per_server < 1:
            raise InputError(f"ranks_per_server: expected 1 or more, got {self.ranks_per_server}; leave it out")

    @property
    def server_size(self) -> int | None:
        """Ranks of one server, as far as it is known."""
        if self.ranks_per_server is not None or self.system is None or not self.system.dimensions:
            return self.ranks_per_server
        return self.system.dimensions[0].size

    def as_dict(self) -> dict[str, Any]:
        """Return what was asked as plain data."""
        chosen = self.iteration
        return {
            "iteration": list(chosen) if isinstance(chosen, tuple) else chosen,
            "by": None if self.by is None else list(self.by),
            "system": None if self.system is None else self.system.name,
            "ranks_per_server": self.server_size,
            "linked_only": self.linked_only,
        }


def check_keys(options: Options, known: tuple[str, ...], default: tuple[str, ...]) -> tuple[str, ...]:
    """Return what rows are told apart by.

    Raises:
        InputError: Something else than `known` was asked for.
    """
    wanted = default if options.by is None else options.by
    strange = [key for key in wanted if key not in known]
    if strange or not wanted:
        got = f"'{strange[0]}'" if strange else "nothing"
        raise InputError(f"by: expected one or more of {', '.join(known)}, got {got}; leave it out")
    return wanted


def check_fixed(options: Options, keys: tuple[str, ...]) -> None:
    """Refuse other rows than those that an analysis has.

    Raises:
        InputError: Rows were asked for that are told apart by anything but `keys`.
    """
    if options.by is not None and set(options.by) != set(keys):
        got = ", ".join(options.by) or "nothing"
        raise InputError(f"by: expected {', '.join(keys)}, as its rows always are, got {got}; leave it out")
