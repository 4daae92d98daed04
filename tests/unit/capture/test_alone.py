"""One profiler in a process: whoever comes second finds the other's records whole."""

import gzip
import json
import threading

import pytest

torch = pytest.importorskip("torch")

from torch.profiler import ExecutionTraceObserver, profile, schedule  # noqa: E402

from chakra_et.capture.torch import record  # noqa: E402


def one_step():
    (torch.ones(4, 4) @ torch.ones(4, 4)).relu()


def count(profiler, name="aten::relu"):
    return [event.name for event in profiler.events()].count(name)


def captured(folder, name="aten::relu"):
    with gzip.open(folder / "host.0.json.gz") as stream:
        return [node["name"] for node in json.load(stream)["nodes"]].count(name)


def ended_by(folder):
    return json.loads((folder / "manifest.0.json").read_text())["window"]["ended_by"]


def test_the_jobs_profiler_stays(tmp_path, capfd):
    with profile() as own:
        with record(tmp_path / "out") as recorder:
            one_step()
            recorder.step()
        one_step()
    assert count(own) == 2
    assert not (tmp_path / "out").exists()
    assert "could not begin: RuntimeError: expected no other profiler at work" in capfd.readouterr().err


def test_the_jobs_profiler_stays_in_its_warmup(tmp_path):
    with profile(schedule=schedule(wait=0, warmup=1, active=1, repeat=1)) as own:
        with record(tmp_path / "out"):
            one_step()
        own.step()
        one_step()
        own.step()
    assert count(own) == 1


def test_a_profiler_that_was_stopped_in_its_warmup_is_none(tmp_path):
    with profile(schedule=schedule(wait=0, warmup=9, active=1)) as own:
        one_step()
    with record(tmp_path):
        one_step()
    assert captured(tmp_path) == 1
    del own


def test_the_jobs_profiler_ends_the_window(tmp_path, capfd):
    before = torch.autograd.profiler.profile._prepare_trace
    with record(tmp_path, active=2) as recorder:
        one_step()
        with profile() as own:
            assert not recorder.is_recording
            one_step()
        one_step()
        recorder.step()
    assert (captured(tmp_path), count(own), ended_by(tmp_path)) == (1, 1, "profiler")
    assert "another profiler begins: the window ends" in capfd.readouterr().err
    assert torch.autograd.profiler.profile._prepare_trace is before


def test_the_jobs_observer_ends_the_window(tmp_path):
    with record(tmp_path / "out") as recorder:
        one_step()
        own = ExecutionTraceObserver().register_callback(str(tmp_path / "own.json"))
        own.start()
        one_step()
        own.stop()
        own.unregister_callback()
        recorder.step()
    names = [node["name"] for node in json.loads((tmp_path / "own.json").read_text())["nodes"]]
    assert (captured(tmp_path / "out"), names.count("aten::relu"), ended_by(tmp_path / "out")) == (1, 1, "profiler")


@pytest.mark.parametrize("warmup", [0, 1])
def test_of_two_captures_the_first_stays(tmp_path, warmup):
    with record(tmp_path / "first", warmup=warmup) as first, record(tmp_path / "second", warmup=warmup) as second:
        assert not second.is_recording
        for recorder in (first, second) * (warmup + 1):
            one_step()
            recorder.step()
    assert captured(tmp_path / "first") == 1 + warmup
    assert not (tmp_path / "second").exists()
    with record(tmp_path / "second"):
        one_step()
    assert captured(tmp_path / "second") == 1


def test_captures_of_two_threads(tmp_path):
    both = threading.Barrier(2)

    def capture(name):
        both.wait()
        with record(tmp_path / name) as recorder:
            both.wait()
            one_step()
            recorder.step()

    threads = [threading.Thread(target=capture, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (folder,) = tmp_path.iterdir()
    assert captured(folder) >= 1
