"""`chakra capture`: jobs that know nothing of it."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("torch")

import chakra_et as chakra

TRAIN = """
    import sys, torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    class Data(torch.utils.data.Dataset):
        def __len__(self): return 32
        def __getitem__(self, i): return torch.full((8,), float(i))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    main, other = (torch.optim.AdamW(model.parameters()) for _ in range(2))
    for batch in torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=1):
        model(batch).sum().backward()
        main.step()
        other.step()
        main.zero_grad()
    print("trained on", len(sys.argv) - 1, "arguments")
    dist.destroy_process_group()
"""


def run(folder, *words, code=0, variables=None):
    """Run `chakra capture WORDS` in a folder and return what it wrote to stdout and stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "chakra_et.cli", "capture", *words], cwd=folder, capture_output=True, text=True,
        timeout=120, check=False, env={**os.environ, "OMP_NUM_THREADS": "1", **(variables or {})},
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def script(folder, body, name="job.py"):
    (folder / name).write_text(textwrap.dedent(body))
    return name


def names_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_torchrun(tmp_path):
    name = script(tmp_path, TRAIN)
    job = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", name, "--an", "x"]
    out, _ = run(tmp_path, "-o", "out", "--wait", "2", "--warmup", "1", "--active", "3", "--", *job)
    assert "trained on 2 arguments" in out
    assert "Wrote out; next: chakra convert out -o traces/" in out
    kinds = ("device.{}.json.gz", "host.{}.json.gz", "manifest.{}.json")
    assert names_of(tmp_path / "out") == [kind.format(rank) for kind in kinds for rank in (0, 1)]
    result = chakra.convert(tmp_path / "out")
    assert not result.failed
    for trace in result.traces:
        names = trace.nodes["name"].to_list()
        # Steps 3 to 5: 2 before the window, 1 to warm up.
        assert [name for name in names if name.startswith("ProfilerStep")] == [f"ProfilerStep#{k}" for k in (3, 4, 5)]
        assert names.count("Optimizer.step#AdamW.step") == 2 * 3
        assert names.count("gloo:all_reduce") == 3
        assert trace.metadata.sources[-1]["versions"]["torch"]
    warnings = {warning for quality in result.quality.ranks for warning in quality.warnings}
    assert not any("rank" in warning or "overlap" in warning for warning in warnings)


def test_a_single_process_and_chosen_ranks(tmp_path):
    body = """
        import torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    """
    words = ["--wait", "1", "--warmup", "0", "--json", "--", sys.executable, script(tmp_path, body)]
    out, _ = run(tmp_path, "-o", "out", *words)
    told = json.loads(out)
    assert (told["exit_code"], [record["rank"] for record in told["ranks"]]) == (0, [0])
    _, err = run(tmp_path, "-o", "other", "--ranks", "1-3", *words, code=1)
    assert "nothing was captured" in err


def test_a_window_by_the_clock(tmp_path):
    body = """
        import sys, time
        print("started")
        import torch
        until = time.time() + 60
        while not hasattr(sys, "enough") and time.time() < until:
            torch.ones(64).tanh()
            if any(thread.name == "chakra-capture" for thread in __import__("threading").enumerate()):
                break
    """
    words = ["--seconds", "0.2", "--", sys.executable, script(tmp_path, body)]
    out, _ = run(tmp_path, "-o", "out", *words)
    assert "started" in out
    (trace,) = chakra.convert(tmp_path / "out").traces
    assert 150_000_000 < chakra.reconstruct(trace).makespan_ns < 20_000_000_000
    assert trace.nodes["name"].to_list().count("aten::tanh") > 10


def test_what_was_on_the_path_before_still_runs(tmp_path):
    (tmp_path / "theirs").mkdir()
    script(tmp_path / "theirs", "import sys; sys.theirs = True\n", "sitecustomize.py")
    body = "import sys; print(sys.theirs, 'chakra_et' in sys.modules, 'torch' in sys.modules)\n"
    words = ["-o", "out", "--", sys.executable, script(tmp_path, body)]
    out, err = run(tmp_path, *words, code=1, variables={"PYTHONPATH": str(tmp_path / "theirs")})
    assert out.splitlines() == ["True True False"]
    assert "nothing was captured: the window opens after --wait steps of an optimizer" in err


def test_the_exit_code_of_the_job_is_passed_on(tmp_path):
    _, err = run(tmp_path, "-o", "out", "--", sys.executable, "-c", "raise SystemExit(7)", code=7)
    assert "the job ended with exit code 7" in err


def test_an_earlier_capture_is_not_mixed_with(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "host.9.json.gz").write_bytes(b"")
    job = ["--", sys.executable, "-c", "print('ran')"]
    out, err = run(tmp_path, "-o", "out", *job, code=1)
    assert out == ""
    assert "host.9.json.gz: expected no earlier capture in the folder; name another, or add --force" in err
    out, _ = run(tmp_path, "-o", "out", "--force", *job, code=1)
    assert out == "ran\n"
    assert names_of(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "expected a command to capture"),
        (["--", "no-such-command"], 1, "no-such-command: expected a command to run"),
        (["--ranks", "a", "--", "true"], 2, "expected ranks such as 0,8-15"),
        (["--seconds", "-1", "--", "true"], 2, "expected seconds, 0 or more"),
    ],
)
def test_mistakes(tmp_path, words, code, said):
    _, err = run(tmp_path, *words, code=code)
    assert said in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fake", "--seconds", "2", "--stacks"), "--seconds, --stacks: expected no --fake beside it"),
        (("--world-size", "4", "--routing", "zipf"), "--world-size, --routing: expected --fake beside it"),
        (("--after", "2"), "--after: expected --seconds beside it"),
    ],
)
def test_options_that_would_change_nothing_are_refused(tmp_path, words, said):
    _, err = run(tmp_path, *words, "job.py", code=2)
    assert said in err
