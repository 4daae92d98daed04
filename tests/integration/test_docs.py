"""Every example in the documentation is run, and generated pages are up to date."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys

import pytest

import chakra_et
from docs.run_examples import PAGES, missing, run_page, same
from tests.conftest import FRAMEWORKS, ROOT

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(chakra_et.__path__, "chakra_et.")
    if "_proto" not in module.name and not module.name.endswith("__main__")
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page(page, tmp_path, monkeypatch):
    if (library := missing(page)) is not None:
        pytest.skip(f"{page.name} needs {library}, which is not installed")
    monkeypatch.setenv("COLUMNS", "100")
    after = run_page(page, tmp_path)
    assert same(after, page.read_text(encoding="utf-8")), "an output is out of date: run make docs"


def test_outputs_agree_but_for_paths_and_rules():
    page = " rank  file\n ──────\n    0  /home/a/examples/data/host.0.json.gz\n"
    assert same(page, " rank  file\n ───\n    0  /b/chakra_et/_sample/host.0.json.gz\n")
    for old, new in ((" 0 ", " 1 "), ("rank  ", "rank "), ("host.0", "host.1")):
        assert not same(page, page.replace(old, new))


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as err:
        if err.name not in FRAMEWORKS:
            raise
        pytest.skip(f"{name} needs {err.name}, which is not installed")
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0


def test_generated_pages_are_up_to_date():
    script = ROOT / "docs" / "generate_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
