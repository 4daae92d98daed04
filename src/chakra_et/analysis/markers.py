"""Steps of a run as its annotations tell: training steps, serving engines' execution steps, users' own loops.

Formats were read off the engines' public sources: vLLM marks `execute_model` with request and token counts (three
spellings over the years), SGLang a forward pass with `step[MODE bs=.. toks=..]`, TensorRT-LLM an executor iteration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import polars as pl

from chakra_et.ir.cut import iterations
from chakra_et.ir.enums import NodeType
from chakra_et.ir.trace import Trace

__all__ = ["COUNTS", "STEP_SCHEMA", "Steps", "marked_steps", "parse_marker"]

STEP_SCHEMA: dict[str, type[pl.DataType]] = {
    "iteration": pl.Int64,
    "label": pl.String,
    "begin_ns": pl.Int64,
    "end_ns": pl.Int64,
    "kind": pl.String,
    "context_requests": pl.Int64,
    "context_tokens": pl.Int64,
    "generation_requests": pl.Int64,
    "generation_tokens": pl.Int64,
    "kv_tokens": pl.Int64,
}
# What a serving engine's markers count.
COUNTS: tuple[str, ...] = (
    "context_requests",
    "context_tokens",
    "generation_requests",
    "generation_tokens",
    "kv_tokens",
)
# A phase in braces: requests(tokens), requests(tokens_squares) or requests(sq.. sk.. sqsq.. sqsk..).
_BATCH = r"(?:sq)?(?P<{0}_tokens>\d+)(?:_\d+|sk(?P<{0}_kv>\d+)sqsq\d+sqsk\d+)?"
_VLLM = re.compile(
    r"^execute_(?:\d+_)?context_(?P<context_requests>\d+)\(" + _BATCH.format("context") + r"\)"
    r"_generation_(?P<generation_requests>\d+)\(" + _BATCH.format("generation") + r"\)$"
)
_VLLM_OLD = re.compile(r"^execute_new_(?P<context_requests>\d+)_cached_(?P<generation_requests>\d+)$")
_SGLANG = re.compile(r"^step\[(?P<mode>[A-Z_]+)(?: bs=(?P<requests>\d+))?(?: toks=(?P<tokens>\d+))?[^\]]*\]$")
_TENSORRT = re.compile(
    r"^\[Executor\] _forward_step(?: (?P<iteration>\d+))?: (?P<context_requests>\d+) ctx reqs"
    r"(?:, (?P<context_tokens>\d+) ctx tokens)?, (?P<generation_requests>\d+) gen reqs"
)
_SERVING = r"^(execute_(\d+_)?(context|new)_\d+|step\[[A-Z]|\[Executor\] _forward_step)"
# One call of the model a step, without numbers; only counted on where nothing better is there.
_FORWARD = r"^(execute_model|(v2_)?gpu_model_runner: (forward|execute_model)|ModelRunner\.forward|model_forward)$"
_STEP_WORDS = (
    r"(?i)^\W*(train|training|eval|inference|global|mini|micro|decode|prefill)?[ _\-:.]*"
    r"(step|iter|iteration|batch|minibatch|train_batch)s?\W*(n\W*)?$"
)
_OPTIMIZER = r"^Optimizer\.step#"
_DELIMITERS = (_OPTIMIZER, r"^(## )?optimizer( ##)?$", r"^enumerate\(DataLoader\)#")
_MOST_OF_TIME = 0.8
# What repeats inside a step: communications, layers, compiled parts.
_NO_STEPS = r"(?i)^(nccl|gloo|mpi|ucc|c10d|fsdp|autograd)|CompiledFxGraph|(layers?|blocks?|stage|expert)[._ \[]?\d"


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Steps of a run, in time order, disjoint.

    Attributes:
        table: One row a step: `iteration` (the marker's own, else the place in time order from 0), `label`, `begin_ns`,
            `end_ns` (host range, recorded clock), `kind` (`training`, `prefill`, `decode`, `mixed`, `unknown`), and
            where the marker tells `context_requests`, `context_tokens`, `generation_requests`, `generation_tokens`,
            `kv_tokens` (tokens that attention looks at), else null.
        source: Which marker: `profiler_step`, `vllm`, `sglang`, `tensorrt_llm`, `annotation` (a user's own),
            `optimizer` or `dataloader` (the step ends with the one, or begins with the other); `repeats` where nothing
            marks them but what is done repeats; empty where there are none.
        notes: What was guessed.
    """

    table: pl.DataFrame
    source: str
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.table.height


def marked_steps(trace: Trace) -> Steps:
    """Return the steps that the trace's annotations mark; an empty table where none does.

    `ProfilerStep#` comes first, unless a serving engine marked more steps inside; then a serving engine's marker,
    a user's annotation that repeats on one thread, and the optimizer's or data loader's calls as delimiters.

    Args:
        trace: The trace of one rank.

    Example:
        >>> from chakra_et.ir.builder import TraceBuilder
        >>> from chakra_et.ir.enums import NodeType
        >>> builder = TraceBuilder()
        >>> _ = builder.add("step[DECODE bs=4]", NodeType.METADATA_NODE, start_ns=10, span_ns=90, is_cpu_op=True)
        >>> marked_steps(builder.build()).table.select("kind", "generation_requests").row(0)
        ('decode', 4)
    """
    marks = _annotations(trace)
    serving = _serving_steps(marks)
    training = _profiler_steps(trace)
    if len(training) and len(serving) <= len(training):
        return _with_counts(training, serving)
    if len(serving):
        return serving
    if marks.is_empty():
        return _steps([], "")
    for steps in (_looped(marks), *(_delimited(trace, marks, pattern) for pattern in _DELIMITERS), _covering(marks)):
        if len(steps):
            return steps
    return _steps([], "")


def parse_marker(name: str) -> tuple[str, dict[str, int | str]] | None:
    """Return (engine, fields of `STEP_SCHEMA`) of a serving engine's marker, or None if it is none.

    Args:
        name: Annotation name.

    Example:
        >>> parse_marker("execute_new_2_cached_0")
        ('vllm', {'context_requests': 2, 'generation_requests': 0, 'kind': 'prefill'})
    """
    for pattern in (_VLLM, _VLLM_OLD):
        match = pattern.match(name)
        if match:
            return "vllm", _with_kind(match.groupdict())
    match = _TENSORRT.match(name)
    if match:
        return "tensorrt_llm", _with_kind(match.groupdict())
    match = _SGLANG.match(name)
    if match:
        return "sglang", _sglang_fields(match)
    return None


def _with_kind(groups: dict[str, str | None]) -> dict[str, int | str]:
    fields: dict[str, int | str] = {key: int(value) for key, value in groups.items() if value is not None}
    kv = [int(fields.pop(key)) for key in ("context_kv", "generation_kv") if key in fields]
    if kv:
        fields["kv_tokens"] = sum(kv)
    context, generation = (int(fields.get(key, 0)) > 0 for key in ("context_requests", "generation_requests"))
    fields["kind"] = _kind(context=context, generation=generation)
    return fields


def _kind(*, context: bool, generation: bool) -> str:
    if context:
        return "mixed" if generation else "prefill"
    return "decode" if generation else "unknown"


def _sglang_fields(match: re.Match[str]) -> dict[str, int | str]:
    mode = match["mode"]
    requests, tokens = (int(match[key]) if match[key] else None for key in ("requests", "tokens"))
    extend = "EXTEND" in mode or mode == "PREFILL"
    # Speculative decoding verifies a draft, or runs the draft model itself, on requests that are being decoded.
    decode = mode in ("DECODE", "TARGET_VERIFY") or mode.startswith("DRAFT")
    kind = "mixed" if mode == "MIXED" else "decode" if decode else "prefill" if extend else "unknown"
    fields: dict[str, int | str] = {"kind": kind}
    side = {"decode": "generation", "prefill": "context"}.get(kind)
    if side and requests is not None:
        fields[f"{side}_requests"] = requests
    if side and tokens is not None:
        fields[f"{side}_tokens"] = tokens
    elif mode == "DECODE" and requests is not None:
        fields["generation_tokens"] = requests
    return fields


def _annotations(trace: Trace) -> pl.DataFrame:
    """Return the annotations with a range: name, tid, begin_ns, end_ns, in time order."""
    nodes = trace.nodes.select("name", "type", "start_ns").with_columns(trace.column("span_ns"), trace.column("tid"))
    return (
        nodes.filter(
            (pl.col("type") == int(NodeType.METADATA_NODE))
            & pl.col("start_ns").is_not_null()
            & (pl.col("span_ns") > 0)
            & pl.col("name").is_not_null()
        )
        .select(
            "name",
            pl.col("tid").fill_null(-1),
            begin_ns="start_ns",
            end_ns=pl.col("start_ns") + pl.col("span_ns"),
        )
        .sort("begin_ns", maintain_order=True)
    )


def _steps(rows: list[dict[str, object]], source: str, notes: tuple[str, ...] = ()) -> Steps:
    return Steps(pl.DataFrame(rows, schema=STEP_SCHEMA, orient="row"), source, notes)


def _profiler_steps(trace: Trace) -> Steps:
    kind = "training" if _trains(trace) else "unknown"
    rows: list[dict[str, object]] = [
        {"iteration": number, "label": f"ProfilerStep#{number}", "begin_ns": begin, "end_ns": end, "kind": kind}
        for number, (begin, end) in iterations(trace).items()
    ]
    return _steps(rows, "profiler_step")


def _trains(trace: Trace) -> bool:
    """True if anything says that gradients are computed or applied."""
    names = trace.nodes["name"]
    return bool(names.str.starts_with("autograd::engine::").any() or names.str.contains(_OPTIMIZER).any())


def _serving_steps(marks: pl.DataFrame) -> Steps:
    chosen = marks.filter(pl.col("name").str.contains(_SERVING))
    rows: list[dict[str, object]] = []
    engine = ""
    for name, _, begin, end in chosen.iter_rows():
        parsed = parse_marker(name)
        # A marker inside another (a draft model inside its target's step) is no step of its own.
        if parsed is None or (rows and begin < _end(rows[-1])):
            continue
        engine = engine or parsed[0]
        rows.append({"iteration": len(rows), "label": name, "begin_ns": begin, "end_ns": end, **parsed[1]})
    numbers = [row["iteration"] for row in rows]
    if len(set(numbers)) < len(numbers):
        rows = [{**row, "iteration": place} for place, row in enumerate(rows)]
    return _steps(rows, engine)


def _end(row: dict[str, object]) -> int:
    return int(str(row["end_ns"]))


def _with_counts(steps: Steps, serving: Steps) -> Steps:
    """Give each profiler step the counts of the serving marker that starts in it."""
    if not len(serving):
        return steps
    own = serving.table.select("begin_ns", "kind", *COUNTS).with_columns(at=pl.col("begin_ns")).sort("begin_ns")
    left = steps.table.drop("kind", *COUNTS).sort("begin_ns")
    found = left.join_asof(own.drop("begin_ns"), left_on="begin_ns", right_on="at", strategy="forward")
    inside = pl.col("at") < pl.col("end_ns")
    found = found.with_columns(
        pl.when(inside).then(pl.col("kind")).otherwise(pl.lit("unknown")).alias("kind"),
        *(pl.when(inside).then(pl.col(name)).alias(name) for name in COUNTS),
    )
    return Steps(found.select(*STEP_SCHEMA), steps.source, steps.notes)


def _families(marks: pl.DataFrame) -> pl.DataFrame:
    """Group annotations by name without numbers; keep those that repeat on one thread, disjoint."""
    named = marks.filter(~pl.col("name").str.contains(_NO_STEPS))
    family = pl.col("name").str.replace_all(r"\d+", "N")
    apart = (pl.col("begin_ns").shift(-1) >= pl.col("end_ns")).fill_null(True).all()
    return (
        named.with_columns(family=family)
        .group_by("family", maintain_order=True)
        .agg(
            count=pl.len(),
            threads=pl.col("tid").n_unique(),
            apart=apart,
            covered_ns=(pl.col("end_ns") - pl.col("begin_ns")).sum(),
            span_ns=pl.col("end_ns").max() - pl.col("begin_ns").min(),
            numbered=(pl.col("name").n_unique() == pl.len()) & (pl.len() > 1),
        )
        .filter((pl.col("count") > 1) & (pl.col("threads") == 1) & pl.col("apart"))
    )


def _looped(marks: pl.DataFrame) -> Steps:
    """Steps from a user's own loop annotation: named like a step, or one call of the model a step."""
    families = _families(marks)
    for pattern in (_STEP_WORDS, _FORWARD):
        named = families.filter(
            pl.col("family").str.replace_all(r"[#\[\](){}]", " ").str.strip_chars().str.contains(pattern)
        )
        if named.height:
            best = named.sort("covered_ns", "count", descending=True, maintain_order=True).row(0, named=True)
            return _family_steps(marks, str(best["family"]), ())
    return _steps([], "")


def _covering(marks: pl.DataFrame) -> Steps:
    """Steps from any annotation that repeats and covers most of the annotated time."""
    span = marks.select(pl.col("end_ns").max() - pl.col("begin_ns").min()).item()
    large = _families(marks).filter(pl.col("covered_ns") >= _MOST_OF_TIME * span)
    if large.is_empty():
        return _steps([], "")
    best = large.sort("numbered", "covered_ns", descending=True, maintain_order=True).row(0, named=True)
    family = str(best["family"])
    note = f"no marker names the steps; '{family}' repeats {best['count']} times over most of the profile and was taken"
    return _family_steps(marks, family, (note,))


def _family_steps(marks: pl.DataFrame, family: str, notes: tuple[str, ...]) -> Steps:
    chosen = marks.filter(pl.col("name").str.replace_all(r"\d+", "N") == family)
    names = chosen["name"].to_list()
    numbers = [int(digits[-1]) if (digits := re.findall(r"\d+", name)) else -1 for name in names]
    if len(set(numbers)) < len(numbers) or numbers != sorted(numbers):
        numbers = list(range(len(names)))
    rows: list[dict[str, object]] = [
        {"iteration": number, "label": name, "begin_ns": begin, "end_ns": end, "kind": _kind_of_name(name)}
        for number, (name, _, begin, end) in zip(numbers, chosen.iter_rows(), strict=True)
    ]
    return _steps(rows, "annotation", notes)


def _kind_of_name(name: str) -> str:
    lowered = name.lower()
    words = {"train": "training", "prefill": "prefill", "decode": "decode"}
    return next((kind for word, kind in words.items() if word in lowered), "unknown")


def _delimited(trace: Trace, marks: pl.DataFrame, pattern: str) -> Steps:
    """Steps that an optimizer's call ends, or a data loader's begins; several optimizers: the one called last."""
    named = _families(marks).filter(pl.col("family").str.contains(pattern))
    if named.is_empty():
        return _steps([], "")
    ends = "DataLoader" not in pattern
    chosen = marks.with_columns(family=pl.col("name").str.replace_all(r"\d+", "N"))
    chosen = chosen.filter(pl.col("family").is_in(named["family"].to_list()))
    last = chosen.group_by("family").agg(pl.col("end_ns").max(), pl.len()).sort("len", "end_ns")
    rare = last.filter(pl.col("len") == last["len"].min())
    family = rare["family"][-1 if ends else 0]
    chosen = chosen.filter(pl.col("family") == family)
    first, final = _host_range(trace)
    times = chosen["end_ns"].to_list() if ends else chosen["begin_ns"].to_list()
    edges = [min(first, times[0]), *times] if ends else [*times, max(final, times[-1])]
    word = "the end of" if ends else "the start of"
    rows: list[dict[str, object]] = [
        {
            "iteration": k,
            "label": f"step {k}",
            "begin_ns": begin,
            "end_ns": end,
            "kind": "training" if ends else "unknown",
        }
        for k, (begin, end) in enumerate(pairwise(edges))
    ]
    note = f"no marker names the steps; they were cut at {word} each '{family}'"
    return _steps(rows, "optimizer" if ends else "dataloader", (note,))


def _host_range(trace: Trace) -> tuple[int, int]:
    """Return when the host's first node starts and its last one ends, ns."""
    ends = (pl.col("start_ns") + pl.col("duration_ns").fill_null(0)).filter("is_cpu_op")
    starts = pl.col("start_ns").filter("is_cpu_op")
    first, final = trace.nodes.select(starts.min().fill_null(0).alias("first"), ends.max().fill_null(0)).row(0)
    return int(first), int(final)
