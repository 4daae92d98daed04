"""Which of a trace's calls a replay makes.

The topmost operator with a schema is called; what it calls is not called again. Taken apart instead are

* what makes a communication, down to it;
* an operator that is nothing but other operators, where one of its inner tensors is used later (what autograd saved
  inside `aten::scaled_dot_product_attention`, say);
* a call on tensors of Python classes, such as DTensor's, that calls the same operator again on those with the data.

What has no schema can't be called: annotations and autograd's nodes are passed through, a kernel that nothing else
stands for is a delay.

Shape letters: N nodes, K tensor records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chakra_et._jit.json_scan import tensor_records
from chakra_et.ir import Trace
from chakra_et.ir.arrays import string_bytes
from chakra_et.replay.plan.rows import HostRows

__all__ = ["COMPOSITES", "Calls", "choose_calls"]

Int = npt.NDArray[np.int64]
_ROUNDS = 12
# How far below a call on Python tensors that on the tensors inside is looked for.
_DEPTH = 8

# Operators that only call others, of those whose inner tensors a backward pass may need (checked against torch by a
# test). Others are called as they are, since each call from Python costs more than one from C++.
COMPOSITES = frozenset(
    "aten::" + name
    for name in (
        "alpha_dropout", "batch_norm", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
        "conv_transpose2d", "conv_transpose3d", "cosine_embedding_loss", "cosine_similarity", "cross_entropy_loss",
        "ctc_loss", "dropout", "einsum", "embedding_bag", "feature_alpha_dropout", "feature_dropout", "group_norm",
        "gru", "gru_cell", "hinge_embedding_loss", "inner", "instance_norm", "kl_div", "layer_norm", "linear",
        "log_softmax", "lstm", "lstm_cell", "margin_ranking_loss", "matmul", "max_pool1d", "max_pool2d", "max_pool3d",
        "nll_loss", "nll_loss2d", "nll_loss_nd", "nuclear_norm", "outer", "pad", "pairwise_distance", "prelu", "relu6",
        "rms_norm", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell", "scaled_dot_product_attention", "selu",
        "softmax", "tensordot", "triplet_margin_loss", "_convolution_mode",
    )
)  # fmt: skip

# Of those, the ones that call something else where nothing needs a gradient: a replay needs none.
_CHOOSING = frozenset({"aten::embedding_bag", "aten::scaled_dot_product_attention"})


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of a replay, as rows of the trace in recorded order.

    Attributes:
        operators: Rows of operators that are called.
        kernels: Rows without a schema that stand for kernels: they can't be called.
        communications: Rows of calls that communicate.
    """

    operators: tuple[int, ...]
    kernels: tuple[int, ...]
    communications: tuple[int, ...]


def choose_calls(trace: Trace, rows: HostRows, inside: Iterable[int], communications: Collection[int]) -> Calls:
    """Choose the calls.

    Args:
        trace: The trace.
        rows: Its calls.
        inside: Rows of the wanted iterations, ascending.
        communications: Rows of calls that communicate.
    """
    chooser = _Chooser(trace, rows, [row for row in inside if rows.is_call[row]], frozenset(communications))
    return chooser.choose()


class _Chooser:
    def __init__(self, trace: Trace, rows: HostRows, inside: list[int], communications: frozenset[int]) -> None:
        self.inside, self.communications = inside, communications
        self.parent: list[int] = rows.parent.tolist()
        self.names: list[str] = trace.nodes["name"].fill_null("").to_list()
        self.texts: list[str | None] = trace.column("op_schema").to_list()
        self.schema = [text is not None for text in self.texts]
        self.kernels = _kernel_rows(trace, rows, self.parent, self.schema)
        self.read = _storages(trace, "inputs")
        self.wrote = _storages(trace, "outputs")

    def choose(self) -> Calls:
        opened = self._above_communications() | self._choosing() | self._dispatching()
        for _ in range(_ROUNDS):
            chosen, top = self._walk(opened)
            more = self._escaping(top)
            if not more - opened:
                break
            opened |= more
        called = [row for row in chosen if row not in self.communications]
        return Calls(
            operators=tuple(row for row in called if self.schema[row]),
            kernels=tuple(row for row in called if not self.schema[row]),
            communications=tuple(row for row in chosen if row in self.communications),
        )

    def _above_communications(self) -> set[int]:
        opened = set()
        for row in self.communications:
            above = self.parent[row]
            while above >= 0 and above not in opened:
                opened.add(above)
                above = self.parent[above]
        return opened

    def _choosing(self) -> set[int]:
        """Return the calls that are taken apart always, if what they called was recorded."""
        called = {self.parent[row] for row in self.inside if self.schema[row]}
        return {row for row in self.inside if row in called and self.names[row] in _CHOOSING}

    def _dispatching(self) -> set[int]:
        """Return the calls that call the same operator again, on other storages than their own."""
        found = set()
        for row in self.inside:
            text, storages = self.texts[row], self.read.get(row)
            above = self.parent[row] if text is not None and storages else -1
            for _ in range(_DEPTH):
                if above < 0:
                    break
                if self.texts[above] == text and not set(self.read.get(above, storages or ())) & set(storages or ()):
                    found.add(above)
                above = self.parent[above]
        return found

    def _walk(self, opened: set[int]) -> tuple[list[int], dict[int, int]]:
        """Return what is called, and for each row inside a call (itself included) that call's row."""
        top: dict[int, int] = {}
        chosen = []
        for row in self.inside:
            above = self.parent[row]
            while above >= 0 and above not in top and not self._is_call(above):
                above = self.parent[above]
            if above in top:
                top[row] = top[above]
            elif row in self.communications or (row not in opened and (self.schema[row] or row in self.kernels)):
                top[row] = row
                chosen.append(row)
        return chosen, top

    def _is_call(self, row: int) -> bool:
        return self.schema[row] or row in self.kernels or row in self.communications

    def _escaping(self, top: dict[int, int]) -> set[int]:
        """Return the composite calls one of whose inner storages a later call reads."""
        hidden: dict[int, int] = {}
        found: set[int] = set()
        for row in self.inside:
            call = top.get(row)
            if call is None:
                continue
            if call == row:
                found.update(hidden[storage] for storage in self.read.get(row, ()) if storage in hidden)
                for storage in self.wrote.get(row, ()):
                    hidden.pop(storage, None)
            elif self.names[call] in COMPOSITES:
                known = (*self.wrote.get(call, ()), *self.read.get(call, ()))
                hidden.update((storage, call) for storage in self.wrote.get(row, ()) if storage not in known)
        return found


def _storages(trace: Trace, column: str) -> dict[int, list[int]]:
    """Return the numbers of the storages in the inputs or outputs of each row."""
    if column not in trace.nodes.columns:
        return {}
    row_of, records = tensor_records(*reversed(string_bytes(trace.nodes[column].struct.field("values"))))
    found: dict[int, list[int]] = {}
    for row, storage, size in zip(row_of.tolist(), records[:, 1].tolist(), records[:, 3].tolist(), strict=True):
        # Empty tensors share one storage that holds nothing.
        if size:
            found.setdefault(row, []).append(storage)
    return found


def _kernel_rows(trace: Trace, rows: HostRows, parent: list[int], schema: list[bool]) -> frozenset[int]:
    """Return the rows without a schema that stand for work of their own: no call stands above or below them.

    These are nodes that launched kernels themselves, and those of compilers (Triton's, Inductor's C++ ones).
    """
    named = trace.nodes["name"].str.contains(r"^triton_|^graph_\d+_cpp_|_cpp_fused_|^cpp_fused_").fill_null(False)
    candidates = (rows.own_device_ns > 0) | named.to_numpy()
    candidates &= rows.is_call & ~np.array(schema, dtype=bool)
    around = set()
    for row, has_schema in enumerate(schema):
        if has_schema:
            above = row
            while above >= 0 and above not in around:
                around.add(above)
                above = parent[above]
    return frozenset(row for row in np.flatnonzero(candidates).tolist() if row not in around)
