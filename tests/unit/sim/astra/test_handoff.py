"""Hand-off to ASTRA-sim: what it is given, what is made of what it says, and what is left behind."""

import json
import os
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from chakra_et.errors import InputError, OutputError, SimulationError
from chakra_et.ir import NodeType
from chakra_et.sim.astra import AstraOptions, run_astra_sim
from tests.unit.sim.astra.jobs import collective, compute, each, machine, same, simulate, times
from tests.unit.sim.astra.measured_jobs import JOBS

LINE = "[2026-11-29 22:35:11.998] [workload] [info] "
REAL = os.environ.get("CHAKRA_ASTRA_SIM", "")
needs_real = pytest.mark.skipif(
    not REAL, reason="CHAKRA_ASTRA_SIM doesn't name a build of AstraSim_Analytical_Congestion_Unaware"
)


def program(folder, body, name="AstraSim_Analytical_Congestion_Unaware"):
    """A program that stands for ASTRA-sim: `options` holds its options."""
    path = folder / name
    head = f"""\
        #!{sys.executable}
        import json, os, sys, time
        options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
        def say(text): print({LINE!r} + text, flush=True)
    """
    path.write_text(textwrap.dedent(head) + textwrap.dedent(body))
    path.chmod(0o755)
    return path


def speaker(folder, result, *, without=(), shift=0, **changes):
    """A program that says what a simulation says, less some ranks, and with node 1 of rank 1 later by `shift`."""
    ranks = {rank.rank: (rank.finish_ns, rank.exposed_communication_ns) for rank in result.ranks}
    nodes = {rank: list(map(list, ticks)) for rank, ticks in times(result).items()}
    nodes[1][1][1] += shift
    body = f"""
        for rank, (finish, exposed) in {ranks!r}.items():
            if rank not in {tuple(without)!r}:
                say(f"sys[{{rank}}] finished, {{finish}} cycles, exposed communication {{exposed}} cycles.")
                say(f"sys[{{rank}}], Wall time: {{finish}}")
        if "logging-configuration" in options:
            text = open(options["logging-configuration"]).read()
            place = text.split('filename = "')[1].split('"')[0]
            with open(place, "w") as log:
                for rank, ticks in {nodes!r}.items():
                    for node, (start, end) in enumerate(ticks):
                        for what, tick in (("issue", start), ("callback", end)):
                            log.write(f"[D] <workload>: {{what}},sys->id={{rank}}, tick={{tick}}, node->id={{node}}, "
                                      "node->name=x, node->type=4\\n")
    """
    return program(folder, body, **changes)


@pytest.fixture
def job():
    def build(builder, rank):
        first = compute(builder, 1 + rank)
        collective(builder, "all_reduce", 1 << 20, [first])

    return each(4, build)


def test_what_is_equal(job, tmp_path):
    config = machine(4)
    own = simulate(job, config)
    seen = []
    result = run_astra_sim(
        job, config, speaker(tmp_path, own), tmp_path / "out", nodes=True, progress=lambda *done: seen.append(done)
    )
    assert result.is_equal
    assert result.finish_ns == own.finish_ns
    assert [(rank.finish_ns, rank.own_finish_ns) for rank in result.ranks] == [
        (rank.finish_ns, rank.finish_ns) for rank in own.ranks
    ]
    assert [(rank.nodes_compared, rank.nodes_different) for rank in result.ranks] == [(2, 0)] * 4
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert result.nodes is not None
    assert result.nodes.sort("rank", "node").row(0) == (0, 0, 0, 1000)
    assert result.notes == ()
    found = json.loads(json.dumps(result.as_dict()))
    assert (found["equal"], found["finish_ns"], found["own_finish_ns"]) == (True, own.finish_ns, own.finish_ns)


def test_a_node_that_differs(job, tmp_path):
    config = machine(4)
    own = simulate(job, config)
    result = run_astra_sim(job, config, speaker(tmp_path, own, shift=7), tmp_path / "out", nodes=True)
    assert not result.is_equal
    first = result.first_difference
    start, end = times(own)[1][1]
    assert first is not None
    assert (first.rank, first.node, first.name, first.start_ns, first.end_ns) == (1, 1, "all_reduce", start, end + 7)
    assert (first.own_start_ns, first.own_end_ns) == (start, end)
    assert [rank.is_equal for rank in result.ranks] == [True, False, True, True]


def test_without_nodes_only_ranks_are_compared(job, tmp_path):
    config = machine(4)
    result = run_astra_sim(job, config, speaker(tmp_path, simulate(job, config), shift=7), tmp_path / "out")
    assert result.is_equal
    assert result.nodes is None
    assert "trace-enabled" not in json.loads((tmp_path / "out" / "system.json").read_text())


def test_what_it_is_given(job, tmp_path):
    body = f"""
        with open({str(tmp_path / "seen.json")!r}, "w") as out:
            json.dump([sys.argv[1:], os.getcwd()], out)
        os.mkdir(options["logging-folder"])
        for name, tick in (("log.log", 8), ("log.2.log", 1), ("log.1.log", 4)):
            with open(options["logging-folder"] + "/" + name, "w") as log:
                log.write(f"[D] <workload>: issue,sys->id=0, tick={{tick}}, node->id=1, node->name=x\\n")
        for rank in range(4):
            say(f"sys[{{rank}}] finished, 5 cycles, exposed communication 3 cycles.")
    """
    config = machine(4, groups=((1, (0, 2)),), folder=tmp_path)
    options = AstraOptions("aware", queues_per_dim=2, injection_scale=1.5, rendezvous=True)
    binary = program(tmp_path, body, name="AstraSim_Analytical_Congestion_Aware")
    result = run_astra_sim(job, config, binary, tmp_path / "out", options=options, nodes=True)
    words, folder = json.loads((tmp_path / "seen.json").read_text())
    out = tmp_path / "out"
    assert words[:8] == [
        f"--workload-configuration={out}/trace",
        f"--comm-group-configuration={out}/comm_group.json",
        f"--system-configuration={out}/system.json",
        f"--remote-memory-configuration={out}/memory.json",
        f"--network-configuration={out}/network.yml",
        "--num-queues-per-dim=2",
        "--injection-scale=1.5",
        "--rendezvous-protocol=true",
    ]
    assert [word.split("=")[0] for word in words[8:]] == ["--logging-folder", "--logging-configuration"]
    assert folder == str(tmp_path)
    assert result.command == (str(binary), *words[:8])
    assert json.loads((out / "system.json").read_text())["trace-enabled"] == 1
    names = ["astra-sim.log", "comm_group.json", "memory.json", "network.yml", "system.json"]
    assert sorted(path.name for path in out.iterdir()) == [*names, *(f"trace.{rank}.et" for rank in range(4))]
    assert not result.is_equal
    assert result.ranks[0].finish_ns == 5
    # ASTRA-sim's own logs, from the oldest to the newest.
    assert result.nodes is not None
    assert result.nodes.rows() == [(0, 1, 8, None)]


def test_no_groups_are_called_empty(job, tmp_path):
    result = run_astra_sim(job, machine(4), speaker(tmp_path, simulate(job, machine(4))), tmp_path / "out")
    assert "--comm-group-configuration=empty" in result.command
    assert not (tmp_path / "out" / "comm_group.json").exists()


def test_a_name_on_the_path(job, tmp_path, monkeypatch):
    speaker(tmp_path, simulate(job, machine(4)), name="my_astra")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert run_astra_sim(job, machine(4), "my_astra", tmp_path / "out").is_equal


def test_ranks_that_do_not_report(job, tmp_path):
    own = simulate(job, machine(4))
    binary = speaker(tmp_path, own, without=(1, 3))
    with binary.open("a") as script:
        script.write(
            'print("[x] [HardwareResource] [critical] !!!Hardware Resource sys.id=3 has unreleased nodes!!!")\n'
        )
        script.write('print("[x] [HardwareResource] [critical] GPU comm node id: 1")\n')
    with pytest.raises(SimulationError) as caught:
        run_astra_sim(job, machine(4), binary, tmp_path / "out")
    text = str(caught.value)
    assert text.startswith("ranks 1, 3: expected ASTRA-sim to report 4 ranks, got 2 (exit code 0): ")
    assert text.endswith(f"see {tmp_path / 'out' / 'astra-sim.log'}")
    waiting = caught.value.waiting
    assert [(one.rank, one.node, one.name) for one in waiting] == [(3, 1, "all_reduce")]
    assert "unreleased" in (tmp_path / "out" / "astra-sim.log").read_text()


@pytest.mark.parametrize(
    ("said", "code", "words"),
    [
        ("  what():  Attribute num_ops not found in node 7 feeder->id=0", -6, "node 7 without num_ops"),
        ("  what():  Node 77 in data_dep graph, but not found in index, file", -6, "a dependency on node 77"),
        ("  what():  stoi", -6, "a pg_name that is no number"),
        ("x.cc:23: f(): Assertion `chunk_size > 0' failed.", -6, "a message of no bytes"),
        ("x.cpp:33: Assertion `current_event_list.get_event_time() > current_time' failed.", -6, "takes no time"),
        ("Statistics.cc:72: get_operator_type(): Assertion `false' failed.", -6, "METADATA"),
        ("free(): invalid pointer", -6, "comes and goes"),
        ("  what():  Something new", -6, "Something new"),
        ("[Error] (network/analytical/congestion_aware) only support 1-dim topology", 255, "several dimensions"),
        ("", -8, "preferred-dataset-splits is missing"),
        ("", -11, "doubleBinaryTree"),
        ("", -9, "it does not say why"),
    ],
)
def test_causes(job, tmp_path, said, code, words):
    how = f"os.kill(os.getpid(), {-code})" if code < 0 else f"sys.exit({code})"
    binary = program(tmp_path, f"\nsys.stderr.write({said!r}); sys.stderr.flush()\n{how}\n")
    with pytest.raises(SimulationError, match="expected ASTRA-sim to report 4 ranks, got 0") as caught:
        run_astra_sim(job, machine(4), binary, tmp_path / "out")
    assert words in str(caught.value)


def test_our_own_answer_is_a_cause(tmp_path):
    job = each(4, lambda builder, rank: collective(builder, "all_reduce", 4096 + (rank == 2)))
    binary = program(tmp_path, 'say("sys")')
    with pytest.raises(SimulationError, match=r"our own answer: rank 2.*in one order"):
        run_astra_sim(job, machine(4), binary, tmp_path / "out")


def test_an_answer_where_we_have_none(tmp_path):
    job = each(4, lambda builder, rank: collective(builder, "all_reduce", 4096 + (rank == 2)))
    body = 'for rank in range(4): say(f"sys[{rank}] finished, 9 cycles, exposed communication 9 cycles.")'
    result = run_astra_sim(job, machine(4), program(tmp_path, body), tmp_path / "out")
    assert not result.is_equal
    assert result.own is None
    assert "in one order" in result.refusal
    assert result.ranks[2].own_finish_ns is None
    assert result.notes[0].startswith("not compared: rank 2")


def test_a_time_limit(job, tmp_path):
    binary = program(tmp_path, 'say("begin"); time.sleep(60)')
    with pytest.raises(SimulationError, match=r"stopped after 0\.5 s"):
        run_astra_sim(job, machine(4), binary, tmp_path / "out", timeout_s=0.5)


@pytest.mark.parametrize("body", ["", 'print("hello")', 'sys.exit("usage: other [-h]")'])
def test_another_program(job, tmp_path, body):
    with pytest.raises(InputError, match="expected ASTRA-sim, got another program"):
        run_astra_sim(job, machine(4), program(tmp_path, body, name="other"), tmp_path / "out")


def test_no_program(job, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(InputError, match="got nothing of that name"):
        run_astra_sim(job, machine(4), tmp_path / "absent", out)
    with pytest.raises(InputError, match="got a folder"):
        run_astra_sim(job, machine(4), tmp_path, out)
    text = tmp_path / "text"
    text.write_text("no program")
    with pytest.raises(InputError, match="may not be run"):
        run_astra_sim(job, machine(4), text, out)
    text.chmod(0o755)
    with pytest.raises(InputError, match="expected a program that runs here"):
        run_astra_sim(job, machine(4), text, out)


def test_the_other_backend(job, tmp_path):
    binary = program(tmp_path, "", name="AstraSim_Analytical_Congestion_Aware")
    with pytest.raises(InputError, match="expected the congestion-unaware program, got the congestion-aware one"):
        run_astra_sim(job, machine(4), binary, tmp_path / "out", options=AstraOptions())
    assert not (tmp_path / "out").exists()


def test_folders(job, tmp_path):
    binary = speaker(tmp_path, simulate(job, machine(4)))
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "trace.9.et").write_text("old")
    with pytest.raises(OutputError, match="expected a new or empty folder"):
        run_astra_sim(job, machine(4), binary, out)
    with pytest.raises(OutputError, match="got a file"):
        run_astra_sim(job, machine(4), binary, out / "notes.txt")
    run_astra_sim(job, machine(4), binary, out, force=True)
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "trace.9.et").exists()
    groups = machine(4, groups=((1, (0, 2)),))
    with pytest.raises(OutputError, match="without 'empty' in it"):
        run_astra_sim(job, groups, binary, tmp_path / "empty")


def test_what_cannot_be_written_leaves_nothing(job, tmp_path):
    binary = speaker(tmp_path, simulate(job, machine(4)))
    wrong = replace(machine(4), bandwidth=(-1.0,))
    with pytest.raises(InputError, match="bandwidth"):
        run_astra_sim(job, wrong, binary, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_ranks(job, tmp_path):
    with pytest.raises(SimulationError, match="expected the traces of 8 ranks"):
        run_astra_sim(job, machine(8), program(tmp_path, ""), tmp_path / "out")


def test_the_whole_job_becomes_a_group_beside_groups(tmp_path):
    """ASTRA-sim counts collectives of groups among those of all ranks: they would never meet."""

    def build(builder, rank):
        first = collective(builder, "all_gather", 64, group="3") if rank < 2 else compute(builder, 1)
        collective(builder, "all_reduce", 4096, [first])

    job, config = each(4, build), machine(4, groups=((3, (0, 1)),))
    own = simulate(job, config)
    result = run_astra_sim(job, config, speaker(tmp_path, own), tmp_path / "out")
    assert result.is_equal
    assert result.notes[0].startswith("collectives of all ranks were written as those of group 4")
    assert json.loads((tmp_path / "out" / "comm_group.json").read_text()) == {"3": [0, 1], "4": [0, 1, 2, 3]}
    from chakra_et.io import read

    names = [read(tmp_path / "out" / f"trace.{rank}.et").column("pg_name").to_list() for rank in (0, 3)]
    assert names == [["3", "4"], [None, "4"]]


def test_messages_are_no_collectives_of_the_whole_job(tmp_path):
    def build(builder, rank):
        if rank == 0:
            builder.add("s", NodeType.COMM_SEND_NODE, comm_dst=1, comm_size=8, comm_tag=1)
        if rank == 1:
            builder.add("r", NodeType.COMM_RECV_NODE, comm_src=0, comm_size=8, comm_tag=1)
        collective(builder, "all_gather", 64, group="3")

    config = machine(2, groups=((3, (0, 1)),))
    job = each(2, build)
    assert run_astra_sim(job, config, speaker(tmp_path, simulate(job, config)), tmp_path / "out").notes == ()


def binaries():
    """The real programs: the one that the environment names, and the other backend's beside it."""
    path = Path(REAL)
    other = path.with_name(path.name.replace("Unaware", "Aware"))
    return {"unaware": path, **({"aware": other} if other != path and other.exists() else {})}


def _ring(builder):
    collective(builder, "all_reduce", 1 << 20, [compute(builder, 2)])


def _skewed(builder, rank):
    first = compute(builder, 1 + rank)
    second = collective(builder, "reduce_scatter", 1000003, [first], group="1") if rank < 3 else first
    third = compute(builder, 3, [second])
    collective(builder, "all_reduce", 70000, [third])
    if rank == 0:
        builder.add("s", NodeType.COMM_SEND_NODE, comm_dst=3, comm_size=99, comm_tag=1, data_deps=[first])
    if rank == 3:
        builder.add("r", NodeType.COMM_RECV_NODE, comm_src=0, comm_size=99, comm_tag=1)


@needs_real
@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("algorithm", ["ring", "direct", "halvingDoubling", "doubleBinaryTree"])
def test_the_real_one(tmp_path, backend, algorithm):
    found = binaries()
    if backend not in found:
        pytest.skip(f"no congestion-{backend} program beside {REAL}")
    options = AstraOptions(backend=backend)
    config = machine(4, algorithm=algorithm, splits=2)
    result = run_astra_sim(same(4, _ring), config, found[backend], tmp_path / "a", options=options, nodes=True)
    assert result.is_equal
    config = machine(4, algorithm=algorithm, splits=3, reduce_scatter=("direct",), groups=((1, (2, 0, 1)),))
    result = run_astra_sim(each(4, _skewed), config, found[backend], tmp_path / "b", options=options, nodes=True)
    assert result.is_equal, result.first_difference
    assert isinstance(result.nodes, pl.DataFrame)
    assert result.notes[0].startswith("collectives of all ranks were written as those of group 2")


@needs_real
@pytest.mark.parametrize("name", JOBS)
def test_the_real_one_on_what_was_measured(tmp_path, name):
    job, config, changes = JOBS[name]()
    options = AstraOptions(**changes)
    if options.backend not in binaries():
        pytest.skip(f"no congestion-{options.backend} program beside {REAL}")
    result = run_astra_sim(job, config, binaries()[options.backend], tmp_path / "a", options=options, nodes=True)
    assert result.is_equal, result.first_difference


@needs_real
def test_the_real_one_fails(tmp_path):
    job = each(4, lambda builder, rank: collective(builder, "all_reduce", 4096 << (rank == 2)))
    with pytest.raises(
        SimulationError, match=r"ranks 0, 1, 2, 3: .* \(exit code 0\): our own answer: rank 2"
    ) as caught:
        run_astra_sim(job, machine(4), REAL, tmp_path / "out", timeout_s=60)
    assert [one.rank for one in caught.value.waiting] == [0, 1, 2, 3]
