"""A generator of GPU profiles with known rules, for tests, benchmarks and examples.

A *program* says what the host threads of some ranks do; the *model machine* runs it and says what happened when; a
*run* writes that as profiles like those of torch.profiler. Run again with an `Edit`, the same program gives the truth
that a converted and edited trace must agree with.
"""

from __future__ import annotations

from chakra_et.testing import programs
from chakra_et.testing.builder import ProgramBuilder, ThreadBuilder
from chakra_et.testing.bulk import make_profile_file
from chakra_et.testing.instructions import Program
from chakra_et.testing.profile import ProfileConfig
from chakra_et.testing.records import DeviceEvent, Edit, HostEvent, MachineConfig, RankRun
from chakra_et.testing.run import Run, run

__all__ = [
    "DeviceEvent",
    "Edit",
    "HostEvent",
    "MachineConfig",
    "ProfileConfig",
    "Program",
    "ProgramBuilder",
    "RankRun",
    "Run",
    "ThreadBuilder",
    "make_profile_file",
    "programs",
    "run",
]
