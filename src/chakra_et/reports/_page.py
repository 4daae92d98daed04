"""One HTML page that needs nothing beside itself: text, tables, and figures that plotly draws in the browser.

The script comes along compressed (0.7 MB instead of 1.5), and the browser unpacks it; nothing is loaded from anywhere.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

__all__ = ["Choice", "Figure", "Listing", "Page", "Table", "page_chunks"]

_PLOTLY = resources.files("chakra_et.reports") / "_plotly" / "plotly-cartesian.min.js.gz"
# Words of a cell that aren't broken.
_SHORT = 26
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #222; max-width: 1040px; margin: 24px auto; padding: 0 12px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 26px 0 2px; }
h1, p, li { overflow-wrap: anywhere; } p { margin: 4px 0; } .note { color: #555; }
table { border-collapse: collapse; font-size: 13px; margin-top: 6px; }
th { text-align: right; font-weight: 600; border-bottom: 1px solid #888; padding: 2px 10px; vertical-align: bottom; }
td { text-align: right; padding: 2px 10px; white-space: nowrap;
     border-bottom: 1px solid #e4e4e4; font-variant-numeric: tabular-nums; }
th.word, td.word { text-align: left; } td.long { white-space: normal; overflow-wrap: anywhere; min-width: 14em; }
div.wide { overflow-x: auto; } ol, ul { margin: 4px 0; padding-left: 24px; } li { margin: 2px 0; }
div.facts { display: flex; flex-wrap: wrap; gap: 4px 32px; margin: 12px 0; }
div.facts b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; } div.facts span { color: #555; }
div.keys { display: flex; flex-wrap: wrap; gap: 0 14px; margin: 4px 0 0; font-size: 12px; }
div.keys button { font: inherit; color: inherit; background: none; border: 0; padding: 1px 0; cursor: pointer; }
div.keys i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; vertical-align: -1px;
     border: 1px solid #0003; print-color-adjust: exact; }
div.keys .off { opacity: 0.35; } div.keys ~ div path.js-fill { stroke-width: 0.6px !important; }
tr.head td { text-align: left; font-weight: 600; border: 0; padding-top: 8px; }
figure { margin: 0; } select { font: inherit; margin: 0 12px 0 4px; }
@page { size: A4 landscape; margin: 10mm; }
@media print {
  body { margin: 0; padding: 0; } .modebar { display: none; }
  h2 { break-after: avoid; } tr, figure { break-inside: avoid; } div.wide { overflow: visible; }
  table { font-size: 9px; } th, td { padding: 1px 4px; } td.long { min-width: 9em; } div.keys .off { display: none; }
}
@media (max-width: 600px) { body { margin: 12px auto; } th, td { padding: 2px 5px; } h1 { font-size: 19px; } }
"""

# Numbers of texts become the texts that points or figures share.
_SCRIPT = """
const read = id => document.getElementById(id).textContent;
const fill = (part, texts) => Array.isArray(part) ? part.map(one => fill(one, texts)) : texts[part] ?? "";
function draw(name, all) {
  const own = all.figures[name];
  const chosen = [...document.querySelectorAll(`select[data-figure="${name}"]`)].map(one => one.value).join("\\n");
  const shown = own[chosen];
  for (const trace of shown.data) {
    if (trace.filled) continue;
    if (trace.customdata && all.texts.length) trace.customdata = fill(trace.customdata, all.texts);
    for (const key of trace.shared ?? []) trace[key] = fill(trace[key], all.words);
    trace.filled = true;
  }
  const bar = {displaylogo: false, responsive: true, modeBarButtons: [["toImage", "resetScale2d"]]};
  const place = document.getElementById(name);
  if (place.dataset.keys) keys(name, shown);
  Plotly.react(name, shown.data, shown.layout, bar);
  // What is thinner than a pixel would be pale.
  const outline = () => place.querySelectorAll("path.js-fill").forEach(one => one.style.stroke = one.style.fill);
  if (!place.dataset.outlined) place.on("plotly_afterplot", outline);
  place.dataset.outlined = "yes";
  outline();
}
function keys(name, shown) {
  const place = document.getElementById(name);
  const parts = new Map();
  shown.data.forEach((trace, at) => {
    const part = parts.get(trace.legendgroup ?? trace.name) ?? {name: trace.name, at: []};
    part.color ??= trace.marker?.color ?? trace.fillcolor ?? trace.line?.color;
    part.off = trace.visible === "legendonly";
    part.at.push(at);
    if (trace.name && typeof part.color === "string") parts.set(trace.legendgroup ?? trace.name, part);
  });
  shown.layout.showlegend = false;
  const found = [...parts.values()].map(part => {
    const key = document.createElement("button"), mark = document.createElement("i");
    mark.style.background = part.color;
    key.append(mark, part.name);
    key.classList.toggle("off", part.off);
    key.onclick = () => Plotly.restyle(name, {visible: key.classList.toggle("off") ? "legendonly" : true}, part.at);
    return key;
  });
  const hint = found.some(key => key.className === "off") ? ["(click to draw)"] : [];
  place.previousElementSibling.replaceChildren(...found, ...hint);
}
async function start() {
  // A loop: what takes a function for each byte takes a fifth of a second.
  const packed = atob(read("plotly")), bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  // From a blob, browsers compile it beside the page.
  script.src = URL.createObjectURL(await new Response(stream).blob());
  await new Promise((done, failed) => {
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });
  const all = JSON.parse(read("figures"));
  let last = performance.now();
  for (const name of Object.keys(all.figures)) {
    draw(name, all);
    // The page is there and can be moved while the rest is drawn; each time costs the browser a picture of all.
    if (performance.now() - last < 150) continue;
    await new Promise(done => setTimeout(done));
    last = performance.now();
  }
  const selects = [...document.querySelectorAll("select")];
  for (const one of selects) one.onchange = () => {
    for (const other of selects) if (other.dataset.label === one.dataset.label) other.value = one.value;
    for (const name of Object.keys(all.figures)) draw(name, all);
  };
  document.body.dataset.drawnMs = Math.round(performance.now());
  document.body.dataset.drawn = "yes";
}
start().catch(err => {
  document.getElementById("trouble").textContent =
    "The figures need a browser of 2023 or later (DecompressionStream): " + err;
});
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that the reader chooses; figures with the same choice follow one another.

    Attributes:
        label: What.
        options: From which; the first is shown at first.
    """

    label: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a page.

    Attributes:
        name: Name of its element, unique in the page.
        heading: Above it.
        remark: Below the heading.
        choices: What the reader chooses.
        views: Plotly's data and layout, for each combination of what is chosen. Numbers in a trace's `customdata` stand
            for the page's `texts`, if it has any.
        height: Pixels.
        keys: True for a legend above the figure, which takes no room from it, in place of plotly's.
    """

    name: str
    heading: str
    remark: str
    choices: tuple[Choice, ...]
    views: Mapping[tuple[str, ...], Mapping[str, Any]]
    height: int
    keys: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a page.

    Attributes:
        heading: Above it.
        columns: Headings of the columns.
        rows: Cells; a row with one cell is a heading inside the table.
        words: Positions of columns that hold words (aligned left); the others hold numbers.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """Sentences below one another.

    Attributes:
        heading: Above them.
        items: The sentences, in order.
        numbered: True where the order says something.
    """

    heading: str
    items: Sequence[str]
    numbered: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows.

    Attributes:
        title: Heading.
        lines: Text below it.
        parts: Figures, tables and lists, in order.
        texts: What figures show when the pointer is over a point.
        notes: At the end.
        facts: The numbers that matter most, large, with what each is.
    """

    title: str
    lines: tuple[str, ...]
    parts: tuple[Figure | Table | Listing, ...]
    texts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures, in order."""
        return tuple(part for part in self.parts if isinstance(part, Figure))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables, in order."""
        return tuple(part for part in self.parts if isinstance(part, Table))


def page_chunks(page: Page) -> Iterator[bytes]:
    """Yield a page's bytes."""
    title = html.escape(page.title)
    yield (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<link rel="icon" href="data:,">\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    ).encode()
    yield _facts(page.facts).encode()
    yield "".join(f"<p>{html.escape(line)}</p>\n" for line in page.lines).encode()
    yield b'<p id="trouble"></p>\n'
    for part in (*page.parts, *([Listing("Notes", page.notes)] if page.notes else [])):
        yield _part(part).encode()
    words: dict[str, int] = {}
    figures = {
        figure.name: {"\n".join(chosen): _shared(view, words) for chosen, view in figure.views.items()}
        for figure in page.figures
    }
    content = {"figures": figures, "texts": page.texts, "words": list(words)}
    data = json.dumps(content, separators=(",", ":"), allow_nan=False)
    # A text could end the script.
    yield b'<script type="application/json" id="figures">' + data.replace("<", "\\u003c").encode() + b"</script>\n"
    yield b'<script type="text/plain" id="plotly">' + _packed_script() + b"</script>\n"
    yield f"<script>{_SCRIPT}</script>\n</body>\n</html>\n".encode()


def _shared(view: Mapping[str, Any], words: dict[str, int]) -> dict[str, Any]:
    """Return a view whose traces name texts of many points by number; new ones go to `words`."""

    def numbers(part: Any) -> Any:
        return [numbers(one) for one in part] if isinstance(part, list) else words.setdefault(part, len(words))

    traces = []
    for trace in view["data"]:
        keys = [key for key in ("text", "customdata") if _is_texts(trace.get(key))]
        traces.append({**trace, **{key: numbers(trace[key]) for key in keys}, **({"shared": keys} if keys else {})})
    return {**view, "data": traces}


def _is_texts(part: Any) -> bool:
    """Tell whether something is a list of texts, or of such lists."""
    if not isinstance(part, list) or not part:
        return False
    return all(isinstance(one, str) or _is_texts(one) for one in part)


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<div><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>" for value, what in facts)
    return f'<div class="facts">{cells}</div>\n' if cells else ""


def _packed_script() -> bytes:
    return base64.b64encode(_PLOTLY.read_bytes())


def _part(part: Figure | Table | Listing) -> str:
    if isinstance(part, Figure):
        return _figure(part)
    return _table(part) if isinstance(part, Table) else _listing(part)


def _listing(listing: Listing) -> str:
    items = "".join(f"<li>{html.escape(item)}</li>\n" for item in listing.items)
    tag = "ol" if listing.numbered else "ul"
    return f"<h2>{html.escape(listing.heading)}</h2>\n<{tag}>\n{items}</{tag}>\n"


def _figure(figure: Figure) -> str:
    selects = []
    for choice in figure.choices:
        options = "".join(f"<option>{html.escape(option)}</option>" for option in choice.options)
        label = html.escape(choice.label)
        marks = f'data-figure="{figure.name}" data-label="{label}" autocomplete="off"'
        selects.append(f"<label>{label} <select {marks}>{options}</select></label>")
    controls = f"<p>{''.join(selects)}</p>\n" if selects else ""
    controls += '<div class="keys"></div>\n' if figure.keys else ""
    marks = 'data-keys="yes" ' if figure.keys else ""
    return (
        f'<figure>\n<h2>{html.escape(figure.heading)}</h2>\n<p class="note">{html.escape(figure.remark)}</p>\n'
        f'{controls}<div id="{figure.name}" {marks}style="height:{figure.height}px"></div>\n</figure>\n'
    )


def _mark(cell: str) -> str:
    return ' class="word long"' if len(cell) > _SHORT else ' class="word"'


def _table(table: Table) -> str:
    def cells(kind: str, row: Sequence[str]) -> str:
        marks = [_mark(cell) if place in table.words else "" for place, cell in enumerate(row)]
        return "".join(f"<{kind}{mark}>{html.escape(cell)}</{kind}>" for mark, cell in zip(marks, row, strict=True))

    lines = [
        f'<tr class="head"><td colspan="{len(table.columns)}">{html.escape(row[0])}</td></tr>\n'
        if len(row) == 1 < len(table.columns)
        else f"<tr>{cells('td', row)}</tr>\n"
        for row in table.rows
    ]
    head = f"<tr>{cells('th', table.columns)}</tr>\n"
    body = f'<div class="wide"><table>\n{head}{"".join(lines)}</table></div>'
    return f"<h2>{html.escape(table.heading)}</h2>\n{body}\n"
