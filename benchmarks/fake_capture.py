"""Time and memory of captures before execution, and their collectives against the formula of FSDP2 and TP.

    python benchmarks/fake_capture.py            # the two models of the targets
    python benchmarks/fake_capture.py --small    # seconds

The process is a fresh one: its time includes the import of PyTorch and the writing of the files. The formula
(`expected_collectives`) is worked out from the model's sizes alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from chakra_et.capture.fake.options import FakeOptions
from chakra_et.conversion import convert
from chakra_et.ir import CommType, NodeType, Trace

SCRIPT = Path(__file__).resolve().parents[1] / "examples" / "fake_llama.py"
Collective = tuple[tuple[int, ...], str, int]


@dataclass(frozen=True, slots=True)
class Model:
    """Sizes of the Llama-like model of ``examples/fake_llama.py``, and of its job.

    Attributes:
        layers: Layers.
        hidden: Width.
        heads: Heads of queries.
        groups: Heads of keys and values.
        inner: Width inside the feed-forward part.
        vocabulary: Tokens.
        length: Positions of a sequence.
        batch: Sequences of a rank.
        tp: Tensor parallel ranks.
        world_size: Ranks of the job.
    """

    layers: int
    hidden: int
    heads: int
    groups: int
    inner: int
    vocabulary: int
    length: int
    batch: int
    tp: int
    world_size: int

    def arguments(self) -> list[str]:
        """Return the script's arguments."""
        names = ("layers", "hidden", "heads", "groups", "inner", "vocabulary", "length", "batch", "tp")
        return [word for name in names for word in (f"--{name}", str(getattr(self, name)))]


SMALL = Model(2, 512, 8, 8, 1024, 4096, 128, 1, 2, 8)
LARGE = {
    "64 ranks, 32 layers x 4096": Model(32, 4096, 32, 8, 14336, 128256, 4096, 1, 8, 64),
    "4,096 ranks, 80 layers x 8192": Model(80, 8192, 64, 8, 28672, 128256, 8192, 1, 8, 4096),
}


def expected_collectives(model: Model) -> Counter[Collective]:
    """Return the collectives of one step of rank 0: how many of which ranks, type and bytes (of our `comm_size`).

    Tensor parallel, with the sequence split between products: each half of a layer gathers its input and scatters its
    output, and the backward pass does the opposite; so do the embedding (which scatters only) and the output (which
    gathers its input, and the logits). Norms' weights, which all ranks hold, have their gradients summed. FSDP gathers
    every layer twice and what is outside of layers once, and scatters the gradients of each once.
    """
    dp = model.world_size // model.tp
    tp_ranks, dp_ranks = tuple(range(model.tp)), tuple(range(0, model.world_size, model.tp))
    whole = model.batch * model.length * model.hidden * 2  # bf16
    found: Counter[Collective] = Counter()
    if model.tp > 1:
        found[tp_ranks, "ALL_GATHER", whole // model.tp] += 4 * model.layers + 2
        found[tp_ranks, "ALL_GATHER", model.batch * model.length * model.vocabulary // model.tp * 2] += 1
        found[tp_ranks, "REDUCE_SCATTER", whole] += 4 * model.layers + 2
        found[tp_ranks, "ALL_REDUCE", model.hidden * 2] += 2 * model.layers + 1
    for gathers, scatters, shapes in (
        (2 * model.layers, model.layers, _layer_shapes(model)),
        (1, 1, _other_shapes(model)),
    ):
        shard = sum(-(-rows // dp) * columns for rows, columns in shapes)
        found[dp_ranks, "ALL_GATHER", shard * 2] += gathers  # bf16
        found[dp_ranks, "REDUCE_SCATTER", shard * dp * 4] += scatters  # fp32
    return found


def _layer_shapes(model: Model) -> list[tuple[int, int]]:
    """Return rows and columns of one layer's parameters on one tensor parallel rank."""
    hidden, inner, tp = model.hidden, model.inner, model.tp
    values = hidden // model.heads * model.groups
    attention = [(hidden // tp, hidden), (values // tp, hidden), (values // tp, hidden), (hidden, hidden // tp)]
    feed_forward = [(inner // tp, hidden), (inner // tp, hidden), (hidden, inner // tp)]
    return [*attention, *feed_forward, (hidden, 1), (hidden, 1)]


def _other_shapes(model: Model) -> list[tuple[int, int]]:
    table = (model.vocabulary // model.tp, model.hidden)
    return [table, (model.hidden, 1), table]


def found_collectives(trace: Trace) -> Counter[Collective]:
    """Return the collectives of a trace."""
    ranks = {group.name: group.ranks for group in trace.process_groups}
    collectives = trace.nodes.filter(trace.nodes["type"] == int(NodeType.COMM_COLL_NODE))
    rows = collectives.select("pg_name", "comm_type", "comm_size").iter_rows()
    return Counter((ranks[name], CommType(kind).name, size) for name, kind, size in rows)


def capture(model: Model, folder: Path) -> tuple[float, float, float]:
    """Capture rank 0 in a process of its own; return seconds, those of the CPU, and MB."""
    options = FakeOptions(str(folder), world_size=model.world_size).to_text()
    command = [sys.executable, "-W", "ignore", "-m", "chakra_et.capture.fake", options, "0", str(folder)]
    begin = time.perf_counter()
    child = subprocess.Popen([*command, str(SCRIPT), *model.arguments()], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"expected the capture to end well, it ended with status {status}")
    return time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Capture, convert, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a model that takes seconds")
    models = {"8 ranks, 2 layers x 512": SMALL} if parser.parse_args().small else LARGE
    print(
        "model                            capture       CPU   memory      nodes  convert  collectives  as the formula"
    )
    for name, model in models.items():
        with tempfile.TemporaryDirectory() as folder:
            seconds, cpu, megabytes = capture(model, Path(folder))
            begin = time.perf_counter()
            trace = convert([Path(folder) / "host.0.json.gz"]).traces.trace(0)
            converted = time.perf_counter() - begin
        found = found_collectives(trace)
        print(
            f"{name:<31} {seconds:6.1f} s {cpu:7.1f} s {megabytes:5.0f} MB {len(trace):10,} {converted:6.1f} s "
            f"{found.total():12,}  {'yes' if found == expected_collectives(model) else 'NO'}"
        )


if __name__ == "__main__":
    main()
