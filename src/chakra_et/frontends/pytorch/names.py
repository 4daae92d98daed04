"""Names: which operators, annotations and kernels communicate, element types, copy kinds."""

from __future__ import annotations

import re

import polars as pl

from chakra_et.ir.enums import CommType, NodeType
from chakra_et.specs.kernels import load_kernel_classes

__all__ = ["HOST_COMM", "collective_of", "communicates", "copy_kind", "dtype_bytes", "is_point_to_point"]

# Ranges of CPU backends on their worker threads.
HOST_COMM = re.compile(r"^(?:gloo|mpi|ucc):")

_COLLECTIVES: tuple[tuple[str, CommType], ...] = (
    ("reducescatter", CommType.REDUCE_SCATTER),
    ("allreduce", CommType.ALL_REDUCE),
    ("crossdevicereduce", CommType.ALL_REDUCE),
    ("shotallreduce", CommType.ALL_REDUCE),
    ("allgather", CommType.ALL_GATHER),
    ("alltoall", CommType.ALL_TO_ALL),
    ("broadcast", CommType.BROADCAST),
    ("barrier", CommType.BARRIER),
    ("scatter", CommType.SCATTER),
    ("gather", CommType.GATHER),
    ("reduce", CommType.REDUCE),
)

_DTYPES = {
    "float": 4, "float32": 4, "int": 4, "int32": 4, "uint32": 4, "f32": 4, "i32": 4, "u32": 4,
    "double": 8, "float64": 8, "long": 8, "longint": 8, "int64": 8, "uint64": 8, "f64": 8, "i64": 8, "u64": 8,
    "half": 2, "float16": 2, "bfloat16": 2, "f16": 2, "bf16": 2, "short": 2, "shortint": 2, "int16": 2, "uint16": 2,
    "char": 1, "byte": 1, "int8": 1, "uint8": 1, "bool": 1, "unsignedchar": 1, "signedchar": 1, "i8": 1, "u8": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
    "float8e4m3fn": 1, "float8e5m2": 1,
    "complexfloat": 8, "complex64": 8, "complexdouble": 16, "complex128": 16, "complexhalf": 4,
}  # fmt: skip


def dtype_bytes(name: str) -> int:
    """Return the bytes of one element, 0 if the type is unknown.

    Example:
        >>> dtype_bytes("c10::BFloat16"), dtype_bytes("long int"), dtype_bytes("Float")
        (2, 8, 4)
    """
    key = name.strip().removeprefix("c10::").removeprefix("torch.").replace(" ", "").removesuffix("[]").lower()
    key = re.sub(r"^complex<(?:c10::)?(\w+)>$", r"complex\1", key)
    return _DTYPES.get(key, 0)


def communicates(names: pl.Series) -> pl.Series:
    """Return which kernels communicate, as the built-in kernel classes tell.

    Example:
        >>> communicates(pl.Series(["ncclDevKernel_Generic", "deep_ep::intranode::dispatch", "ampere_sgemm"])).to_list()
        [True, True, False]
    """
    return load_kernel_classes().classify_names(names) == "communication"


def collective_of(name: str) -> CommType | None:
    """Return the collective that an operator, annotation or kernel name tells, or None.

    Example:
        >>> collective_of("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL").name
        'REDUCE_SCATTER'
        >>> collective_of("c10d::_allgather_base_").name
        'ALL_GATHER'
    """
    text = re.sub(r"[^a-z]", "", re.split(r"[(<]", name.replace("(anonymous namespace)", ""), maxsplit=1)[0].lower())
    for word, kind in _COLLECTIVES:
        if word in text:
            return kind
    return None


def is_point_to_point(name: str) -> NodeType | None:
    """Return COMM_SEND_NODE or COMM_RECV_NODE if the name is a send or a receive, else None."""
    text = re.sub(r"[^a-z]", "", name.lower().split(":")[-1])
    if text.startswith("send") and "recv" not in text:
        return NodeType.COMM_SEND_NODE
    if text.startswith("recv") or text.startswith("receive"):
        return NodeType.COMM_RECV_NODE
    return None


def copy_kind(name: str, kind: str) -> str:
    """Return HtoD, DtoH, DtoD, PtoP or HtoH from a copy's name or the profiler's kind field, else nothing."""
    match = re.search(r"\b(HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH|AtoD|DtoA)\b", name) or re.search(
        r"(HtoD|DtoH|DtoD|PtoP|HtoH)", kind
    )
    if match:
        return match.group(1)
    words = {"HOST_TO_DEVICE": "HtoD", "DEVICE_TO_HOST": "DtoH", "DEVICE_TO_DEVICE": "DtoD", "PEER_TO_PEER": "PtoP"}
    upper = f"{name} {kind}".upper().replace("COPY", "")
    return next((short for word, short in words.items() if word in upper.replace(" ", "_").replace("__", "_")), "")
