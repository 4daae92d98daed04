"""Options of the verbs that simulate: the machine, and what is simulated on it."""

from __future__ import annotations

import argparse
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING

from chakra_et.cli._types import whole_number
from chakra_et.errors import InputError
from chakra_et.units import parse_ns

if TYPE_CHECKING:
    from chakra_et.sim.options import SimulateOptions
    from chakra_et.specs import System

__all__ = ["add_model", "add_system", "model_options", "read_system"]


def add_system(parser: argparse._ArgumentGroup | argparse.ArgumentParser, *, more: str = "") -> None:
    """Declare the machine."""
    parser.add_argument("--system", metavar="NAME|FILE", help=f"preset, or system file (TOML){more}")
    parser.add_argument(
        "--set", type=_assignment, action="append", default=[], metavar="KEY=VALUE",
        help="change the system, such as scale_up.bandwidth=900GB/s or scale_up.size=72; may be repeated",
    )  # fmt: skip


def add_model(parser: argparse._ArgumentGroup | argparse.ArgumentParser) -> None:
    """Declare what communications and compute cost, and what is simulated."""
    parser.add_argument(
        "--comm", choices=("auto", "native", "measured", "calibrated"), default="auto",
        help="what communications cost: the network model (native), their measured transfers, or the model fitted to "
        "these (default: native with a system, else measured)",
    )  # fmt: skip
    parser.add_argument(
        "--compute", choices=("measured", "roofline", "scaled"), default="measured",
        help="how long other nodes take: as measured, by a roofline of the system's device, or carried over to it from "
        "the device of --from-system",
    )  # fmt: skip
    parser.add_argument(
        "--from-system", metavar="NAME|FILE",
        help="the system that was measured, for scaled and calibrated (there by default: --system without --set)",
    )  # fmt: skip
    parser.add_argument(
        "--scale", type=_factor, action="append", default=[], metavar="KIND=X",
        help="factor on compute of a kind (gemm, attention, ..., * for the rest), on comm or on host; may be repeated",
    )  # fmt: skip
    parser.add_argument("--algorithm", default="auto", metavar="NAME", help="algorithm of collectives (default: auto)")
    parser.add_argument(
        "--delay", type=_delay, action="append", default=[], metavar="RANK=TIME",
        help="let a rank begin late, such as 3=2ms; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--resources", choices=("auto", "streams", "engines"), default="auto",
        help="streams: the edges alone decide, as in collected traces; engines: a rank has one compute engine, a "
        "process group --channels (default: what fits the traces)",
    )  # fmt: skip
    parser.add_argument("--channels", type=whole_number(1), default=1, metavar="N", help="of a group, with engines")
    parser.add_argument(
        "--overlap-slowdown", type=float, default=1.0, metavar="X",
        help="factor on compute while a communication of its rank is in transfer, with engines; inf: it stands still",
    )  # fmt: skip
    parser.add_argument(
        "--iteration", type=_iteration, default="inner", metavar="N|inner|all",
        help="which training step: a number, inner (all but the first and the last, each on its own), or all "
        "(everything that was recorded, at once); default: inner",
    )  # fmt: skip
    parser.add_argument("--mirror-missing", action="store_true", help="copy traces for ranks that are not there")
    parser.add_argument(
        "--fold", choices=("auto", "off"), default="auto",
        help="simulate ranks that do the same once (auto) or all (off); the result is the same",
    )  # fmt: skip


def read_system(args: argparse.Namespace) -> System | None:
    """Return the machine that the command line names, or None."""
    from chakra_et.specs import load_system, with_overrides

    if args.system is None:
        if args.set:
            raise InputError("--set: expected a system to change, got none; add --system")
        return None
    return with_overrides(load_system(args.system), dict(args.set))


def model_options(args: argparse.Namespace) -> SimulateOptions:
    """Return what the command line says of the simulation."""
    from chakra_et.sim.options import SimulateOptions
    from chakra_et.specs import load_system

    scales = dict(args.scale)
    # What --set changes wasn't there when the job was measured.
    base = args.from_system or (args.system if args.comm == "calibrated" else None)
    measured = load_system(base) if base else None
    comm, host = scales.pop("comm", 1.0), scales.pop("host", 1.0)
    return SimulateOptions(
        comm=args.comm,
        compute=args.compute,
        resources=args.resources,
        fold=args.fold,
        iteration=args.iteration,
        mirror_missing=args.mirror_missing,
        comm_scale=comm,
        host_scale=host,
        compute_scale=scales or 1.0,
        algorithm=args.algorithm,
        rank_delay_ns=dict(args.delay),
        channels=args.channels,
        overlap_slowdown=args.overlap_slowdown,
        from_device=measured.device if measured and args.compute == "scaled" else None,
        measured_system=measured,
    )


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (equals and key.strip() and value.strip()):
        raise ArgumentTypeError(f"expected KEY=VALUE such as scale_up.size=72, got '{text}'")
    return key.strip(), value.strip()


def _factor(text: str) -> tuple[str, float]:
    kind, value = _assignment(text)
    try:
        factor = float(value)
    except ValueError:
        factor = -1.0
    if not 0 <= factor < float("inf"):
        raise ArgumentTypeError(f"expected a factor of 0 or more, such as gemm=1.8, got '{text}'")
    return kind, factor


def _delay(text: str) -> tuple[int, int]:
    rank, time = _assignment(text)
    try:
        return whole_number(0)(rank), parse_ns(time)
    except InputError as err:
        raise ArgumentTypeError(f"expected RANK=TIME such as 3=2ms, got '{text}'") from err


def _iteration(text: str) -> int | str:
    return text if text in ("inner", "all") else whole_number(0)(text)
