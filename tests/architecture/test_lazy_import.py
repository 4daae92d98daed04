"""Importing the package, and asking for help, load no heavy library."""

import subprocess
import sys

import pytest

HEAVY = ("polars", "numba", "numpy", "google.protobuf", "rich", "networkx", "joblib", "plotly", "yaml")
REPORT = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"


@pytest.mark.parametrize(
    "statement",
    [
        "import chakra_et",
        "import chakra_et.errors, chakra_et.units, chakra_et.sample",
        "from chakra_et.cli import main",
        "from chakra_et.cli import build_parser; build_parser().format_help()",
        "import contextlib, io\n"
        "from chakra_et.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main(['convert', '--help'])",
    ],
)
def test_nothing_heavy_is_loaded(statement):
    done = subprocess.run([sys.executable, "-c", f"{statement}\n{REPORT}"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
