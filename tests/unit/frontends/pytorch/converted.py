"""Small programs of the generator, converted, and what their nodes wait for."""

import json

import polars as pl

from chakra_et.frontends.pytorch.convert import convert_rank
from chakra_et.frontends.pytorch.parse_et import parse_et
from chakra_et.frontends.pytorch.parse_kineto import parse_kineto
from chakra_et.testing import ProgramBuilder, run


def convert_program(program, *, rank=0, host=False, show=None, config=None):
    """Run a program and convert one rank's profile (and execution trace); return the trace and the facts."""
    done = run(program, show=show, config=config)
    profile = parse_kineto("p.json", json.dumps(done.profile(rank)).encode())
    trace = parse_et("h.json", json.dumps(done.host_trace(rank)).encode()) if host else None
    return convert_rank(profile, trace, sources=())


def one_thread(body, *, ranks=1, **options):
    """Convert a program in which `body(main)` is what the main thread does."""
    builder = ProgramBuilder("small", ranks=ranks)
    body(builder.rank(0).thread())
    return convert_program(builder.build(), **options)


class Causes:
    """What the nodes of a trace wait for, gap nodes looked through."""

    def __init__(self, trace):
        self._rows = {row["id"]: row for row in trace.nodes.iter_rows(named=True)}
        self._gaps = "gap_kind" in trace.nodes.columns

    def named(self, name):
        """The ids of the nodes of a name, in order; gap nodes don't count."""
        return [i for i, row in self._rows.items() if row["name"] == name and not self._is_gap(row)]

    def of(self, node, columns=("ctrl_deps", "data_deps", "sync_deps")):
        """The names of what a node waits for."""
        found = set()
        for column in columns:
            for dep in self._rows[node][column]:
                row = self._rows[dep]
                found |= self.of(dep) if self._is_gap(row) and not row["is_cpu_op"] else {row["name"]}
        return found

    def after(self, name):
        """What the first node of a name waits for."""
        return self.of(self.named(name)[0])

    def _is_gap(self, row):
        return self._gaps and row["gap_kind"] is not None


def resumed(trace, name):
    """The sync dependencies, by name, of the segments of a host call that waited."""
    names = dict(trace.nodes.select("id", "name").rows())
    later = trace.nodes.filter(pl.col("name") == name, pl.col("sync_deps").list.len() > 0)
    return [{names[dep] for dep in deps} for deps in later["sync_deps"]]
