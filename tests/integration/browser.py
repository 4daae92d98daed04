"""A page as a browser sees it, without a screen and without a network."""

import re
import shutil
import subprocess
import time
from dataclasses import dataclass

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium, to open the page")
_WORDS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000", "--enable-logging=stderr", "--v=0",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom",
]  # fmt: skip
# What plotly makes of a bar or point, a line, an area, and a heat map.
_MARKS = re.compile(r'class="point[ "]|class="js-line"|class="js-fill"|<image ')


@dataclass(frozen=True)
class Opened:
    """A page in a browser.

    Attributes:
        dom: What its scripts made of it.
        console: What the browser complains of.
        seconds: How long the browser took, its own start included.
    """

    dom: str
    console: list[str]
    seconds: float

    @property
    def drawn(self):
        return 'data-drawn="yes"' in self.dom.split("<h1>")[0]

    @property
    def figures(self):
        """How many marks each figure has, by its name."""
        parts = re.split(r'<div id="figure-([a-z-]+)"', self.dom)
        return {name: len(_MARKS.findall(part.split("</figure>")[0]))
                for name, part in zip(parts[1::2], parts[2::2], strict=True)}  # fmt: skip

    @property
    def text(self):
        """The words of the page, without its scripts."""
        plain = re.sub(r"<script.*?</script>|<style.*?</style>|<[^>]*>", " ", self.dom, flags=re.DOTALL)
        return re.sub(r"\s+", " ", plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))


def open_page(path, profile, width=1100):
    """Open a page, and let its scripts run.

    Args:
        path: The page.
        profile: A folder for the browser's own files.
        width: Of the window.
    """
    begin = time.perf_counter()
    done = subprocess.run(
        ["chromium", *_WORDS, f"--user-data-dir={profile}", f"--window-size={width},900", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - begin
    return Opened(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line], seconds)
