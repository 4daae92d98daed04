"""Device activities as the host's calls see them: what was launched where, by which call, in which order.

Shape letters: E host events, A activities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.frontends.pytorch.activities import HOST_COMMUNICATION, Activities
from chakra_et.frontends.pytorch.calls import GraphLaunch, LaunchLog, call_roles, find_graph_launches
from chakra_et.frontends.pytorch.parse_kineto import KinetoProfile
from chakra_et.frontends.pytorch.timeline import HostTimeline

__all__ = ["DeviceView", "view_device"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceView:
    """Device activities and the calls that drive them.

    Attributes:
        roles: int8 [E], what each host event does to streams (`calls.call_roles`).
        lane: int64 [A], -1 for host communications.
        start: int64 [A], ns.
        end: int64 [A], ns; finders move ends, within the clock's resolution, to what waited for them.
        launcher: int64 [A], the runtime call that launched each activity, -1 unknown.
        communication: bool [A], true for communication kernels.
        receives: bool [A], true for receives.
        may_block: bool [A], true for copies for which an async call waits.
        log: Launch order of the lanes.
        graphs: Launches that use several lanes.
        mates: For the last activity of a graph launch on a lane, those on its other lanes: what is after the graph is
            after all.
        lanes: Lane of each (device, stream).
        syncs: `KinetoProfile.syncs`.
        resolution_ns: Clock resolution.
    """

    roles: npt.NDArray[np.int8]
    lane: Int
    start: Int
    end: Int
    launcher: Int
    communication: Bool
    receives: Bool
    may_block: Bool
    log: LaunchLog
    graphs: Sequence[GraphLaunch]
    mates: Mapping[int, Sequence[int]]
    lanes: Mapping[tuple[int, int], int]
    syncs: pl.DataFrame
    resolution_ns: int

    def ended_by(self, activity: int, time: int) -> bool:
        """True if an activity ended by a time, give or take the clock's resolution."""
        return bool(self.end[activity] <= time + self.resolution_ns)


def view_device(
    profile: KinetoProfile, timeline: HostTimeline, activities: Activities, end: Int, receives: Bool
) -> DeviceView:
    """Collect what the finders of waits look at.

    Args:
        profile: The profile.
        timeline: Host events.
        activities: What runs beside the host.
        end: int64 [A], ns, ends after snapping; shared with the view.
        receives: bool [A], true for receives.
    """
    device = activities.kind != HOST_COMMUNICATION
    launcher = np.where(device, activities.launcher, -1)
    lane = np.where(device, activities.lane, -1)
    launched = np.where(launcher >= 0, timeline.start[launcher], -1) if len(timeline.start) else launcher
    graphs = find_graph_launches(launcher, lane, activities.start)
    return DeviceView(
        roles=call_roles(timeline),
        lane=lane,
        start=activities.start,
        end=end,
        launcher=launcher,
        communication=activities.communication,
        receives=receives,
        may_block=activities.may_block,
        log=LaunchLog.build(lane, activities.start, launched),
        graphs=graphs,
        mates={last: [mate for mate in graph.lasts if mate != last] for graph in graphs for last in graph.lasts},
        lanes=activities.lanes,
        syncs=profile.syncs,
        resolution_ns=profile.resolution_ns,
    )
