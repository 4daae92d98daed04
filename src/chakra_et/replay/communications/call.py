"""`CommCall`: one communication that a rank made, with all that it takes to make it again."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

__all__ = ["COALESCED", "KINDS", "REDUCING", "ROOTED", "CommCall", "item_bytes"]

# Kinds: the short names of c10d's operators.
KINDS = (
    "allreduce_", "allreduce_coalesced_", "broadcast_", "reduce_", "allgather_", "_allgather_base_",
    "allgather_coalesced_", "allgather_into_tensor_coalesced_", "reduce_scatter_", "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_", "gather_", "scatter_", "alltoall_", "alltoall_base_", "barrier", "send",
    "recv_", "recv_any_source_",
)  # fmt: skip
REDUCING = frozenset(kind for kind in KINDS if "reduce" in kind)
ROOTED = frozenset(("broadcast_", "reduce_", "gather_", "scatter_"))
COALESCED = frozenset(kind for kind in KINDS if "coalesced" in kind)

_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1, "complex32": 4, "complex64": 8, "complex128": 16,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element of a torch dtype, by its name; 1 for one that isn't known.

    Example:
        >>> item_bytes("bfloat16")
        2
    """
    return _BYTES.get(dtype, 1)


@dataclass(frozen=True, slots=True)
class CommCall:
    """One communication of one rank.

    Shapes are those of the tensors of the recorded call, in its order; where only a profile is known, tensors are flat.

    Attributes:
        number: Place among the communications of the rank's trace, from 0.
        kind: Short name of c10d's operator, one of `KINDS`.
        group: Name of the process group.
        ranks: Its global ranks, in group order.
        node: Id of the call's node, else of the communication's.
        row: Position in the trace of the call's node (`c10d::*`), else of the communication's.
        comm_row: Position of the communication's node; the same as `row` where the call itself is all there is.
        comm_id: Number of the call in its rank's capture, or None.
        inputs: Shapes of the tensors that the rank gives.
        outputs: Shapes of the tensors that the rank gets (the same ones for operations in place).
        dtype: Torch's name of the element type, such as ``float32``.
        in_splits: Rows sent to each rank of the group, empty if even.
        out_splits: Rows received from each rank of the group, empty if even.
        reduce_op: ``sum``, ``avg``, ``product``, ``min``, ``max``, ``band``, ``bor``, ``bxor``; empty where nothing is
            reduced.
        reduce_op_assumed: True if the trace doesn't tell the reduce operation.
        root: Global rank of the root, or None.
        peer: Global rank that is sent to or received from; None for collectives, and where anybody may have sent.
        tag: Tag of a send or receive.
        asynchronous: False if the call itself waits.
        wait_row: Position in the trace of the first node after the wait (or of the wait itself); None: the end of the
            iteration.
        wait_assumed: True if the trace doesn't tell where the wait is.
        is_unordered: True for a send or receive of which it isn't told what it meets: its receiver takes from anybody.
        batch: Number of the first call of a batch of sends and receives made as one, or None.
        start_ns: Recorded start of the call.
        end_ns: Recorded end of the call: its return.
        comm_start_ns: Recorded start of the communication.
        duration_ns: Recorded duration of the communication.
    """

    number: int
    kind: str
    group: str
    ranks: tuple[int, ...]
    node: int
    row: int
    comm_row: int
    comm_id: int | None
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    dtype: str
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    reduce_op: str = ""
    reduce_op_assumed: bool = False
    root: int | None = None
    peer: int | None = None
    tag: int = 0
    asynchronous: bool = False
    wait_row: int | None = None
    wait_assumed: bool = False
    is_unordered: bool = False
    batch: int | None = None
    start_ns: int = 0
    end_ns: int = 0
    comm_start_ns: int = 0
    duration_ns: int = 0

    @property
    def in_elements(self) -> int:
        """Elements that the rank gives."""
        return sum(map(prod, self.inputs))

    @property
    def out_elements(self) -> int:
        """Elements that the rank gets."""
        return sum(map(prod, self.outputs))

    @property
    def item_bytes(self) -> int:
        """Bytes of an element."""
        return item_bytes(self.dtype)

    @property
    def in_split_elements(self) -> tuple[int, ...]:
        """Elements sent to each rank of the group by an uneven all-to-all, empty if even."""
        return _elements(self.in_splits, self.inputs)

    @property
    def out_split_elements(self) -> tuple[int, ...]:
        """Elements received from each rank of the group by an uneven all-to-all, empty if even."""
        return _elements(self.out_splits, self.outputs)

    @property
    def is_collective(self) -> bool:
        """True if all ranks of the group take part."""
        return self.kind not in ("send", "recv_", "recv_any_source_")


def _elements(rows: tuple[int, ...], shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    each = prod(shapes[0][1:]) if shapes else 1
    return tuple(count * each for count in rows)
