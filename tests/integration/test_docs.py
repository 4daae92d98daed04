"""Every example in the documentation is run, and generated pages are up to date."""

import doctest
import importlib
import pkgutil
import re
import shlex
import subprocess
import sys

import pytest

import chakra_et
from chakra_et.cli import main
from tests.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNNABLE = ("console", "python")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(chakra_et.__path__, "chakra_et.")
    if "_proto" not in module.name and not module.name.endswith("__main__")
)


def runnable(page):
    return [(kind, text) for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")) if kind in RUNNABLE]


@pytest.mark.parametrize("page", [page for page in PAGES if runnable(page)], ids=lambda page: page.name)
def test_page(page, tmp_path, monkeypatch, sample, capsys):
    """Runs a page's blocks in order, in one folder; ``profiles/`` there is the bundled sample."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles").symlink_to(sample)
    names = {}
    for kind, text in runnable(page):
        if kind == "python":
            exec(compile(text, page.name, "exec"), names)
            continue
        for line in text.splitlines():
            if line.startswith("$ chakra "):
                run_command(line, capsys, text)


def run_command(line, capsys, block):
    command = shlex.split(line.removeprefix("$ chakra "), comments=True)
    capsys.readouterr()
    code = main(command)
    captured = capsys.readouterr()
    assert code == 0, f"{line}\n{captured.out}\n{captured.err}"
    for shown in re.findall(r"^Wrote .*$", block, re.MULTILINE):
        if len(re.findall(r"^\$ ", block, re.MULTILINE)) == 1:
            assert shown in captured.out


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_generated_pages_are_up_to_date():
    script = ROOT / "docs" / "generate_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
