"""`chakra capture --fake`: commands, refusals, and what a failing script leaves."""

import json

import pytest

from chakra_et.cli import main
from chakra_et.cli._capture_fake import script_of
from chakra_et.errors import InputError


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("train.py --steps 3", "train.py --steps 3"),
        ("python train.py", "train.py"),
        ("python3.12 -m my.train -x", "-m my.train -x"),
        ("torchrun --nproc-per-node 8 train.py --tp 2", "train.py --tp 2"),
        ("/usr/bin/torchrun --standalone -m my.train", "-m my.train"),
        ("python -m torch.distributed.run --nnodes=2 train.py", "train.py"),
        ("run_it --fast", "run_it --fast"),
    ],
)
def test_launchers_are_left_out(command, script):
    assert script_of(command.split()) == script.split()


@pytest.mark.parametrize("command", ["", "python", "torchrun --nproc-per-node 8", "-m"])
def test_commands_without_a_script_are_refused(command):
    with pytest.raises(InputError, match="expected a Python script or -m MODULE"):
        script_of(command.split())


def run(tmp_path, capfd, text, *words):
    script = tmp_path / "train.py"
    script.write_text(text)
    code = main(["capture", "--fake", "-o", str(tmp_path / "out"), *words, str(script)])
    return code, *capfd.readouterr()


class TestWithTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    def test_a_script_that_isnt_there(self, tmp_path, capsys):
        assert main(["capture", "--fake", "-o", str(tmp_path / "out"), "nothing.py"]) == 1
        assert "nothing.py: expected a Python script, found none of that name" in capsys.readouterr().err

    def test_a_script_that_fails(self, tmp_path, capfd):
        code, _, errors = run(tmp_path, capfd, "raise KeyError('of the user')")
        assert code == 1
        assert "KeyError: 'of the user'" in errors
        assert "rank 0: expected the script to run, it ended with exit code 1" in errors
        assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())

    def test_a_program_that_cant_be_captured(self, tmp_path, capfd):
        code, _, errors = run(tmp_path, capfd, "import torch; torch.arange(3).unique()")
        assert code == 1
        assert "chakra: error: rank 0: expected a program whose shapes don't depend on values, got aten._uniq" in errors
        assert "Traceback" not in errors

    def test_a_script_with_arguments_and_an_exit(self, tmp_path, capfd):
        text = "import sys, torch; print(sys.argv[1:], __name__); torch.ones(3) + 1; sys.exit(0)"
        script = tmp_path / "train.py"
        script.write_text(text)
        command = ["capture", "--fake", "-o", str(tmp_path / "out"), "--json", "--", str(script), "--a", "1"]
        assert main(command) == 0
        out, errors = capfd.readouterr()
        [rank] = json.loads(out)
        assert (rank["rank"], rank["operators"], rank["communications"]) == (0, 2, 0)
        assert any("after 0 of 2 optimizer steps" in note for note in rank["warnings"])
        assert "['--a', '1'] __main__" in errors
        # Nothing is overwritten without being asked.
        assert main(command) == 1
        assert "--force" in capfd.readouterr().err
        assert main([*command[:4], "--force", *command[4:]]) == 0

    def test_a_script_that_takes_too_long(self, tmp_path, capfd):
        code, _, errors = run(tmp_path, capfd, "import time; time.sleep(60)", "--fake-timeout", "4")
        assert code == 1
        assert "rank 0: expected the capture to end within 4 s, it did not" in errors
