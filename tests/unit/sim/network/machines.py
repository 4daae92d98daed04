"""Systems and communications for tests of the network model."""

import polars as pl

from chakra_et.ir import CommType
from chakra_et.specs.system import Device, Dimension, System

DEVICE = Device("gpu")


def system(*dimensions):
    """Return a system of (name, topology, size, bytes per ns, latency in ns) tuples."""
    return System(
        "test",
        "",
        DEVICE,
        tuple(Dimension(name, kind, size, speed * 1e9, latency) for name, kind, size, speed, latency in dimensions),
    )


def flat(size=None, speed=100.0, latency=500.0, kind="switch"):
    return system(("scale_up", kind, size, speed, latency))


def servers(size=8, up=400.0, out=50.0, latency=(600.0, 2700.0), kind="switch"):
    return system(("scale_up", kind, size, up, latency[0]), ("scale_out", "switch", None, out, latency[1]))


def torus(*sizes, speed=50.0, latency=1000.0):
    return system(*((f"axis{i}", "ring", size, speed, latency) for i, size in enumerate(sizes)))


def collective(comm_type, size, members, root=None, **more):
    return {
        "kind": "collective",
        "comm_type": int(CommType[comm_type.upper()]),
        "size_bytes": size,
        "members": list(members),
        "root": root,
        "send_bytes": None,
        "measured_ns": None,
        **more,
    }


def send(source, target, size):
    return {**collective("all_reduce", size, [source, target]), "kind": "send", "comm_type": None}


def table(*rows):
    schema = {
        "kind": pl.String(),
        "comm_type": pl.Int64(),
        "size_bytes": pl.Int64(),
        "members": pl.List(pl.Int64()),
        "root": pl.Int64(),
        "send_bytes": pl.List(pl.List(pl.Int64())),
        "measured_ns": pl.Float64(),
    }
    return pl.DataFrame(list(rows), schema=schema)
