"""ASTRA-sim's own configuration files: network.yml, system.json, memory.json, comm_group.json.

What they mean is what ASTRA-sim 2.0 with its analytical networks does with them; keys that it reads and then never uses
are listed in `AstraConfig.ignored`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from chakra_et.errors import FormatError, InputError
from chakra_et.specs._fields import MOST_INTEGER, Fields, shown
from chakra_et.specs._files import first_line, read_text, write_texts

__all__ = [
    "ALGORITHMS",
    "MEMORY_TYPES",
    "TOPOLOGIES",
    "AstraConfig",
    "read_astra_config",
    "read_per_node_custom",
    "write_astra_config",
]

TOPOLOGIES = ("Ring", "FullyConnected", "Switch")
MEMORY_TYPES = (
    "NO_MEMORY_EXPANSION",
    "PER_NPU_MEMORY_EXPANSION",
    "PER_NODE_MEMORY_EXPANSION",
    "MEMORY_POOL",
)
# N is a window: how many messages of a rank are under way at once.
ALGORITHMS = (
    "ring",
    "direct",
    "directN",
    "halvingDoubling",
    "doubleBinaryTree",
    "oneRing",
    "oneDirect",
    "oneDirectN",
    "oneHalvingDoubling",
)

_ALGORITHM = re.compile(
    r"ring|oneRing|(?:direct|oneDirect)(?:[1-9]\d{0,4})?|halvingDoubling|oneHalvingDoubling|doubleBinaryTree"
)
_COLLECTIVES = {
    "all_reduce": "all-reduce-implementation",
    "all_gather": "all-gather-implementation",
    "reduce_scatter": "reduce-scatter-implementation",
    "all_to_all": "all-to-all-implementation",
}
_OPTIMIZATIONS = ("baseline", "localBWAware")
_POLICIES = ("LIFO", "FIFO", "EXPLICIT")
_SILENT = ("trace-enabled", "local-mem-trace-filename")  # say what is logged, not what happens


@dataclass(frozen=True, slots=True)
class AstraConfig:
    """A machine, and how it communicates, as ASTRA-sim's files describe it.

    Attributes:
        topology: ``Ring``, ``FullyConnected`` or ``Switch`` of each dimension, innermost first.
        npus_count: Ranks along each dimension; rank = a0 + n0 * (a1 + n1 * a2 ...).
        bandwidth: Bandwidth of a link of each dimension, GiB/s (2**30 bytes).
        latency_ns: Latency of a link of each dimension; may be fractional.
        all_reduce: Algorithm of all-reduces in each dimension; fewer than dimensions: the outer ones stay unused.
        all_gather: The same for all-gathers.
        reduce_scatter: The same for reduce-scatters.
        all_to_all: The same for all-to-alls.
        all_reduce_custom: Prefix of the traces (``PREFIX.<rank>.et``) that are run instead, or None.
        all_gather_custom: The same for all-gathers.
        reduce_scatter_custom: The same for reduce-scatters.
        all_to_all_custom: The same for all-to-alls.
        per_node_custom: Path of a YAML file {node id: prefix}, which goes before all of them, or None.
        collective_optimization: ``baseline``, or ``localBWAware``: reduce-scatter inwards, all-gather outwards.
        endpoint_delay: Delay before each message, ns.
        active_chunks: Chunks of collectives that are under way at once in a dimension.
        splits: Chunks that a collective is cut into; 0 if the file doesn't say: ASTRA-sim then ends at the first one.
        local_mem_bw: Memory bandwidth for reductions and rooflines, GB/s (1e9 bytes); 0 if the file doesn't say.
        peak_perf: Peak of the device, TFLOP/s; 0 if the file doesn't say.
        roofline: Compute takes what a roofline says, not the traces' durations.
        replay_only: Every node takes the trace's duration.
        track_local_mem: Memory use is tracked.
        scheduling_policy: ``LIFO``, ``FIFO`` or ``EXPLICIT``; they all give the same times.
        memory_type: Where loads and stores go: one of `MEMORY_TYPES`.
        remote_mem_latency: Latency of a load or store, ns.
        remote_mem_bw: Bandwidth of loads and stores, GB/s (1e9 bytes); 0 if the file doesn't say.
        num_nodes: Servers (``PER_NODE_MEMORY_EXPANSION``).
        num_npus_per_node: Ranks of a server, which take turns in its memory.
        groups: Communicator groups: id and its ranks in the order listed.
        folder: What relative paths of custom collectives start from; None for the working directory.
        ignored: Keys in the files that ASTRA-sim doesn't know or that change nothing.
    """

    topology: tuple[str, ...]
    npus_count: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency_ns: tuple[float, ...]
    all_reduce: tuple[str, ...] = ()
    all_gather: tuple[str, ...] = ()
    reduce_scatter: tuple[str, ...] = ()
    all_to_all: tuple[str, ...] = ()
    all_reduce_custom: str | None = None
    all_gather_custom: str | None = None
    reduce_scatter_custom: str | None = None
    all_to_all_custom: str | None = None
    per_node_custom: str | None = None
    collective_optimization: str = "baseline"
    endpoint_delay: int = 10
    active_chunks: int = 1
    splits: int = 0
    local_mem_bw: float = 0.0
    peak_perf: float = 0.0
    roofline: bool = False
    replay_only: bool = False
    track_local_mem: bool = False
    scheduling_policy: str = "LIFO"
    memory_type: str = "NO_MEMORY_EXPANSION"
    remote_mem_latency: int = 0
    remote_mem_bw: int = 0
    num_nodes: int = 0
    num_npus_per_node: int = 0
    groups: tuple[tuple[int, tuple[int, ...]], ...] = ()
    folder: Path | None = field(default=None, compare=False)
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @property
    def npus(self) -> int:
        """Number of ranks of the machine."""
        return math.prod(self.npus_count)

    def resolve(self, name: str) -> Path:
        """Return the path that a relative name of a custom collective, or of `per_node_custom`, stands for."""
        return (self.folder or Path()) / name


def read_astra_config(
    network: str | Path,
    system: str | Path,
    memory: str | Path | None = None,
    groups: str | Path | None = None,
    *,
    folder: str | Path | None = None,
) -> AstraConfig:
    """Read ASTRA-sim's configuration files.

    Args:
        network: ``network.yml``.
        system: ``system.json``.
        memory: ``memory.json``; None for no memory beyond the device's.
        groups: ``comm_group.json``; None, or a file name with "empty" in it as ASTRA-sim has it, for no groups.
        folder: What relative paths of custom collectives start from; the working directory if not given.

    Raises:
        InputError: A file isn't there, or a value isn't one that ASTRA-sim can run.
        FormatError: A file isn't YAML or JSON.

    Example:
        >>> import tempfile
        >>> config = AstraConfig(("Ring", "Switch"), (4, 8), (100.0, 25.0), (500.0, 1000.0), splits=4)
        >>> network, system, memory = write_astra_config(config, tempfile.mkdtemp())
        >>> read_astra_config(network, system, memory).npus
        32
    """
    texts = {"network": read_text(network), "system": read_text(system)}
    places = {"network": str(network), "system": str(system), "memory": str(memory), "groups": str(groups)}
    if memory is not None:
        texts["memory"] = read_text(memory)
    if groups is not None and "empty" not in Path(groups).name:
        texts["groups"] = read_text(groups)
    return _parse(texts, places, Path.cwd() if folder is None else Path(folder))


def read_per_node_custom(config: AstraConfig) -> dict[int, str]:
    """Read the file that `per_node_custom` names: which nodes run custom collectives, whatever their type.

    Args:
        config: The configuration.

    Returns:
        Node id -> prefix of the traces, as the file has it; empty where no file is named.

    Raises:
        InputError: The file isn't there, or holds anything but node ids and prefixes.
        FormatError: It isn't YAML.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "pernode.yml").write_text("2: algo")
        >>> config = AstraConfig(("Ring",), (4,), (50.0,), (500.0,), per_node_custom="pernode.yml", folder=folder)
        >>> read_per_node_custom(config)
        {2: 'algo'}
    """
    if config.per_node_custom is None:
        return {}
    path = config.resolve(config.per_node_custom)
    entries = _load_yaml(read_text(path), str(path))
    if not isinstance(entries, dict):
        raise FormatError(f"{path}: expected node ids with prefixes, got {shown(entries)}; check the file")
    for node, prefix in entries.items():
        if isinstance(node, bool) or not isinstance(node, int) or node < 0:
            raise InputError(f"{path}: expected node ids, got {shown(node)}; check the file")
        if not isinstance(prefix, str) or not prefix:
            raise InputError(f"{path}: {node}: expected the prefix of traces, got {shown(prefix)}; check the file")
    return dict(entries)


def write_astra_config(config: AstraConfig, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write network.yml, system.json, memory.json, and comm_group.json if there are groups.

    Args:
        config: The machine.
        folder: Where to write; made if it isn't there.
        force: True to overwrite.

    Returns:
        The files, in that order.

    Raises:
        InputError: A value isn't one that ASTRA-sim can run; nothing is written.
        OutputError: A file exists and `force` is False, or one can't be written.

    Example:
        >>> import tempfile
        >>> paths = write_astra_config(AstraConfig(("Ring",), (4,), (50.0,), (500.0,)), tempfile.mkdtemp())
        >>> [path.name for path in paths]
        ['network.yml', 'system.json', 'memory.json']
    """
    texts = {
        "network": _network_text(config),
        "system": _dump(_system_values(config)),
        "memory": _dump(_memory_values(config)),
    }
    if config.groups:
        texts["groups"] = _dump({str(number): list(ranks) for number, ranks in config.groups})
    names = {"network": "network.yml", "system": "system.json", "memory": "memory.json", "groups": "comm_group.json"}
    paths = {part: Path(folder) / name for part, name in names.items()}
    _parse(texts, {part: str(path) for part, path in paths.items()}, None)
    return write_texts({paths[part]: text for part, text in texts.items()}, force=force)


def _parse(texts: dict[str, str], places: dict[str, str], folder: Path | None) -> AstraConfig:
    network = Fields(places["network"], _load_yaml(texts["network"], places["network"]))
    system = Fields(places["system"], _load_json(texts["system"], places["system"]))
    memory = Fields(places["memory"], _load_json(texts.get("memory", "{}"), places["memory"]))
    topology, counts, bandwidth, latency = _network(network)
    remote = _memory(memory)
    algorithms = {name: _algorithms(system, key, len(topology)) for name, key in _COLLECTIVES.items()}
    custom = {name: _custom(system, f"{key}-custom") for name, key in _COLLECTIVES.items()}
    if system.flag("model-shared-bus"):
        raise system.error("model-shared-bus", "0", "a bus shared by the messages of a rank isn't modelled; remove it")
    system.skip(*_SILENT)
    config = AstraConfig(
        topology,
        counts,
        bandwidth,
        latency,
        all_reduce=algorithms["all_reduce"],
        all_gather=algorithms["all_gather"],
        reduce_scatter=algorithms["reduce_scatter"],
        all_to_all=algorithms["all_to_all"],
        all_reduce_custom=custom["all_reduce"],
        all_gather_custom=custom["all_gather"],
        reduce_scatter_custom=custom["reduce_scatter"],
        all_to_all_custom=custom["all_to_all"],
        per_node_custom=_path(system, "per-node-custom-implementation"),
        collective_optimization=system.text("collective-optimization", "baseline", choices=_OPTIMIZATIONS),
        endpoint_delay=system.integer("endpoint-delay", 10),
        active_chunks=system.integer("active-chunks-per-dimension", 1, least=1),
        splits=system.integer("preferred-dataset-splits", 0),
        local_mem_bw=float(system.number("local-mem-bw", 0.0)),
        peak_perf=float(system.number("peak-perf", 0.0)),
        roofline=system.flag("roofline-enabled"),
        replay_only=system.flag("replay-only"),
        track_local_mem=system.flag("track-local-mem"),
        scheduling_policy=system.text("scheduling-policy", "LIFO", choices=_POLICIES),
        memory_type=remote[0],
        remote_mem_latency=remote[1],
        remote_mem_bw=remote[2],
        num_nodes=remote[3],
        num_npus_per_node=remote[4],
        groups=_groups(texts["groups"], places["groups"], math.prod(counts)) if "groups" in texts else (),
        folder=folder,
    )
    return replace(config, ignored=(*network.rest(), *system.rest(), *memory.rest()))


def _load_json(text: str, place: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise FormatError(f"{place}: expected JSON, got an error: {first_line(err)}; check the file") from err


def _load_yaml(text: str, place: str) -> object:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise FormatError(f"{place}: expected YAML, got an error: {first_line(err)}; check the file") from err


def _network(fields: Fields) -> tuple[tuple[str, ...], tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
    topology = fields.texts("topology")
    if not topology or not set(topology) <= set(TOPOLOGIES):
        raise fields.error("topology", f"a list of {', '.join(TOPOLOGIES)}", "name one of them for each dimension")
    rows = {key: fields.numbers(key) for key in ("npus_count", "bandwidth", "latency")}
    for key, row in rows.items():
        if len(row) != len(topology):
            raise fields.error(key, f"{len(topology)} entries as in topology", "write one entry a dimension")
    if not all(2 <= count <= MOST_INTEGER and count == int(count) for count in rows["npus_count"]):
        raise fields.error("npus_count", "integers of 2 or more", "leave out dimensions with one rank")
    if not all(value > 0 for value in rows["bandwidth"]):
        raise fields.error("bandwidth", "numbers above 0", "it is in GiB/s")
    if not all(value >= 0 for value in rows["latency"]):
        raise fields.error("latency", "numbers of 0 or more", "it is in ns")
    return (
        topology,
        tuple(map(int, rows["npus_count"])),
        tuple(map(float, rows["bandwidth"])),
        tuple(map(float, rows["latency"])),
    )


def _algorithms(fields: Fields, key: str, dimensions: int) -> tuple[str, ...]:
    names = fields.texts(key)
    if not all(_ALGORITHM.fullmatch(name) for name in names):
        raise fields.error(key, f"a list of {', '.join(ALGORITHMS)}", "N is a number of 1 or more")
    if len(names) > dimensions:
        raise fields.error(key, f"at most {dimensions} entries, as the network has dimensions", "remove some")
    return names


def _custom(fields: Fields, key: str) -> str | None:
    names = fields.texts(key)
    if key in fields and (len(names) != 1 or not names[0]):
        raise fields.error(key, "a list with one prefix of traces", 'write ["PREFIX"]')
    return names[0] if names else None


def _path(fields: Fields, key: str) -> str | None:
    name = fields.text(key, "")
    if key in fields and not name:
        raise fields.error(key, "the path of a YAML file", "name one or remove the key")
    return name or None


def _memory(fields: Fields) -> tuple[str, int, int, int, int]:
    kind = fields.text("memory-type", "NO_MEMORY_EXPANSION", choices=MEMORY_TYPES)
    used, shared = kind != "NO_MEMORY_EXPANSION", kind == "PER_NODE_MEMORY_EXPANSION"
    return (
        kind,
        fields.integer("remote-mem-latency", 0),
        fields.integer("remote-mem-bw", None if used else 0, least=int(used)),
        fields.integer("num-nodes", None if shared else 0, least=int(shared)),
        fields.integer("num-npus-per-node", None if shared else 0, least=int(shared)),
    )


def _groups(text: str, place: str, npus: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
    fields = Fields(place, _load_json(text, place))
    groups = []
    for key in fields.rest():
        if not re.fullmatch(r"[1-9]\d{0,8}", key):
            raise InputError(
                f"{place}: expected positive integers as group ids, got {shown(key)}; group 0 is that of all ranks"
            )
        ranks = fields.value(key)
        if not isinstance(ranks, list) or not ranks or not all(_is_rank(rank, npus) for rank in ranks):
            raise fields.error(key, f"a list of ranks below {npus}", "the network has that many")
        if len(set(ranks)) < len(ranks):
            raise fields.error(key, "each rank once", "remove the others")
        groups.append((int(key), tuple(ranks)))
    return tuple(groups)


def _is_rank(value: object, npus: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < npus


def _network_text(config: AstraConfig) -> str:
    rows = {
        "topology": config.topology,
        "npus_count": config.npus_count,
        "bandwidth": map(float, config.bandwidth),
        "latency": map(float, config.latency_ns),
    }
    return "".join(f"{key}: [ {', '.join(map(str, row))} ]\n" for key, row in rows.items())


def _system_values(config: AstraConfig) -> dict[str, object]:
    values: dict[str, object] = {
        "scheduling-policy": config.scheduling_policy,
        "endpoint-delay": config.endpoint_delay,
        "active-chunks-per-dimension": config.active_chunks,
    }
    if config.splits:
        values["preferred-dataset-splits"] = config.splits
    for name, key in _COLLECTIVES.items():
        if getattr(config, name):
            values[key] = list(getattr(config, name))
        if getattr(config, f"{name}_custom") is not None:
            values[f"{key}-custom"] = [getattr(config, f"{name}_custom")]
    if config.per_node_custom is not None:
        values["per-node-custom-implementation"] = config.per_node_custom
    values["collective-optimization"] = config.collective_optimization
    for key, number in (("local-mem-bw", config.local_mem_bw), ("peak-perf", config.peak_perf)):
        if number:
            values[key] = number
    values["roofline-enabled"] = int(config.roofline)
    for key, on in (("replay-only", config.replay_only), ("track-local-mem", config.track_local_mem)):
        if on:
            values[key] = 1
    if config.track_local_mem:
        values["local-mem-trace-filename"] = "local_mem_trace"
    return values


def _memory_values(config: AstraConfig) -> dict[str, object]:
    values: dict[str, object] = {"memory-type": config.memory_type}
    rest = {
        "remote-mem-latency": config.remote_mem_latency,
        "remote-mem-bw": config.remote_mem_bw,
        "num-nodes": config.num_nodes,
        "num-npus-per-node": config.num_npus_per_node,
    }
    return values | {key: value for key, value in rest.items() if value}


def _dump(values: object) -> str:
    return json.dumps(values, indent=1) + "\n"
