"""Small traces of operator calls, written by hand."""

import json

from chakra_et.ir import NodeType, TraceBuilder
from chakra_et.replay.communications.call import CommCall

KINDS = {"float32": "Tensor(float)", "int64": "Tensor(long int)", "bool": "Tensor(bool)"}
SCHEMAS = {
    "aten::add": "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "aten::mul_": "aten::mul_.Tensor(Tensor(a!) self, Tensor other) -> Tensor(a!)",
    "aten::relu": "aten::relu(Tensor self) -> Tensor",
    "aten::nonzero": "aten::nonzero(Tensor self) -> Tensor",
    "aten::view": "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)",
    "aten::mm": "aten::mm(Tensor self, Tensor mat2) -> Tensor",
    "aten::dropout": "aten::dropout(Tensor input, float p, bool train) -> Tensor",
    "mylib::secret": "mylib::secret(Tensor self) -> Tensor",
    "c10d::allreduce_": (
        "c10d::allreduce_(Tensor[] tensors, __torch__.torch.classes.c10d.ProcessGroup process_group, "
        "__torch__.torch.classes.c10d.ReduceOp reduce_op, Tensor? sparse_indices, bool async_op=True, int timeout=-1) "
        "-> (Tensor[], __torch__.torch.classes.c10d.Work)"
    ),
}


def tensor(number, storage, shape, dtype="float32", offset=0, device="cpu"):
    """A recorded tensor: (value, shape, type)."""
    return [number, storage, offset, 1, 8 if dtype == "int64" else 4, device], list(shape), KINDS[dtype]


def io(values):
    """Inputs or outputs of a node; plain values are numbers, flags, or None."""
    plain = {bool: "Bool", int: "Int", float: "Double", type(None): "None"}
    parts = [one if isinstance(one, tuple) else (one, [], plain[type(one)]) for one in values]
    parts = [("<None>", shape, kind) if value is None else (value, shape, kind) for value, shape, kind in parts]
    return {name: json.dumps([part[at] for part in parts]) for at, name in enumerate(("values", "shapes", "types"))}


class Calls:
    """Builds a trace of host calls, one after the other."""

    def __init__(self, **metadata):
        self.builder = TraceBuilder(rank=0, **metadata)
        self.clock = 1000

    def add(self, name, inputs=(), outputs=(), *, gap=0, duration=100, parent=None, **columns):
        """Add a call that starts `gap` ns behind the one before; one inside another begins with it."""
        start = self.clock + gap
        if parent is None:
            self.clock = start + duration
        known = {"op_schema": SCHEMAS[name]} if name in SCHEMAS else {}
        given = {"inputs": io(inputs)} if inputs else {}
        taken = {"outputs": io(outputs)} if outputs else {}
        return self.builder.add(
            name, NodeType.COMP_NODE, is_cpu_op=True, start_ns=start, duration_ns=duration, parent=parent,
            **{"tid": 1, **known, **given, **taken, **columns},
        )  # fmt: skip

    def marker(self, number, span):
        """Add an iteration's marker at the clock."""
        return self.builder.add(
            f"ProfilerStep#{number}", NodeType.METADATA_NODE, is_cpu_op=True, start_ns=self.clock, span_ns=span, tid=1
        )

    def build(self):
        """Return the trace."""
        return self.builder.build()


def allreduce(**changes):
    """An all-reduce of 4 numbers among 2 ranks."""
    known = {"number": 0, "kind": "allreduce_", "group": "0", "ranks": (0, 1), "node": 7, "row": 7, "comm_row": 7,
             "comm_id": None, "inputs": ((4,),), "outputs": ((4,),), "dtype": "float32"}  # fmt: skip
    return CommCall(**{**known, **changes})
