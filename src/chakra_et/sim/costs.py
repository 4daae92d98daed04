"""What communications and nodes of a scene cost under given options.

Shape letters: N nodes, M meetings, P participants.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from chakra_et.errors import InputError
from chakra_et.sim.compute import device_factors, roofline, scale_factors
from chakra_et.sim.flow_table import FlowTable, from_flows, no_flows, price_flows
from chakra_et.sim.measured import Exchange
from chakra_et.sim.network.calibrate import Calibration
from chakra_et.sim.network.topology import Network
from chakra_et.sim.options import SimulateOptions
from chakra_et.sim.scene import Cast
from chakra_et.specs.system import System
from chakra_et.units import format_number_of

__all__ = ["Costs", "calibrated_costs", "measured_costs", "native_costs", "node_times"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What communications cost.

    Attributes:
        exchange: How participants meet.
        flows: What the network takes.
        of_meeting: int64 [M]: flow of each meeting, -1 for none.
        own_ns: int64 [P]: time of each participant's own, after the meeting.
        notes: What limits the result.
    """

    exchange: Exchange
    flows: FlowTable
    of_meeting: Int
    own_ns: Int
    notes: tuple[str, ...] = ()


def measured_costs(cast: Cast, options: SimulateOptions) -> Costs:
    """Return that every participant takes its measured time."""
    exchange = cast.exchange(measured=True, sends_wait=_sends_wait(options))
    own = np.rint(exchange.own_ns * options.comm_scale).astype(np.int64)
    notes: tuple[str, ...] = ()
    if len(own) and not cast.duration[cast.meetings.nodes].any():
        notes = ("no communication has a measured time: they take none; simulate them on a system",)
    return Costs(exchange, no_flows(), np.full(cast.meetings.table.height, -1, np.int64), own, notes)


def native_costs(cast: Cast, network: Network, options: SimulateOptions) -> Costs | None:
    """Return the costs of the native model; None where folded ranks don't load their links alike."""
    flows = price_flows(cast.communications, network, cast.fold, algorithm=options.algorithm)
    return None if flows is None else _modeled(cast, flows, options)


def calibrated_costs(cast: Cast, calibration: Calibration, system: System | None, options: SimulateOptions) -> Costs:
    """Return the costs of the native model as it was fitted to measured transfers."""
    grouped = cast.communications
    distinct = replace(grouped, distinct=np.arange(len(grouped.kind)))
    flows = from_flows(calibration.plan_flows(distinct, system))
    costs = _modeled(cast, flows, options)
    fits = tuple(str(one) for one in calibration.classes)
    return replace(costs, notes=(*costs.notes, *fits, *calibration.notes, *calibration.validity(grouped, system)))


def _modeled(cast: Cast, flows: FlowTable, options: SimulateOptions) -> Costs:
    """Return the costs of a network model; communications of unknown size keep their measured times."""
    exchange = cast.exchange(measured=False, sends_wait=_sends_wait(options))
    none = cast.unsized | cast.empty | (options.comm_scale == 0)
    of_meeting = np.where(none, -1, cast.communications.distinct)
    own = np.zeros(len(cast.meetings.nodes), np.int64)
    notes: tuple[str, ...] = ()
    if cast.unsized.any():
        kept = cast.unsized[cast.meetings.rooms]
        own[kept] = np.rint(cast.measured.own_ns[kept] * options.comm_scale)
        count = format_number_of(int(cast.unsized.sum()), "communication")
        notes = (f"{count} of unknown size: kept as measured",)
    return Costs(exchange, flows.scaled(options.comm_scale) if options.comm_scale else flows, of_meeting, own, notes)


def _sends_wait(options: SimulateOptions) -> bool | None:
    return None if options.sends == "auto" else options.sends == "rendezvous"


def node_times(
    cast: Cast, costs: Costs, system: System | None, options: SimulateOptions
) -> tuple[Int, tuple[str, ...]]:
    """Return durations, int64 [N], ns, and what limits them.

    Raises:
        InputError: The system or the options lack something that the model of compute needs.
    """
    meetings, work, notes = cast.meetings, cast.work, []
    time = cast.duration.astype(np.float64)
    if options.compute == "roofline":
        if system is None:
            raise InputError("compute (roofline): expected a system with a device, got none; name one")
        found, kept = roofline(cast.workload, work, system.device, options.dtype)
        time = np.where(np.isnan(found), time, found)
        if kept.any():
            count = format_number_of(_count(cast, np.flatnonzero(kept)), "compute node")
            notes.append(f"{count} without operations and bytes: kept as measured")
    elif options.compute == "scaled":
        time *= _carried_over(cast, system, options)
    time *= scale_factors(cast.workload, work, compute_scale=options.compute_scale, host_scale=options.host_scale)
    duration = np.rint(time).astype(np.int64)
    duration[meetings.nodes] = costs.own_ns
    measured = np.rint(cast.duration * options.comm_scale).astype(np.int64)
    duration[meetings.single] = measured[meetings.single] if options.comm == "measured" else 0
    duration[meetings.unknown] = measured[meetings.unknown]
    alone = meetings.single if options.comm != "measured" else meetings.single[:0]
    for nodes, what in (
        (meetings.unknown, "with unknown type or partners: kept as measured"),
        (alone, "in a group of one rank: they take no time"),
    ):
        if len(nodes):
            notes.append(f"{format_number_of(_count(cast, nodes), 'communication')} {what}")
    return duration, tuple(notes)


def _count(cast: Cast, nodes: Int) -> int:
    """Return how many nodes these stand for, over all ranks."""
    return int(cast.fold.counts[cast.workload.owners[nodes]].sum())


def _carried_over(cast: Cast, system: System | None, options: SimulateOptions) -> Float:
    """Return the factors from one device to another; none where kinds have factors of their own."""
    if options.from_device is None:
        if options.compute_scale == 1.0:
            raise InputError("compute (scaled): expected from_device or compute_scale, got neither; say what changes")
        return np.ones(cast.workload.node_count)
    if system is None:
        raise InputError("compute (scaled): expected a system to scale to, got none; name one")
    return device_factors(cast.work, options.from_device, system.device, options.dtype)
