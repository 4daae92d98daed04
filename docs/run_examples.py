"""Run the examples of the documentation, and put their output where it belongs.

    python docs/run_examples.py            # rewrite the output in README.md and docs/*.md
    python docs/run_examples.py --check    # write nothing; exit 1 if an output is out of date

A page's blocks run in order, in one temporary folder, where ``profiles/`` is the bundled sample. In a ``console``
block, lines that begin with ``$ chakra`` are commands, and the lines below are their output; a block of commands alone
stays so. A ``text`` block right after a ``python`` block is that one's output. A page with ``<!-- needs: NAME -->`` is
run where that library is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chakra_et.cli import main as chakra
from chakra_et.sample import sample_folder

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```\n(?:(\n```text\n)(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
# Conversion is deterministic, and so is every figure. What varies from one machine to the next is where the sample
# lies, and the width of the rule below a table's header, which follows the widest cell: that may hold a path.
NEEDS = re.compile(r"<!-- needs: (\w+) -->")
VOLATILE = re.compile(r"/\S*(?:examples/data|chakra_et/_sample)\b|─+")


class ExampleError(Exception):
    """An example failed."""


def missing(page: Path) -> str | None:
    """Return the library that a page needs and that isn't here, if there is one."""
    needs = NEEDS.findall(page.read_text(encoding="utf-8"))
    return next((name for name in needs if find_spec(name) is None), None)


def run_page(page: Path, folder: Path) -> str:
    """Run a page's blocks in a folder and return the page with their output.

    Raises:
        ExampleError: A command returned another exit code than 0.
    """
    names: dict[str, Any] = {}
    (folder / "profiles").symlink_to(sample_folder())

    def replace(match: re.Match[str]) -> str:
        kind, body, opening, _ = match.groups()
        if kind == "console":
            return f"```console\n{_console(body)}```\n" + match[0][match[0].index("\n```\n") + 5 :]
        output = _captured(lambda: exec(compile(body, page.name, "exec"), names))
        return f"```python\n{body}```\n" + (f"{opening}{output}```\n" if opening else "")

    with _inside(folder):  # contextlib.chdir is there from Python 3.11 on
        return BLOCK.sub(replace, page.read_text(encoding="utf-8"))


def _console(body: str) -> str:
    shown = []
    commands = [line for line in body.splitlines() if line.startswith("$ ")]
    silent = all(line.startswith("$ ") for line in body.splitlines())
    for line in commands:
        output = _captured(lambda line=line: _command(line)) if line.startswith("$ chakra ") else ""
        shown.append(f"{line}\n" + ("" if silent else output))
    return "".join(shown)


def _command(line: str) -> None:
    code = chakra(shlex.split(line.removeprefix("$ chakra "), comments=True))
    if code:
        raise ExampleError(f"{line}: expected exit code 0, got {code}")


def _captured(function: Any) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        function()
    return "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines()) + "\n"


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def same(one: str, other: str) -> bool:
    """Tell whether two pages agree but for the sample's place and the rules of tables."""
    return VOLATILE.sub("", one) == VOLATILE.sub("", other)


def main() -> int:
    """Rewrite or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if an output is out of date")
    check = parser.parse_args().check
    os.environ["COLUMNS"] = "100"
    stale = []
    for page in PAGES:
        if (library := missing(page)) is not None:
            print(f"left {page.name} alone: it needs {library}", file=sys.stderr)
            continue
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            after = run_page(page, Path(folder))
        if after != before and not (check and same(after, before)):
            stale.append(page)
            if not check:
                page.write_text(after, encoding="utf-8")
                print(f"Wrote {page.relative_to(ROOT)}")
    if check and stale:
        print(f"out of date: {', '.join(page.name for page in stale)}; run make docs", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
