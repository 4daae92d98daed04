import argparse
import os
import signal
import subprocess
import sys

import pytest

import chakra_et
from chakra_et import cli
from chakra_et.errors import FormatError

VERBS = [name for name, _ in cli.COMMANDS]


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_an_example(verb, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([verb, "--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    assert f"chakra {verb}" in out.partition("Example:")[2]


@pytest.mark.parametrize("verb", VERBS)
def test_modules_look_alike(verb):
    module = dict(cli.COMMANDS)[verb]
    assert module.__name__ == f"chakra_et.cli.{verb}"
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"chakra {chakra_et.__version__}\n"


@pytest.mark.parametrize(
    "argv",
    [
        ["nothing"],
        ["convert"],
        ["export", "x", "--to", "pdf"],
        ["export", "x"],
        ["slice", "x"],
        ["slice", "x", "--time", "5:1"],
        ["slice", "x", "--time", "soon"],
        ["slice", "x", "--ids", "1,b"],
        ["slice", "x", "--ids", "1", "--iteration", "2"],
        ["info", "x", "--type", "COMM"],
        ["convert", "x", "--detail", "all"],
        ["convert", "x", "--jobs", "-1"],
        ["convert", ""],
        ["convert", "--device", ""],
        ["convert", "x", "-o", ""],
        ["info", ""],
        ["info", "x", "--nodes", "0"],
        ["slice", "x", "--time", ":"],
        ["slice", "x", "--time", "5ms"],
        ["slice", "x", "--ids", "1,,2"],
        ["slice", "x", "--ids", "9" * 5000],
        ["slice", "x", "--ids", "\u00b2"],
        ["slice", "x", "--iteration", "1", "--rank", "-1"],
    ],
)
def test_wrong_usage_is_exit_code_2(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "error: " in captured.err


def test_without_a_verb_the_verbs_are_listed(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert all(f"  {verb} " in captured.err for verb in VERBS)
    assert captured.err.endswith("Start with: chakra demo\n")


def run_raising(error, monkeypatch):
    def run(args):
        raise error

    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.set_defaults(run=run)
    monkeypatch.setattr(cli, "build_parser", lambda: parser)
    return cli.main(["x"])


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FormatError("a.et: expected a trace,\n got nothing"), "chakra: error: a.et: expected a trace, got nothing\n"),
        (PermissionError(13, "Permission denied", "out"), "chakra: error: out: Permission denied\n"),
        (OSError("disk on fire"), "chakra: error: disk on fire\n"),
        (
            MemoryError(),
            "chakra: error: expected more memory than there is; give it fewer ranks at once, or --jobs 1\n",
        ),
    ],
)
def test_a_user_error_is_one_line(error, text, monkeypatch, capsys):
    assert run_raising(error, monkeypatch) == 1
    captured = capsys.readouterr()
    assert captured.err == text
    assert captured.out == ""


def test_ctrl_c_is_quiet(monkeypatch, capsys):
    assert run_raising(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr().err == "\n"


def raised(error, cause=None, context=None):
    error.__cause__, error.__context__ = cause, context
    return error


@pytest.mark.parametrize(
    "error",
    [
        raised(SystemError("initialization failed"), cause=KeyboardInterrupt()),
        raised(ImportError("numba"), context=raised(SystemError("x"), cause=KeyboardInterrupt())),
    ],
)
def test_ctrl_c_is_quiet_where_a_library_makes_another_error_of_it(error, monkeypatch, capsys):
    assert run_raising(error, monkeypatch) == 130
    assert capsys.readouterr().err == "\n"


def test_errors_in_a_circle_are_a_bug_like_others(monkeypatch):
    error = ZeroDivisionError()
    other = raised(ValueError(), context=error)
    with pytest.raises(ZeroDivisionError):
        run_raising(raised(error, cause=other), monkeypatch)


WRITER = """
import sys, time
from chakra_et import cli
from chakra_et.cli import info
from chakra_et.io import write_atomic
def run(args):
    def chunks():
        yield b"x"
        print("begun", flush=True)
        time.sleep(60)
    write_atomic(args.input, chunks())
info.run = run
sys.exit(cli.main(["info", sys.argv[1]]))
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_is_half_written_goes_when_the_process_is_stopped(number, code, tmp_path):
    command = [sys.executable, "-c", WRITER, str(tmp_path / "x")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n"
        assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == code
    assert errors.strip() == b""
    assert list(tmp_path.iterdir()) == []


def test_handlers_are_as_before(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    run_raising(KeyboardInterrupt(), monkeypatch)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize(("streams", "code"), [(">&-", 0), (">&- 2>&- <&-", 0), (">/dev/full", 1)])
def test_streams_that_are_closed_or_full(streams, code, tmp_path):
    from chakra_et.io import write
    from chakra_et.ir import TraceBuilder

    if "full" in streams and not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    path = write(TraceBuilder(rank=0).build(), tmp_path / "trace.0.et")
    command = f"'{sys.executable}' -W error -m chakra_et.cli info '{path}' {streams}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stderr == ("chakra: error: No space left on device\n" if code else "")


def test_a_bug_is_no_user_error(monkeypatch):
    with pytest.raises(ZeroDivisionError):
        run_raising(ZeroDivisionError(), monkeypatch)


def test_a_reader_that_goes_away_is_quiet():
    program = (
        "import sys; from chakra_et import cli; from chakra_et.cli import info\n"
        "def run(args):\n"
        "    for _ in range(100000): print('line')\n"
        "    return 0\n"
        "info.run = run\n"
        "sys.exit(cli.main(['info', 'x']))"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"line\n"
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert errors == b""


def test_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "chakra_et.cli", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: chakra ")


def test_the_users_own_allocator_settings_are_kept(monkeypatch, tmp_path):
    name, ours = cli.ALLOCATOR
    monkeypatch.setenv(name, "dirty_decay_ms:7")
    assert cli.main(["info", str(tmp_path / "none.et")]) == 1
    assert os.environ[name] == "dirty_decay_ms:7"
    monkeypatch.delenv(name)
    assert cli.main(["info", str(tmp_path / "none.et")]) == 1
    assert os.environ[name] == ours
