"""The native model with its parameters fitted to the transfers that a trace measured.

For each class of communications, that is type and span (the dimensions that a group extends along), two factors are
fitted: how much longer than the system's description says latency and transfer take. Rounds and bytes on the most
loaded link stay those of the algorithm. In a what-if the factors stay: a system with twice the bandwidth has twice the
achieved bandwidth, with the same efficiency.

Shape letters: C communications, U distinct ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import SimulationError
from chakra_et.ir.enums import CommType
from chakra_et.sim.collectives.table import AUTO
from chakra_et.sim.network.bounds import bottlenecks
from chakra_et.sim.network.communications import MEASURED, SEND, Communications, group_communications
from chakra_et.sim.network.fit import LATENCY, fit_factors
from chakra_et.sim.network.flows import Flows
from chakra_et.sim.network.native import Prices, price, to_flows
from chakra_et.sim.network.topology import Network, make_network
from chakra_et.specs.system import System
from chakra_et.units import format_bytes, format_ns, format_number_of

__all__ = ["Calibration", "ClassFit", "calibrate"]

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]

_WHY = {
    "transfer": "too few sizes, or too equal ones, to fit its latency, which is the system's",
    "both alike": "too few sizes, or too equal ones, to tell latency from bandwidth: one factor for both",
    "latency": "nothing but latency to fit",
}


@dataclass(frozen=True, slots=True)
class ClassFit:
    """The parameters of one class of communications.

    Attributes:
        span: Dimensions that the groups extend along, such as ``scale_up+scale_out``.
        comm_type: Type in lower case, or ``send``.
        samples: Number of measured communications.
        smallest_bytes: Smallest `comm_size` among them.
        largest_bytes: Largest `comm_size` among them.
        method: What was fitted, one of `chakra_et.sim.network.fit.METHODS`.
        latency_factor: Factor of the system's latency.
        transfer_factor: Factor of the system's transfer time.
        latency_ns: Latency of a communication, fitted, median.
        bytes_per_s: Bandwidth that the most loaded link achieves, median; 0 if nothing was transferred.
        residual_median: Median relative error of the fitted times.
        residual_p90: 90th percentile of the relative error.
    """

    span: str
    comm_type: str
    samples: int
    smallest_bytes: int
    largest_bytes: int
    method: str
    latency_factor: float
    transfer_factor: float
    latency_ns: float
    bytes_per_s: float
    residual_median: float
    residual_p90: float

    def as_dict(self) -> dict[str, Any]:
        """Return the parameters as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}

    def __str__(self) -> str:
        speed = f"{self.bytes_per_s / 1e9:.4g} GB/s" if self.bytes_per_s else "no bandwidth"
        return (
            f"{self.comm_type} over {self.span}: {format_ns(self.latency_ns)} and {speed} from "
            f"{format_number_of(self.samples, 'sample')} of {format_bytes(self.smallest_bytes)} to "
            f"{format_bytes(self.largest_bytes)}, off by {self.residual_median:.1%} (p90 {self.residual_p90:.1%})"
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted network model.

    Attributes:
        system: The system whose parameters were fitted; None for a single switch with no known parameters.
        world_size: Number of ranks of the measured job.
        algorithm: Which algorithms were taken for which type, as in `plan_flows` of the native model.
        classes: What was fitted, by span and type.
    """

    system: System | None
    world_size: int
    algorithm: str | Mapping[str, str]
    classes: tuple[ClassFit, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What the fit could not do, in words."""
        return tuple(
            f"{one.comm_type} over {one.span}: {_WHY[one.method]}" for one in self.classes if one.method in _WHY
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fit as plain data."""
        name = self.system.name if self.system is not None else None
        return {"system": name, "classes": [one.as_dict() for one in self.classes], "notes": list(self.notes)}

    def plan_flows(
        self,
        communications: pl.DataFrame | Communications,
        system: System | None = None,
        world_size: int | None = None,
        *,
        algorithm: str | Mapping[str, str] | None = None,
    ) -> Flows:
        """Return latency and loads of each communication, as the native model does, with the fitted factors.

        A class that was not measured takes the median factors of its span, else of all classes.

        Args:
            communications: One row a communication, or what `group_communications` made of them.
            system: The machine, such as a changed copy of the measured one; that one by default.
            world_size: Number of ranks; that of the measured job by default.
            algorithm: As in the native model; as in the fit by default.

        Example:
            >>> rows = [{"kind": "send", "members": [0, 1], "size_bytes": size, "measured_ns": 9.0 + 2 * size}
            ...         for size in (1, 10, 100, 1000)]
            >>> flows = calibrate(pl.DataFrame(rows), None, 2).plan_flows(pl.DataFrame(rows[:2]))
            >>> flows.latency_ns.round(3).tolist(), flows.bytes.round(3).tolist()
            ([9.0, 9.0], [2.0, 2.0, 20.0, 20.0])
        """
        if isinstance(communications, pl.DataFrame):
            communications = group_communications(communications)
        network = _network(system if system is not None else self.system, world_size or self.world_size)
        prices = price(communications, network, algorithm=self.algorithm if algorithm is None else algorithm)
        latency, transfer = np.ones(len(communications.kind)), np.ones(len(communications.kind))
        factors: dict[tuple[str, str], tuple[float, float]] = {}
        for index, key in enumerate(_classes(communications, prices)):
            if prices.algorithm[index] not in ("none", "measured"):
                if key not in factors:
                    factors[key] = self._factors(*key)
                latency[index], transfer[index] = factors[key]
        return to_flows(communications, _scaled(prices, latency, transfer), network)

    def _factors(self, span: str, comm_type: str) -> tuple[float, float]:
        """Return the factors of a class, or of those nearest to it."""
        for near in (
            [one for one in self.classes if (one.span, one.comm_type) == (span, comm_type)],
            [one for one in self.classes if one.span == span],
            self.classes,
        ):
            latency = [one.latency_factor for one in near]
            transfer = [one.transfer_factor for one in near if one.method != LATENCY]
            if latency:
                return float(np.median(latency)), float(np.median(transfer)) if transfer else 1.0
        return 1.0, 1.0

    def validity(
        self,
        communications: pl.DataFrame | Communications,
        system: System | None = None,
        world_size: int | None = None,
    ) -> tuple[str, ...]:
        """Return in words which communications lie beyond what was measured.

        Args:
            communications: What is to be planned.
            system: As in `plan_flows`.
            world_size: As in `plan_flows`.
        """
        if isinstance(communications, pl.DataFrame):
            communications = group_communications(communications)
        network = _network(system if system is not None else self.system, world_size or self.world_size)
        prices = price(communications, network, algorithm=self.algorithm)
        known = {(one.span, one.comm_type): one for one in self.classes}
        count = np.bincount(communications.distinct, minlength=len(communications.kind))
        strange: dict[tuple[str, str], int] = {}
        beyond: dict[tuple[str, str], int] = {}
        for index, key in enumerate(_classes(communications, prices)):
            if prices.algorithm[index] in ("none", "measured"):
                continue
            if key not in known:
                strange[key] = strange.get(key, 0) + int(count[index])
            elif not known[key].smallest_bytes <= communications.size_bytes[index] <= known[key].largest_bytes:
                beyond[key] = beyond.get(key, 0) + int(count[index])
        return (
            *(
                f"{format_number_of(number, 'communication')} of {comm_type} over {span}: not measured; they take the "
                "median factors of the span, or of all"
                for (span, comm_type), number in strange.items()
            ),
            *(
                f"{format_number_of(number, 'communication')} of {comm_type} over {span}: beyond the measured sizes, "
                f"{format_bytes(known[span, comm_type].smallest_bytes)} to "
                f"{format_bytes(known[span, comm_type].largest_bytes)}"
                for (span, comm_type), number in beyond.items()
            ),
        )


def calibrate(
    communications: pl.DataFrame,
    system: System | None,
    world_size: int,
    *,
    algorithm: str | Mapping[str, str] = AUTO,
) -> Calibration:
    """Fit the native model to the measured transfers.

    A measured time is that from the last arrival to the end. Times in which communications shared links count as they
    are: where they overlapped, less bandwidth seems to be achieved.

    Args:
        communications: One row a communication (`group_communications` lists the columns); `measured_ns` above 0 where
            it is known.
        system: The machine that was measured; None if unknown: then the job is taken for ranks on a single switch.
        world_size: Number of ranks of the job.
        algorithm: As in the native model.

    Raises:
        SimulationError: Nothing was measured.

    Example:
        >>> rows = [{"kind": "collective", "comm_type": 2, "members": [0, 1], "size_bytes": size,
        ...          "measured_ns": 5000.0 + size / 25} for size in (1000, 10_000, 100_000, 1_000_000)]
        >>> print(calibrate(pl.DataFrame(rows), None, 2).classes[0])
        all_gather over network: 5.000 us and 25 GB/s from 4 samples of 1000 B to 976.6 KiB, off by 0.0% (p90 0.0%)
    """
    grouped = group_communications(communications)
    network = _network(system, world_size)
    prices = price(grouped, network, algorithm=algorithm)
    flows = to_flows(replace(grouped, distinct=np.arange(len(grouped.kind))), prices, network)
    transfer, link = bottlenecks(flows)
    speed = np.where(link >= 0, flows.capacity[np.maximum(link, 0)] if len(flows.capacity) else 0.0, 0.0)
    measured = _measured(communications)
    keys = _classes(grouped, prices)
    rows: dict[tuple[str, str], list[int]] = {}
    for row in np.nonzero(measured > 0)[0].tolist():
        index = int(grouped.distinct[row])
        if prices.algorithm[index] not in ("none", "measured"):
            rows.setdefault(keys[index], []).append(row)
    if not rows:
        raise SimulationError(
            "expected communications with measured times, got none; convert a profile of all ranks, or simulate with "
            "the native model (--comm native)"
        )
    classes = []
    for key, found in sorted(rows.items()):
        ones = grouped.distinct[found]
        classes.append(
            _fit_class(
                key, measured[found], prices.latency_ns[ones], transfer[ones], speed[ones], grouped.size_bytes[ones]
            )
        )
    return Calibration(system, world_size, algorithm, tuple(classes))


def _fit_class(
    key: tuple[str, str], measured: Float, latency: Float, transfer: Float, speed: Float, size: Int
) -> ClassFit:
    """Fit one class; `speed` is the capacity of each one's most loaded link, bytes per ns."""
    fit = fit_factors(measured, latency, transfer)
    return ClassFit(
        span=key[0],
        comm_type=key[1],
        samples=len(measured),
        smallest_bytes=int(size.min()),
        largest_bytes=int(size.max()),
        method=fit.method,
        latency_factor=fit.latency_factor,
        transfer_factor=fit.transfer_factor,
        latency_ns=float(np.median(latency)) * fit.latency_factor,
        bytes_per_s=float(np.median(speed)) / fit.transfer_factor * 1e9 if fit.transfer_factor else 0.0,
        residual_median=fit.residual_median,
        residual_p90=fit.residual_p90,
    )


def _network(system: System | None, world_size: int) -> Network:
    """Return a network; without a system, one in which a round takes 1 ns and a byte 1 ns."""
    network = make_network(system, world_size)
    return network if system is not None else replace(network, grid=replace(network.grid, latency_ns=(1.0,)))


def _measured(table: pl.DataFrame) -> Float:
    """Return measured times, 0 where there is none, float64 [C]."""
    if "measured_ns" not in table.columns:
        return np.zeros(table.height)
    times: Float = table["measured_ns"].cast(pl.Float64).fill_null(0.0).fill_nan(0.0).to_numpy()
    return times


def _classes(communications: Communications, prices: Prices) -> list[tuple[str, str]]:
    """Return span and type of each distinct communication."""
    names = {int(kind): kind.name.lower() for kind in CommType} | {SEND: "send", MEASURED: "unknown"}
    return [(span, names[kind]) for span, kind in zip(prices.spans, communications.kind.tolist(), strict=True)]


def _scaled(prices: Prices, latency: Float, transfer: Float) -> Prices:
    """Return prices with factors of each distinct communication, float64 [U]; loads that become 0 are left out."""
    lengths = np.diff(prices.indptr)
    loads = prices.bytes * np.repeat(transfer, lengths)
    kept = loads > 0
    indptr = np.zeros_like(prices.indptr)
    np.cumsum(np.where(transfer > 0, lengths, 0), out=indptr[1:])
    return replace(
        prices, latency_ns=prices.latency_ns * latency, indptr=indptr, links=prices.links[kept], bytes=loads[kept]
    )
