"""Recording a window in one process: which steps, which files, and what happens when something fails."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

torch = pytest.importorskip("torch")

from chakra_et.capture import session as session_module  # noqa: E402
from chakra_et.capture.torch import record  # noqa: E402
from chakra_et.errors import InputError  # noqa: E402


def one_step():
    (torch.ones(4, 4) @ torch.ones(4, 4)).relu()


def manifest(folder, rank=0):
    return json.loads((folder / f"manifest.{rank}.json").read_text())


def host_names(folder, rank=0):
    with gzip.open(folder / f"host.{rank}.json.gz") as stream:
        return [node["name"] for node in json.load(stream)["nodes"]]


def device_names(folder, rank=0):
    with gzip.open(folder / f"device.{rank}.json.gz") as stream:
        # Some of PyTorch 2.3's names of Python functions are no text.
        events = json.loads(stream.read().decode(errors="replace"))["traceEvents"]
    return [event.get("name") for event in events]


def names_of(folder):
    return sorted(path.name for path in folder.iterdir())


ALL = ["device.0.json.gz", "host.0.json.gz", "manifest.0.json"]


def test_both_profilers_see_the_same_steps(tmp_path):
    with record(tmp_path, wait=2, warmup=1, active=2) as recorder:
        recording = []
        for _ in range(7):
            one_step()
            recording.append(recorder.is_recording)
            recorder.step()
    assert recording == [False, False, True, True, True, False, False]
    assert names_of(tmp_path) == ALL
    hosts, devices = host_names(tmp_path), device_names(tmp_path)
    steps = ["ProfilerStep#3", "ProfilerStep#4"]
    assert [name for name in hosts if name.startswith("ProfilerStep")] == steps
    assert sorted(name for name in devices if name and name.startswith("ProfilerStep")) == steps
    assert hosts.count("aten::mm") == devices.count("aten::mm") == 2
    window = manifest(tmp_path)["window"]
    assert (window["first_step"], window["steps"], window["ended_by"]) == (3, 2, "window")
    assert len(window["step_ns"]) == 2
    assert window["step_before_ns"] > 0


def test_without_steps_the_window_is_the_block(tmp_path):
    with record(tmp_path):
        one_step()
    assert host_names(tmp_path).count("aten::relu") == 1
    assert manifest(tmp_path)["window"]["ended_by"] == "stop"


def test_a_loop_that_is_too_short_says_so(tmp_path, capfd):
    with record(tmp_path / "out", wait=5) as recorder:
        recorder.step()
    assert "nothing was captured: there were 1 steps, and the window opens after 5" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_window_that_ends_in_its_warmup_says_so(tmp_path, capfd):
    with record(tmp_path, warmup=3) as recorder:
        recorder.step()
    assert "the window ended in its warm-up, after 1 step; nothing" in capfd.readouterr().err
    assert names_of(tmp_path) == []


def test_an_exception_passes_and_leaves_whole_files(tmp_path):
    def job():
        with record(tmp_path, active=3) as recorder:
            one_step()
            recorder.step()
            one_step()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        job()
    assert names_of(tmp_path) == ALL
    assert host_names(tmp_path).count("aten::relu") == 2
    assert manifest(tmp_path)["window"]["ended_by"] == "exception"


def test_other_ranks_are_left_alone(tmp_path):
    with record(tmp_path / "out", ranks=[3]) as recorder:
        assert not recorder.is_recording
        one_step()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("option", "value"), [("wait", -1), ("active", 0), ("warmup", True), ("ranks", [-1])])
def test_options_out_of_range_are_refused(tmp_path, option, value):
    with pytest.raises(InputError, match=option):
        record(tmp_path, **{option: value})


def test_a_folder_that_cannot_be_written_leaves_the_job_running(tmp_path, capfd):
    (tmp_path / "out").write_text("a file")
    with record(tmp_path / "out") as recorder:
        one_step()
        recorder.step()
    assert "could not begin" in capfd.readouterr().err


def test_a_failing_profiler_leaves_the_job_running(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", lambda self, path: 1 / 0)
    with record(tmp_path) as recorder:
        one_step()
        recorder.step()
        one_step()
    assert "the capture failed: ZeroDivisionError" in capfd.readouterr().err


def test_a_full_disk_leaves_the_job_running(tmp_path, capfd, monkeypatch):
    def full(source, target, *, anonymous):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_module, "compress", full)
    with record(tmp_path) as recorder:
        one_step()
        recorder.step()
    assert "No space left on device; the job goes on" in capfd.readouterr().err
    assert names_of(tmp_path) == ["device.0.partial.json", "host.0.partial.json"]


def test_a_cut_off_trace_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "is_complete", lambda source: False)
    with record(tmp_path):
        one_step()
    assert manifest(tmp_path)["warnings"] == ["host.0.json.gz is cut off: was the disk full?"]


def test_somebody_elses_observer_stays(tmp_path, capfd):
    other = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "other.json"))
    other.start()
    with record(tmp_path / "out"):
        one_step()
    one_step()
    other.stop()
    other.unregister_callback()
    names = [node["name"] for node in json.loads((tmp_path / "other.json").read_text())["nodes"]]
    assert names.count("aten::relu") == 2
    assert names_of(tmp_path / "out") == ["device.0.json.gz", "manifest.0.json"]
    assert "another execution trace observer is at work" in capfd.readouterr().err


def test_an_anonymous_capture_names_no_host_and_no_path(tmp_path):
    import socket

    with record(tmp_path, anonymous=True):
        one_step()
    assert socket.gethostname() not in manifest(tmp_path)["host"]
    with gzip.open(tmp_path / "device.0.json.gz") as stream:
        text = stream.read().decode()
    assert str(tmp_path) not in text
    assert json.loads(text)["traceName"] == ""


def test_memory_and_stacks_on_request(tmp_path):
    with record(tmp_path, memory=True, stacks=True):
        torch.nn.Linear(4, 4)(torch.ones(2, 4))
    devices = device_names(tmp_path)
    assert "[memory]" in devices
    assert any(name and "nn.Module: Linear" in name for name in devices)


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13), reason="older versions of torch record no ranges"
)
def test_index_ranges_on_request(tmp_path):
    with record(tmp_path, index_ranges=True):
        torch.ones(9).index_select(0, torch.tensor([2, 7]))
    with gzip.open(tmp_path / "host.0.json.gz") as stream:
        nodes = json.load(stream)["nodes"]
    attributes = next(node["attrs"] for node in nodes if node["name"] == "aten::index_select")
    ranges = next(attribute["value"] for attribute in attributes if attribute["name"] == "tensor_range")
    assert json.loads(ranges) == {"1": [2, 7]}
    assert "ENABLE_PYTORCH_EXECUTION_TRACE_SAVE_INTEGRAL_TENSOR_RANGE" not in os.environ


def run_script(tmp_path, body, code=0):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, signal, subprocess, sys, time, torch\n"
        "import chakra_et.capture.torch as cc\n"
        "def one_step():\n    (torch.ones(4, 4) @ torch.ones(4, 4)).relu()\n" + textwrap.dedent(body)
    )
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "out")], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def test_sigterm_in_the_window_leaves_whole_files(tmp_path):
    body = """
    recorder = cc.record(sys.argv[1], active=5)
    one_step()
    os.kill(os.getpid(), signal.SIGTERM)
    """
    run_script(tmp_path, body, -signal.SIGTERM)
    assert names_of(tmp_path / "out") == ALL
    assert host_names(tmp_path / "out").count("aten::relu") == 1
    assert manifest(tmp_path / "out")["window"]["ended_by"] == "signal"


def test_a_handler_of_the_job_is_called_and_put_back(tmp_path):
    body = """
    calls = []
    def mine(*args): calls.append(args[0])
    signal.signal(signal.SIGTERM, mine)
    with cc.record(sys.argv[1], active=5):
        os.kill(os.getpid(), signal.SIGTERM)
        one_step()
    assert calls == [signal.SIGTERM], calls
    assert signal.getsignal(signal.SIGTERM) is mine
    """
    run_script(tmp_path, body)
    assert names_of(tmp_path / "out") == ALL


def test_an_exit_in_the_window_leaves_whole_files(tmp_path):
    run_script(tmp_path, "recorder = cc.record(sys.argv[1], active=5)\none_step()\nsys.exit(3)\n", 3)
    assert manifest(tmp_path / "out")["window"]["ended_by"] == "exit"
    assert host_names(tmp_path / "out").count("aten::relu") == 1


def test_a_killed_job_leaves_what_was_recorded(tmp_path):
    body = """
    recorder = cc.record(sys.argv[1], active=5)
    for _ in range(2000):
        one_step()
    os.kill(os.getpid(), signal.SIGKILL)
    """
    run_script(tmp_path, body, -signal.SIGKILL)
    assert names_of(tmp_path / "out") == [".rank.0.lock", "host.0.partial.json"]
    import chakra_et as chakra

    (trace,) = chakra.convert(tmp_path / "out").traces
    assert trace.nodes["name"].to_list().count("aten::relu") > 100


def test_forked_children_leave_the_window_alone(tmp_path):
    body = """
    with cc.record(sys.argv[1], active=5):
        one_step()
        child = os.fork()
        if not child:
            for _ in range(50):
                torch.ones(3).tanh()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        one_step()
    """
    run_script(tmp_path, body)
    names = host_names(tmp_path / "out")
    assert (names.count("aten::relu"), names.count("aten::tanh")) == (2, 0)


def test_forked_children_end(tmp_path):
    body = """
    def child():
        pid = os.fork()
        if not pid:
            print("child", end="")
            sys.exit(5)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    with cc.record(sys.argv[1], active=5):
        one_step()
        child()
    child()
    """
    run_script(tmp_path, body)
    assert manifest(tmp_path / "out")["window"]["ended_by"] == "stop"


def test_two_processes_do_not_write_the_files_of_one_rank(tmp_path):
    body = """
    with cc.record(sys.argv[1]):
        other = [sys.executable, "-c", "import sys, chakra_et.capture.torch as cc; cc.record(sys.argv[1]).stop()"]
        said = subprocess.run([*other, sys.argv[1]], stderr=subprocess.PIPE, text=True, check=True).stderr
        assert "expected one process to write rank 0 into" in said and "; the job goes on" in said, said
        child = os.fork()
        if not child:
            time.sleep(60)
        one_step()
        os.kill(child, signal.SIGKILL)
    with cc.record(sys.argv[1]):
        one_step()
    """
    err = run_script(tmp_path, body)
    assert err.count("captured 1 step") == 2
    assert names_of(tmp_path / "out") == ["device.0.json.gz", "host.0.json.gz", "manifest.0.json"]
    assert host_names(tmp_path / "out").count("aten::relu") == 1


def test_data_loader_workers_started_in_the_window(tmp_path):
    body = """
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 8
        def __getitem__(self, i): return torch.full((4,), float(i))
    with cc.record(sys.argv[1], active=5) as recorder:
        for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2):
            batch.relu()
            recorder.step()
    """
    run_script(tmp_path, body)
    assert host_names(tmp_path / "out").count("aten::relu") == 2


def test_what_comes_after_the_last_step_is_none(tmp_path):
    with record(tmp_path, active=100) as recorder:
        for _ in range(3):
            one_step()
            recorder.step()
    assert manifest(tmp_path)["window"]["steps"] == 3


def test_steps_are_as_long_as_they_were_and_the_profiler_is_apart(tmp_path, monkeypatch):
    export = torch.profiler.profile.export_chrome_trace

    def slow(self, path):
        time.sleep(0.3)
        export(self, path)

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", slow)
    with record(tmp_path) as recorder:
        one_step()
        recorder.step()
    window = manifest(tmp_path)["window"]
    assert window["step_ns"][0] < 200_000_000 < window["pause_ns"]


def test_a_folder_that_is_gone_is_said(tmp_path, capfd):
    with record(tmp_path / "out") as recorder:
        one_step()
        shutil.rmtree(tmp_path / "out")
        recorder.step()
    assert "; the job goes on" in capfd.readouterr().err
    assert not (tmp_path / "out" / "manifest.0.json").exists()
