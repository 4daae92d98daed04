"""Running analyses over all ranks: traces in memory, files, several processes."""

import json
import pickle

import polars as pl
import pytest

from chakra_et.analysis import breakdown, comms, iterations, kernels, ops, overlap, skew, timeline
from chakra_et.analysis.options import Options
from chakra_et.analysis.run import make_job, measure_all, run_one
from chakra_et.errors import ChakraError, InputError, TraceError
from chakra_et.io import write
from chakra_et.ir import CommType, NodeType, ProcessGroup, TraceBuilder, TraceSet
from tests.unit.analysis.hand_made import Rank, stepped

MODULES = (breakdown, comms, iterations, kernels, ops, overlap, skew, timeline)
NAMES = [module.__name__.rpartition(".")[2] for module in MODULES]


def rank_of(rank, *, groups=True, named=True):
    made = Rank(rank if named else None, groups=(ProcessGroup("0", (0, 1), 2),) if groups else (), world_size=2)
    made.kernel("gemm", 0, 10)
    made.collective(CommType.ALL_REDUCE, 10 + rank, 20, 64)
    return made.build()


@pytest.fixture
def folder(tmp_path):
    """Two ranks, as files."""
    for rank in range(2):
        write(rank_of(rank), tmp_path / f"out.{rank}.et")
    return tmp_path


def rows(source, module=breakdown, **options):
    options = Options(**options) if options else None
    return run_one(module.measure, module.combine, source, options).table


def test_a_trace_a_set_a_file_a_folder_and_a_list(folder):
    expected = rows(TraceSet((rank_of(0), rank_of(1))))
    assert expected["rank"].to_list() == [0, 1]
    for source in (folder, str(folder), [folder / "out.0.et", folder / "out.1.et"], str(folder / "*.et")):
        assert rows(source).equals(expected)
    assert rows(rank_of(0)).equals(expected[:1])
    assert rows(folder / "out.1.et").equals(expected[1:])


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_files_say_what_traces_in_memory_say(module, folder):
    assert rows(folder, module).equals(rows(TraceSet((rank_of(0), rank_of(1))), module))


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_what_is_kept_of_a_rank_can_be_sent_to_another_process(module):
    kept = measure_all([module.measure], rank_of(0), Options())
    assert pickle.loads(pickle.dumps(kept))[0].facts == kept[0].facts


def test_several_processes_find_the_same(folder):
    one, two = (measure_all([breakdown.measure], folder, Options(), jobs=jobs) for jobs in (1, 2))
    assert list(two) == [0, 1] or set(two) == {0, 1}
    assert all(one[rank].parts[0].table.equals(two[rank].parts[0].table) for rank in one)


def test_progress(folder):
    said = []
    measure_all([breakdown.measure], folder, Options(), jobs=1, progress=lambda *words: said.append(words))
    measure_all([breakdown.measure], rank_of(0), Options(), progress=lambda *words: said.append(words))
    assert said == [("analyze", 1, 2), ("analyze", 2, 2), ("analyze", 1, 1)]


def test_a_trace_that_does_not_say_its_rank_gets_the_place_of_its_file(tmp_path):
    for name in ("a", "b"):
        write(rank_of(0, named=False), tmp_path / f"{name}.et")
    assert rows(tmp_path)["rank"].to_list() == [0, 1]
    assert rows(rank_of(0, named=False))["rank"].to_list() == [0]


def test_two_files_of_one_rank(folder):
    write(rank_of(1), folder / "copy.et")
    with pytest.raises(InputError, match=r"^rank 1: expected one file a rank, got two"):
        rows(folder)


def test_nothing_there(tmp_path):
    with pytest.raises(ChakraError):
        rows(tmp_path / "missing.et")
    with pytest.raises(ChakraError):
        rows(tmp_path)
    with pytest.raises(InputError, match="expected at least one path, got none"):
        rows([])
    with pytest.raises(TraceError, match="expected the trace of at least one rank, got none"):
        rows(TraceSet(()))


def test_a_missing_iteration_names_the_file(folder):
    with pytest.raises(InputError, match=r"out\.0\.et: rank 0: iteration: expected some of none: .*, got 5"):
        rows(folder, iteration=5)


def job_of(source):
    return make_job(measure_all([], source, Options()), Options())


def test_a_job_knows_its_ranks_and_groups():
    job = job_of(TraceSet((rank_of(0), rank_of(1))))
    assert (job.ranks, job.world_size, job.groups) == ((0, 1), 2, (ProcessGroup("0", (0, 1), 2),))
    assert job_of(Rank(7).build()).world_size == 8


def test_coverage_is_of_all_ranks():
    """10 + 10 of gemm, 10 + 9 of all-reduce; nothing is launched by anything known."""
    coverage = job_of(TraceSet((rank_of(0), rank_of(1)))).coverage
    assert coverage.as_dict() == {"classified": 1.0, "linked": 0.0, "modelled": 0.0}
    assert job_of(Rank().build()).coverage.as_dict() == {"classified": None, "linked": None, "modelled": None}


def test_notes_are_said_once():
    hosted = Rank(1)
    hosted.op("aten::mm", 0, 5)
    notes = job_of(TraceSet((rank_of(0), hosted.build()))).notes
    assert notes.count("no iterations: nothing marks them, and nothing repeats") == 1
    assert "rank 1: no device activities, so the host's operators are taken for them" in notes


def test_options_as_plain_data():
    options = Options(iteration=(1, 2), by=("rank",), ranks_per_server=4)
    assert options.as_dict() == {
        "iteration": [1, 2], "by": ["rank"], "system": None, "ranks_per_server": 4, "linked_only": False,
    }  # fmt: skip
    with pytest.raises(InputError, match=r"^ranks_per_server: expected 1 or more, got 0"):
        Options(ranks_per_server=0)


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_results_are_plain_json(module):
    sources = (TraceSet((rank_of(0), rank_of(1))), Rank().build(), stepped((0, 9), (9, 20), kernels=((1, 2, 5),)))
    for source in sources:
        result = run_one(module.measure, module.combine, source, None)
        found = json.loads(json.dumps(result.as_dict(), allow_nan=False))
        assert found["analysis"] == module.__name__.rpartition(".")[2]
        assert set(found) == {"analysis", "parameters", "rows", "coverage", "notes", "findings"}
        json.dumps(result.plot().as_dict(), allow_nan=False)


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_columns_are_the_same_whatever_is_there(module):
    """An empty table has the types of a full one."""
    full, empty = (run_one(module.measure, module.combine, source, None).table.schema
                   for source in (TraceSet((rank_of(0), rank_of(1))), Rank().build()))  # fmt: skip
    assert full == empty, pl.DataFrame({"full": list(map(str, full.items())), "empty": list(map(str, empty.items()))})


def test_what_several_ranks_have_is_told_once():
    """Activities from before the profile are counted over all ranks, in one sentence."""
    traces = []
    for number in (0, 1):
        builder = TraceBuilder(rank=number)
        for start, correlation in ((5, 1), (25, 2)):
            builder.add("gemm", NodeType.COMP_NODE, start_ns=start, duration_ns=3, is_cpu_op=False, stream=7,
                        correlation=correlation)  # fmt: skip
        builder.add("cudaLaunchKernel", NodeType.COMP_NODE, start_ns=20, duration_ns=1, is_cpu_op=True, tid=1,
                    correlation=2)  # fmt: skip
        traces.append(builder.build())
    notes = [note for note in breakdown.breakdown(TraceSet(tuple(traces))).notes if "outside the profile" in note]
    assert notes == [
        "ranks 0, 1: 2 of 4 activities were launched outside the profile; they count where they run (--linked-only "
        "leaves them out)"
    ]
