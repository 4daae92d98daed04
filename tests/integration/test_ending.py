"""The command as a process of its own: it ends when it is done, whatever it started."""

import json
import subprocess
import sys

from chakra_et.io import write_set
from chakra_et.ir import NodeType, TraceBuilder, TraceSet


def traces():
    made = []
    for rank in (0, 1):
        builder = TraceBuilder(rank=rank, world_size=2)
        builder.add("gemm", NodeType.COMP_NODE, start_ns=0, duration_ns=5, is_cpu_op=False, stream=7)
        made.append(builder.build())
    return TraceSet(tuple(made))


def test_processes_end_with_the_command(tmp_path):
    """Ranks that are measured in processes of their own don't keep the command waiting for their idle time-out."""
    write_set(traces(), tmp_path)
    words = [sys.executable, "-m", "chakra_et.cli", "analyze", str(tmp_path), "breakdown", "--json", "--jobs", "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert [row["compute_ns"] for row in json.loads(done.stdout)["rows"]] == [5, 5]


def test_all_of_the_output_is_there(tmp_path):
    """The process ends at once, but not before its output is written, to a pipe too."""
    write_set(traces(), tmp_path)
    words = [sys.executable, "-m", "chakra_et.cli", "analyze", str(tmp_path), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0
    assert set(json.loads(done.stdout)) == {"analyses", "coverage", "findings"}
