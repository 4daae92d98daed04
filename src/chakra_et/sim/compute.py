"""How long nodes that don't communicate take: as measured, by a roofline, or scaled.

Shape letters: N nodes, U distinct names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from chakra_et.errors import InputError
from chakra_et.ir import NodeType
from chakra_et.sim.resources import compute_nodes
from chakra_et.sim.workload import Workload
from chakra_et.specs.kernels import OTHER, load_kernel_classes
from chakra_et.specs.system import Device

__all__ = ["COMPUTE_BOUND", "KINDS", "Work", "classify", "device_factors", "find_work", "roofline", "scale_factors"]

Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
Float = npt.NDArray[np.float64]

_CLASSES = load_kernel_classes()
# Classes of work that a device computes or moves: communications are other nodes and scale otherwise.
KINDS: tuple[str, ...] = tuple(kind for kind in _CLASSES.kinds if kind != "communication")
COMPUTE_BOUND: tuple[str, ...] = ("gemm", "attention", "convolution")
_REST = "*"


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What nodes are, for models of compute.

    Attributes:
        kind: int8 [N]: index into `KINDS`; -1 for what is no work of the device (on a rank without one: of the host).
        host: bool [N]: work of a host thread; its gaps too, where the operating system wakes it or the thread works.
        dtype: int8 [N]: index into the known element types; -1 where the name doesn't tell.
        transfer: bool [N]: copies by the device's engines, not by kernels.
    """

    kind: npt.NDArray[np.int8]
    host: Bool
    dtype: npt.NDArray[np.int8]
    transfer: Bool


def classify(name: str) -> str:
    """Return the kind of compute that a kernel or operator does, one of `KINDS` (see `chakra_et.specs.kernels`).

    Example:
        >>> classify("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"), classify("aten::layer_norm")
        ('gemm', 'normalization')
    """
    kind = _CLASSES.classify(name)
    return kind if kind in KINDS else OTHER


def find_work(workload: Workload) -> Work:
    """Find what nodes are; each distinct name is looked at once."""
    names = workload.series("name")
    copies = workload.series("copy_kind")
    kind = _CLASSES.classify_names(names).cast(pl.String)
    kind = kind.replace_strict(KINDS, range(len(KINDS)), default=KINDS.index(OTHER), return_dtype=pl.Int8)
    kind = kind.to_numpy().copy()
    dtype = _CLASSES.dtype_names(names).to_physical().cast(pl.Int8).fill_null(-1).to_numpy()
    types = workload.integers("type")
    memory = np.isin(types, (NodeType.MEM_LOAD_NODE, NodeType.MEM_STORE_NODE)) & ~workload.flags("is_cpu_op")
    memory |= copies.is_not_null().to_numpy()
    kind[memory] = KINDS.index("copy")
    kind[(copies == "memset").fill_null(False).to_numpy()] = KINDS.index("memset")
    kind[~(compute_nodes(workload) | memory)] = -1
    return Work(kind, _host(workload, types), dtype, memory & (copies != "memset").fill_null(True).to_numpy())


def _host(workload: Workload, types: Int) -> Bool:
    gap = workload.series("gap_kind")
    communicates = types >= NodeType.COMM_SEND_NODE
    working = gap.is_null() | (gap == "host_work").fill_null(False)
    # Idle time straight after a wait is the operating system's, which wakes the thread.
    idle = (gap == "host_idle").fill_null(False) & (workload.series("sync_deps").list.len() == 0)
    host: Bool = workload.flags("is_cpu_op") & ~communicates & (working | idle).to_numpy()
    return host


def scale_factors(
    workload: Workload,
    work: Work,
    *,
    compute_scale: float | Mapping[str, float] = 1.0,
    host_scale: float | Mapping[int, float] = 1.0,
) -> Float:
    """Return what each node's duration is multiplied by, float64 [N].

    Args:
        workload: The workload.
        work: From `find_work`.
        compute_scale: A factor on all compute and copies of the device, or one by kind, with ``*`` for those that
            aren't named (1 if absent).
        host_scale: A factor on the host's work, or one by thread id.

    Raises:
        InputError: A factor is negative, or a kind unknown.
    """
    scales = dict(compute_scale) if isinstance(compute_scale, Mapping) else {_REST: compute_scale}
    strange = [kind for kind in scales if kind not in (*KINDS, _REST)]
    if strange:
        raise InputError(f"compute_scale: expected kinds of {', '.join(KINDS)} or *, got '{strange[0]}'; rename it")
    threads = host_scale if isinstance(host_scale, Mapping) else {}
    rest = 1.0 if isinstance(host_scale, Mapping) else host_scale
    for name, factor in (*scales.items(), *threads.items(), ("host", rest)):
        if not 0 <= factor < math.inf:
            raise InputError(f"scale of {name}: expected a factor of 0 or more, got {factor}; 1 changes nothing")
    table = np.array([scales.get(kind, scales.get(_REST, 1.0)) for kind in KINDS] + [1.0])
    factors = table[work.kind]
    if threads:
        thread = workload.integers("tid")
        for number, factor in threads.items():
            factors = np.where(work.host & (thread == number), factors * factor, factors)
    elif rest != 1.0:
        factors = np.where(work.host, factors * rest, factors)
    return factors


def device_factors(work: Work, before: Device, after: Device, dtype: str) -> Float:
    """Return how much longer each node takes on another device, float64 [N].

    Kinds that arithmetic bounds (`COMPUTE_BOUND`) follow the peaks of their element type, all others the bandwidths of
    the memories; copies between host and device keep their time.

    Args:
        work: From `find_work`.
        before: The device that was measured.
        after: The device to simulate.
        dtype: Element type where names don't tell it.

    Raises:
        InputError: A peak or a bandwidth is unknown.
    """
    factors = np.full(len(KINDS) + 1, _memory(before) / _memory(after))
    factors[-1] = 1.0
    result = factors[work.kind]
    result[work.transfer] = 1.0
    bound = np.isin(work.kind, [KINDS.index(kind) for kind in COMPUTE_BOUND])
    for number in np.unique(work.dtype[bound]).tolist():
        name = _CLASSES.types[number] if number >= 0 else dtype
        result[bound & (work.dtype == number)] = before.peak(name) / after.peak(name)
    return result


def _memory(device: Device) -> float:
    if device.memory_bytes_per_s is None:
        raise InputError(f"device {device.name}: expected a bandwidth of its memory, got none; add memory_bandwidth")
    return device.memory_bytes_per_s


def roofline(workload: Workload, work: Work, device: Device, dtype: str) -> tuple[Float, Bool]:
    """Return durations by the roofline, and which nodes keep theirs.

    The longer of arithmetic at the device's peak, and bytes at its memory's bandwidth (Williams, Waterman, Patterson,
    "Roofline: an insightful visual performance model for multicore architectures", 2009). A compute node with neither
    operations nor bytes keeps its duration.

    Args:
        workload: The workload, with `num_ops` and `tensor_size`.
        work: From `find_work`.
        device: The device.
        dtype: Element type of arithmetic where names don't tell it.

    Returns:
        float64 [N], ns, NaN where nothing changes; bool [N]: compute nodes that keep their duration.

    Raises:
        InputError: A peak or a bandwidth is needed and unknown.
    """
    ops = np.maximum(workload.integers("num_ops", 0), 0).astype(np.float64)
    moved = np.maximum(workload.integers("tensor_size", 0), 0).astype(np.float64)
    device_work = (work.kind >= 0) & ~(work.transfer & workload.present("copy_kind"))
    told = device_work & ((ops > 0) | (moved > 0))
    time = np.full(len(ops), np.nan)
    arithmetic = np.zeros(len(ops))
    for number in np.unique(work.dtype[told & (ops > 0)]).tolist():
        rows = told & (work.dtype == number)
        arithmetic[rows] = ops[rows] / device.peak(_CLASSES.types[number] if number >= 0 else dtype) * 1e9
    transfer = moved / _memory(device) * 1e9 if (told & (moved > 0)).any() else np.zeros(len(ops))
    time[told] = np.maximum(arithmetic, transfer)[told]
    return time, device_work & ~told
